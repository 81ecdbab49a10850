//! Errors of reading a dataset, and how they become faults.

use std::fmt;
use std::io;
use std::path::PathBuf;

use image::ImageError;
use orinoco_config::ReadError;
use orinoco_core::text::count;
use orinoco_core::{Diagnosis, codes};

use super::labels::FolderError;

/// Reason why a dataset is not read.
#[derive(Debug)]
pub(super) enum DatasetError {
    /// The folder of the dataset cannot be listed.
    NotFound(PathBuf, io::Error),
    /// A folder in it cannot be listed.
    Folder(FolderError),
    /// A file of labels or classes cannot be read.
    File(ReadError),
    /// The folder has images without labels of any kind.
    NoLabels(PathBuf),
    /// The folder has no labelled image.
    Empty(PathBuf),
    /// An image of the dataset in `dir` has no mask.
    NoMask { dir: PathBuf, image: PathBuf, mask: PathBuf },
    /// A row of a file of labels, counted from 1, is wrong.
    Row { file: PathBuf, line: usize, error: RowError },
    /// The size of an image cannot be read.
    ImageSize(PathBuf, ImageError),
    /// An image that the annotations name is missing.
    NoImage(PathBuf, io::Error),
    /// The annotations are not those of COCO.
    Annotations(PathBuf, serde_json::Error),
    /// An annotation is of a category that is not in the list.
    UnknownCategory { file: PathBuf, annotation: usize, category: i64 },
}

impl From<FolderError> for DatasetError {
    fn from(error: FolderError) -> Self {
        Self::Folder(error)
    }
}

impl From<ReadError> for DatasetError {
    fn from(error: ReadError) -> Self {
        Self::File(error)
    }
}

impl From<DatasetError> for Diagnosis {
    fn from(error: DatasetError) -> Self {
        let layout = "lay it out as images/ with labels/ (YOLO), instances.json with images/ (COCO), images/ with masks/, \
                      labels.csv, a folder for each class, or img1/ with gt/gt.txt (MOTChallenge)";
        match error {
            DatasetError::NotFound(dir, error) => {
                Self::new(&codes::FILE_MISSING, dir.display(), error, "name the folder of a dataset")
            }
            DatasetError::Folder(error) => error.into(),
            DatasetError::File(error) => error.into(),
            DatasetError::NoLabels(dir) => {
                let cause = "it has images/, but no labels/, masks/ or instances.json";
                Self::new(&codes::DATASET, dir.display(), cause, layout)
            }
            DatasetError::Empty(dir) => {
                Self::new(&codes::DATASET, dir.display(), "no labelled image was found in it", layout)
            }
            DatasetError::NoMask { dir, image, mask } => {
                let cause = format!("{} has no mask {}", image.display(), mask.display());
                Self::new(&codes::DATASET, dir.display(), cause, layout)
            }
            DatasetError::Row { file, line, error } => {
                Self::new(&codes::DATASET, format!("{}:{line}", file.display()), error, "correct that line")
            }
            DatasetError::ImageSize(image, error) => {
                Self::new(&codes::SOURCE_OPEN, image.display(), error, "replace or remove the image")
            }
            DatasetError::NoImage(image, error) => {
                Self::new(&codes::FILE_MISSING, image.display(), error, "put the image there")
            }
            DatasetError::Annotations(file, error) => {
                let next = "give images, annotations and categories as COCO's instances files have them";
                Self::new(&codes::DATASET, file.display(), error, next)
            }
            DatasetError::UnknownCategory { file, annotation, category } => {
                let cause =
                    format!("annotation {annotation} is of category {category}, which is not in the list");
                Self::new(&codes::DATASET, file.display(), cause, "correct the annotation")
            }
        }
    }
}

/// Reason why a row of labels is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RowError {
    /// There is no comma between file and label.
    NoComma,
    /// There is no image of this name.
    NoImage(String),
    /// The word is not the number of a class.
    Class(String),
    /// The word is not a number.
    Number(String),
    /// The row has this number of values, which are neither a box nor a polygon.
    Values(usize),
    /// The width or the height is negative.
    NegativeSize,
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoComma => f.write_str("it has no comma between file and label"),
            Self::NoImage(name) => write!(f, "there is no image {name}"),
            Self::Class(word) => write!(f, "`{word}` is not a class number"),
            Self::Number(word) => write!(f, "`{word}` is not a number"),
            Self::Values(values) => {
                write!(f, "it has {} after the class; a box needs 4", count(*values as u64, "number"))
            }
            Self::NegativeSize => f.write_str("its width or height is negative"),
        }
    }
}
