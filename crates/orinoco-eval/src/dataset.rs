//! Labelled datasets in the usual folder layouts.

mod coco;
mod folders;
mod yolo;

use std::path::{Path, PathBuf};

use orinoco_config::FileKind;
use orinoco_core::{Diagnosis, WithSubject, codes};

/// File extensions of images.
const IMAGE_EXTENSIONS: [&str; 4] = ["jpg", "jpeg", "png", "webp"];

/// Lists of classes, rows of labels and tracks. The tracks of a whole challenge have some 10 MiB.
pub(crate) const TABLES: FileKind = FileKind {
    noun: "a table of labels",
    bytes_max: 256 << 20,
    code: &codes::DATASET,
    next: "check the file",
};
/// COCO's annotations of a training set are 450 MiB.
const ANNOTATIONS: FileKind = FileKind { noun: "COCO's annotations", bytes_max: 2 << 30, ..TABLES };

/// Reads the class names of `classes.txt`, one per line; none where there is no such file.
fn class_names(dir: &Path) -> Result<Vec<String>, Diagnosis> {
    let file = dir.join("classes.txt");
    let text = if file.exists() { TABLES.read_text(&file)? } else { String::new() };
    Ok(text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect())
}

/// Labelled set of images.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// Layout of the folder.
    pub kind: DatasetKind,
    /// Names of the classes by index, where the dataset has them.
    pub classes: Vec<String>,
    /// Images with their labels, by name.
    pub items: Vec<Item>,
}

/// Layout of a dataset's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetKind {
    /// YOLO: `images/` and `labels/*.txt` with rows of `class cx cy w h`, as fractions of the image's width and height.
    Yolo,
    /// COCO: `instances.json` and `images/`.
    Coco,
    /// Classification: a folder for each class.
    ClassFolders,
    /// Classification: `labels.csv` with rows of `file,label`.
    ClassTable,
    /// Segmentation: `images/` and `masks/*.png`, whose values are class ids.
    Masks,
}

/// Labelled image.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Path of the image.
    pub image: PathBuf,
    /// Labels of the image.
    pub labels: Labels,
}

/// Labels of an image.
#[derive(Clone, Debug, PartialEq)]
pub enum Labels {
    /// Labelled objects.
    Boxes(Vec<LabelledBox>),
    /// Index of the image's class.
    Class(usize),
    /// Path of the mask with each pixel's class.
    Mask(PathBuf),
}

/// Labelled object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabelledBox {
    /// Index of the class.
    pub class: usize,
    /// Left, top, width and height in pixels.
    pub bounds: [f64; 4],
    /// Area in square pixels.
    pub area: f64,
    /// Whether the box stands for a crowd of objects.
    pub crowd: bool,
}

impl Dataset {
    /// Reads the dataset in `dir`. Its layout is recognised by the files in it.
    pub fn open(dir: &Path) -> Result<Self, Diagnosis> {
        std::fs::read_dir(dir).about(&codes::FILE_MISSING, dir.display(), "name the folder of a dataset")?;
        let dataset = if let Some(instances) = coco::instances(dir) {
            coco::read(dir, &instances)?
        } else if dir.join("images").is_dir() && dir.join("masks").is_dir() {
            folders::read_masks(dir)?
        } else if dir.join("images").is_dir() && dir.join("labels").is_dir() {
            yolo::read(dir)?
        } else if dir.join("labels.csv").is_file() {
            folders::read_table(dir)?
        } else {
            folders::read_classes(dir)?
        };
        if dataset.items.is_empty() {
            return Err(unknown(dir, "no labelled picture was found in it"));
        }
        Ok(dataset)
    }

    /// Reads the classes of the pixels in `mask`, an image of 8-bit values (grey or palette indices), with its width
    /// and height.
    pub fn read_mask(mask: &Path) -> Result<(Vec<u8>, (u32, u32)), Diagnosis> {
        folders::read_mask(mask)
    }
}

fn unknown(dir: &Path, cause: &str) -> Diagnosis {
    let next = "lay it out as images/ with labels/ (YOLO), instances.json with images/ (COCO), images/ with masks/, \
                labels.csv, a folder for each class, or img1/ with gt/gt.txt (MOTChallenge)";
    Diagnosis::new(&codes::DATASET, dir.display(), cause, next)
}

/// Lists the images in `dir`, sorted by name.
pub fn pictures(dir: &Path) -> Result<Vec<PathBuf>, Diagnosis> {
    let entries = std::fs::read_dir(dir).about(&codes::FILE_MISSING, dir.display(), "check the folder")?;
    let is_picture = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| IMAGE_EXTENSIONS.contains(&extension.to_ascii_lowercase().as_str()))
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_picture).collect();
    found.sort();
    Ok(found)
}

/// Makes the fault of line `line` (from 1) of `file`.
fn bad_line(file: &Path, line: usize, cause: impl std::fmt::Display) -> Diagnosis {
    Diagnosis::new(&codes::DATASET, format!("{}:{line}", file.display()), cause, "correct that line")
}
