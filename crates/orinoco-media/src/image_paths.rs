//! Images of a source: one, numbered ones, or those of a folder.

use std::path::{Path, PathBuf};

use orinoco_uri::{ImagePaths, SourceKind, SourceUri};

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
