//! Types and readers that all layouts of a dataset share.

use std::io;
use std::path::{Path, PathBuf};

use orinoco_config::{FileKind, ReadError};
use orinoco_core::{Diagnosis, codes};

/// File extensions of images.
const IMAGE_EXTENSIONS: [&str; 4] = ["jpg", "jpeg", "png", "webp"];

/// Lists of classes, rows of labels and tracks. A whole challenge of tracks has some 10 MiB.
pub(crate) const TABLES: FileKind = FileKind {
    noun: "a table of labels",
    bytes_max: 256 << 20,
    code: &codes::DATASET,
    next: "check the file",
};
/// COCO's annotations of a training set are 450 MiB.
pub(super) const ANNOTATIONS: FileKind =
    FileKind { noun: "COCO's annotations", bytes_max: 2 << 30, ..TABLES };

/// The class names of `classes.txt`, one a line; none where there is no such file.
pub(super) fn class_names(dir: &Path) -> Result<Vec<String>, ReadError> {
    let file = dir.join("classes.txt");
    let text = if file.exists() { TABLES.read_text(&file)? } else { String::new() };
    Ok(text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect())
}

/// Labelled set of images.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// Layout of the dataset's files.
    pub kind: DatasetKind,
    /// Class names by index, where the dataset has them.
    pub classes: Vec<String>,
    /// Images of the set, by name.
    pub items: Vec<Item>,
}

/// Layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetKind {
    /// `images/` and `labels/*.txt` with rows of `class cx cy w h`, as fractions of the image.
    Yolo,
    /// `instances.json` and `images/`.
    Coco,
    /// A folder for each class.
    ClassFolders,
    /// `labels.csv` with rows of `file,label`.
    ClassTable,
    /// `images/` and `masks/*.png`, whose values are class ids.
    Masks,
}

/// Labelled image.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// File of the image.
    pub image: PathBuf,
    /// Labels of the image.
    pub labels: Labels,
}

/// Labels of one image.
#[derive(Clone, Debug, PartialEq)]
pub enum Labels {
    /// Objects.
    Boxes(Vec<LabelledBox>),
    /// One class, by index.
    Class(usize),
    /// The file with each pixel's class.
    Mask(PathBuf),
}

/// Labelled object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabelledBox {
    /// Class of the object, by index.
    pub class: usize,
    /// Left, top, width, height in pixels.
    pub bounds: [f64; 4],
    /// Square pixels.
    pub area: f64,
    /// Whether it stands for many.
    pub crowd: bool,
}

/// Folder that cannot be listed.
#[derive(Debug)]
pub struct FolderError {
    /// Path of the folder.
    pub dir: PathBuf,
    /// Error of the file system.
    pub error: io::Error,
}

impl FolderError {
    pub(crate) fn new(dir: &Path, error: io::Error) -> Self {
        Self { dir: dir.to_owned(), error }
    }
}

impl From<FolderError> for Diagnosis {
    fn from(FolderError { dir, error }: FolderError) -> Self {
        Self::new(&codes::FILE_MISSING, dir.display(), error, "check the folder")
    }
}

/// Returns the image files in `dir`, sorted by name.
pub fn list_images(dir: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let entries = std::fs::read_dir(dir).map_err(|error| FolderError::new(dir, error))?;
    let is_image = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| IMAGE_EXTENSIONS.contains(&extension.to_ascii_lowercase().as_str()))
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_image).collect();
    found.sort();
    Ok(found)
}
