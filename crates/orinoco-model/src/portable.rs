//! Files of a model as another machine can place them in its own repository.

use std::path::{Component, Path, PathBuf};

use orinoco_config::Faults;
use orinoco_core::{Diagnosis, codes};

use crate::files::{is_onnx, weight_files};
use crate::repository::Repository;

/// Maximum length of the path of a portable file, in bytes.
const PATH_BYTES_MAX: usize = 1024;

/// Model of a repository: its name, and all files from which it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortableModel {
    /// Name of its folder.
    pub name: String,
    /// Version of its ONNX file; `None` where the description names the file.
    pub version: Option<u32>,
    /// Its files, sorted by path. The description is among them.
    pub files: Vec<PortableFile>,
}

/// File of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortableFile {
    /// Path in the model's folder, with slashes: [portable](is_portable).
    pub path: String,
    /// The file on this machine.
    pub file: PathBuf,
    /// Whether it is the ONNX file, or has weights of it.
    pub is_graph: bool,
}

impl Repository {
    /// Returns the files of the model `text`. Files in the data folders get the paths by which the description names them.
    ///
    /// # Errors
    /// [`codes::MODEL_NOT_FOUND`] if the model has no description, or needs a file outside its folder and the data folders; and
    /// those of reading the description.
    pub fn portable(&self, text: &str) -> Result<PortableModel, Faults> {
        let refused = |cause: String, next: &str| Diagnosis::new(&codes::MODEL_NOT_FOUND, text, cause, next);
        let model = self.read_description(text)?.ok_or_else(|| {
            refused("it has no model.toml".to_owned(), "write one with `orinoco models init`")
        })?;
        let description = model.described_by.as_deref().unwrap_or(Path::new(""));
        let folder = description.parent().unwrap_or(Path::new(""));
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let name = absolute.file_name().and_then(|name| name.to_str());
        let name = name.filter(|name| is_portable(name) && description.ends_with("model.toml"));
        let name = name.ok_or_else(|| {
            let cause = "it is not described by a file model.toml in a folder with the model's name";
            refused(cause.to_owned(), "give it such a folder")
        })?;
        let roots: Vec<&Path> =
            std::iter::once(folder).chain(self.data.iter().map(PathBuf::as_path)).collect();
        let weights = weight_files(&model.file);
        let place = |file: PathBuf| {
            let path = roots.iter().find_map(|root| file.strip_prefix(root).ok()?.to_str());
            let path = path.filter(|path| is_portable(path)).map(str::to_owned).ok_or_else(|| {
                let cause = format!("it needs {}, which is outside its folder", file.display());
                refused(cause, "move the file into the folder of the model")
            })?;
            let is_graph = file == model.file || weights.contains(&file);
            Ok(PortableFile { path, file, is_graph })
        };
        // Other versions, and their weights, are not part of it.
        let is_used = |file: &PathBuf| !is_onnx(file) || *file == model.file;
        let (files, unused): (Vec<PathBuf>, Vec<PathBuf>) = self.files(text).into_iter().partition(is_used);
        let theirs: Vec<PathBuf> = unused.iter().flat_map(|file| weight_files(file)).collect();
        let files = files.into_iter().filter(|file| !theirs.contains(file) || weights.contains(file));
        let mut files = files.map(place).collect::<Result<Vec<_>, Diagnosis>>()?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let graph = files.iter().find(|file| file.file == model.file);
        let version = graph.and_then(|graph| version_of(&graph.path));
        Ok(PortableModel { name: name.to_owned(), version, files })
    }
}

/// Returns the version to which a file in a model's folder belongs; `None` for the description and others of all versions.
pub fn version_of(path: &str) -> Option<u32> {
    path.split_once('/')?.0.parse().ok()
}

/// Whether a path is one that can be created in any folder and nowhere else: relative, of 1 to 1,024 bytes, with neither `..` nor hidden
/// names.
pub fn is_portable(path: &str) -> bool {
    let is_plain = |part: Component<'_>| match part {
        Component::Normal(name) => name.to_str().is_some_and(|name| !name.starts_with('.')),
        _ => false,
    };
    let is_sane = !path.contains(|letter: char| letter.is_control() || letter == '\\');
    // `components` drops what a path need not have, as in `a//b` and `a/./b`.
    let is_normal = Path::new(path).components().collect::<PathBuf>().to_str() == Some(path);
    (1..=PATH_BYTES_MAX).contains(&path.len())
        && is_sane
        && is_normal
        && Path::new(path).components().all(is_plain)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const DESCRIPTION: &str =
        "version = 1\nname = 'm'\n[input]\nwidth = 8\nheight = 8\n[output]\nhead = 'classification'\n";

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        fs::write(path, text).expect("written");
    }

    fn paths(model: &PortableModel) -> Vec<&str> {
        model.files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn a_model_has_its_newest_version_and_what_the_description_names() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let at = |path: &str| dir.path().join(path);
        write(at("models/m/model.toml"), &format!("{DESCRIPTION}labels_file = 'labels/two.txt'\n"));
        write(at("models/m/labels/two.txt"), "one\ntwo\n");
        write(at("models/m/1/model.onnx"), "old");
        write(at("models/m/3/model.onnx"), "new");
        let repository = Repository { roots: vec![at("models")], data: vec![at("data")] };
        let model = repository.portable("m").expect("portable");
        assert_eq!((model.name.as_str(), model.version), ("m", Some(3)));
        assert_eq!(paths(&model), ["3/model.onnx", "labels/two.txt", "model.toml"]);
        assert_eq!(model.files.iter().map(|file| file.is_graph).collect::<Vec<_>>(), [true, false, false]);

        let pinned =
            repository.portable(&at("models/m/1/model.onnx").display().to_string()).expect("portable");
        assert_eq!((pinned.name.as_str(), pinned.version), ("m", Some(1)));
        assert_eq!(paths(&pinned), ["1/model.onnx", "labels/two.txt", "model.toml"]);
    }

    #[test]
    fn a_model_that_needs_other_files_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let at = |path: &str| dir.path().join(path);
        let named = |file: &str| {
            DESCRIPTION.replace("[input]", &format!("file = '{file}'\n[input]")) + "classes = 2\n"
        };
        let repository = Repository { roots: vec![at("models")], data: vec![at("data")] };
        write(at("models/d/model.toml"), &named("nets/d.onnx"));
        write(at("data/nets/d.onnx"), "graph");
        let model = repository.portable("d").expect("portable");
        assert_eq!((model.version, paths(&model)), (None, vec!["model.toml", "nets/d.onnx"]));

        write(at("models/o/model.toml"), &named("../../other/o.onnx"));
        write(at("other/o.onnx"), "graph");
        let why = repository.portable("o").expect_err("outside").to_string();
        assert!(why.contains("o.onnx, which is outside its folder"), "{why}");

        write(at("lone/1/model.onnx"), "graph");
        let lone = at("lone/1/model.onnx").display().to_string();
        let why = repository.portable(&lone).expect_err("undescribed").to_string();
        assert!(why.contains("no model.toml"), "{why}");
    }

    #[test]
    fn portable_paths_stay_in_their_folder() {
        for path in ["model.toml", "3/model.onnx", "labels/coco 80.txt", "a/b/c"] {
            assert!(is_portable(path), "{path}");
        }
        let long = "x".repeat(PATH_BYTES_MAX + 1);
        for path in
            ["", "/etc/passwd", "..", "a/../b", "./a", "a//b", "a/", ".hidden", "a/.b", "a\\b", "a\nb", &long]
        {
            assert!(!is_portable(path), "{path}");
        }
    }
}
