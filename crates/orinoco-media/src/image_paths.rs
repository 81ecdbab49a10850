//! Files of a source on this machine.

use std::path::{Path, PathBuf};

use orinoco_core::Diagnosis;
use orinoco_uri::{ImagePaths, SourceKind, SourceUri};

use crate::image_folder::{FOLDER_IMAGES_MAX, list_images};
use crate::local_file::check_file;

/// Checks that the local file of a source exists and may be read. Asks nothing of the network.
pub fn check_source(uri: &SourceUri) -> Result<(), Diagnosis> {
    let shown = uri.to_string();
    if let Some(folder) = folder_of(uri) {
        return list_images(folder, &shown).map(|_| ());
    }
    match uri.kind() {
        SourceKind::Video { path, .. } => check_file(path, &shown),
        SourceKind::Images { paths, .. } => check_file(&first_image(paths).path, &shown),
        SourceKind::Camera(_)
        | SourceKind::Csi(_)
        | SourceKind::Rtsp(_)
        | SourceKind::HttpCamera(_)
        | SourceKind::HttpVideo { .. }
        | SourceKind::Stdin(_)
        | SourceKind::Test(_) => Ok(()),
    }
}

/// Returns the existing files that a source reads; none for cameras and streams.
pub fn source_files(uri: &SourceUri) -> Vec<PathBuf> {
    if let Some(folder) = folder_of(uri) {
        // A folder that cannot be read is a fault of the source.
        return list_images(folder, &uri.to_string()).unwrap_or_default();
    }
    match uri.kind() {
        SourceKind::Video { path, .. } | SourceKind::Images { paths: ImagePaths::One(path), .. } => {
            vec![path.clone()]
        }
        SourceKind::Images { paths: paths @ ImagePaths::Numbered(numbered), .. } => {
            let numbers = (first_image(paths).number..).take(FOLDER_IMAGES_MAX);
            numbers.map(|number| numbered.path(number)).take_while(|path| path.exists()).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the folder of a source of images: its URI ends with `/`, or the file system has a folder at its path.
pub(crate) fn folder_of(uri: &SourceUri) -> Option<&Path> {
    match uri.kind() {
        SourceKind::Images { paths: ImagePaths::Folder(path), .. } => Some(path),
        SourceKind::Video { path, .. } | SourceKind::Images { paths: ImagePaths::One(path), .. } => {
            path.is_dir().then_some(path)
        }
        _ => None,
    }
}

/// First image, with its number in the sequence.
#[derive(Clone, Debug)]
pub(crate) struct ImageStart {
    pub(crate) path: PathBuf,
    pub(crate) number: u32,
}

/// Returns the first image: number 0 if it exists, else 1; for a folder, the folder itself.
pub(crate) fn first_image(paths: &ImagePaths) -> ImageStart {
    match paths {
        ImagePaths::One(path) | ImagePaths::Folder(path) => ImageStart { path: path.clone(), number: 0 },
        ImagePaths::Numbered(numbered) => {
            let number = if numbered.path(0).exists() { 0 } else { 1 };
            ImageStart { path: numbered.path(number), number }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_core::codes;

    #[test]
    fn what_is_not_there_is_told() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let empty = folder.path().to_str().expect("UTF-8");
        let slash = format!("{empty}/");
        for text in [
            "/nowhere/clip.mp4",
            "file:///nowhere/%03i.png",
            empty,
            &slash,
            "/nowhere/",
            "/dev/null",
            "/dev/null/",
        ] {
            let uri = SourceUri::parse(text).expect("it is valid");
            let fault = check_source(&uri).expect_err("it is no file");
            assert_eq!(fault.code.id, codes::FILE_MISSING.id, "{fault}");
        }
    }

    #[test]
    fn the_files_of_a_source_are_those_that_are_there() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["i_1.png", "i_2.png", "i_4.png", "clip.mp4"] {
            std::fs::write(folder.path().join(name), "any").expect("written");
        }
        let path = folder.path().to_str().expect("UTF-8");
        let images = ["i_1.png", "i_2.png", "i_4.png"];
        for (text, expected) in [
            (format!("{path}/"), &images[..]),
            // Only the file system shows that it is a folder.
            (path.to_owned(), &images),
            (format!("{path}/i_%i.png"), &images[..2]),
            (format!("{path}/i_4.png"), &images[2..]),
            (format!("{path}/clip.mp4?loop=1"), &["clip.mp4"]),
            (format!("{path}/nothing/"), &[]),
            ("test://ball".to_owned(), &[]),
        ] {
            let files = source_files(&SourceUri::parse(&text).expect("it is valid"));
            let expected: Vec<PathBuf> = expected.iter().map(|name| folder.path().join(name)).collect();
            assert_eq!(files, expected, "{text}");
        }
    }

    #[test]
    fn no_fault_shows_a_password() {
        for text in [
            "u:hunter2@h:554/x",
            "u:hunter2@h:554/x/",
            "u:hunter2@h:554/x%i.png",
            "rtsp://u:hunter2@h/x",
            "http://u:hunter2@h/x",
        ] {
            let uri = SourceUri::parse(text).expect("it may be a path");
            let seen = format!("{uri} {uri:?} {:?}", check_source(&uri));
            assert!(!seen.contains("hunter2"), "{seen}");
        }
    }
}
