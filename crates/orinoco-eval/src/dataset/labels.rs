//! Types and readers that all layouts of a dataset share.

use std::path::{Path, PathBuf};

use orinoco_config::FileKind;
use orinoco_core::{Diagnosis, WithSubject, codes};

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
pub(super) fn class_names(dir: &Path) -> Result<Vec<String>, Diagnosis> {
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

pub(super) fn unknown(dir: &Path, cause: &str) -> Diagnosis {
    let next = "lay it out as images/ with labels/ (YOLO), instances.json with images/ (COCO), images/ with masks/, \
                labels.csv, a folder for each class, or img1/ with gt/gt.txt (MOTChallenge)";
    Diagnosis::new(&codes::DATASET, dir.display(), cause, next)
}

/// Returns the image files in `dir`, sorted by name.
pub fn list_images(dir: &Path) -> Result<Vec<PathBuf>, Diagnosis> {
    let entries = std::fs::read_dir(dir).about(&codes::FILE_MISSING, dir.display(), "check the folder")?;
    let is_image = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| IMAGE_EXTENSIONS.contains(&extension.to_ascii_lowercase().as_str()))
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_image).collect();
    found.sort();
    Ok(found)
}

/// A fault of line `line` (from 1) of `file`.
pub(super) fn bad_line(file: &Path, line: usize, cause: impl std::fmt::Display) -> Diagnosis {
    Diagnosis::new(&codes::DATASET, format!("{}:{line}", file.display()), cause, "correct that line")
}
