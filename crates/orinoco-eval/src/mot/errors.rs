//! Errors of a sequence on disk, and how they become faults.

use std::io;
use std::path::{Path, PathBuf};

use orinoco_config::ReadError;
use orinoco_core::{Diagnosis, codes};

use super::sequence::RepeatedId;
use super::text::{REPEATED_NEXT, TextError};
use crate::FolderError;

/// Reason why a sequence is not opened.
#[derive(Debug)]
pub(super) enum OpenError {
    /// The folder of the sequences cannot be listed.
    NotFound(PathBuf, io::Error),
    /// The description (`seqinfo.ini`) cannot be read.
    File(ReadError),
    /// The description is not an INI file.
    Ini(PathBuf, ini::ParseError),
    /// The value of a key in the description is not a number above 0.
    Number { file: PathBuf, key: &'static str, text: String },
    /// The folder of the images cannot be listed.
    Images(FolderError),
    /// The name of an image is not a number.
    NotNumbered(PathBuf),
    /// The image has the number 0.
    FrameZero(PathBuf),
    /// The frame of the image at `path` has another image.
    TwoImages { path: PathBuf, frame: u32 },
    /// The folder has images of later frames, and none of this one.
    MissingImage { dir: PathBuf, frame: u32 },
    /// The number of frames is unknown: there are no images, and the description does not give it.
    NoLength(PathBuf),
    /// The description gives the number of frames as `said`, and there are images of `seen` frames.
    OtherLength { dir: PathBuf, seen: u32, said: u32 },
    /// The labels are not accepted.
    Labels(PathBuf, RowsError),
}

impl From<OpenError> for Diagnosis {
    fn from(error: OpenError) -> Self {
        let fault = |path: &Path, cause: &str, next: &str| {
            Diagnosis::new(&codes::DATASET, path.display(), cause, next)
        };
        match error {
            OpenError::NotFound(dir, error) => {
                Self::new(&codes::FILE_MISSING, dir.display(), error, "name the folder of a dataset")
            }
            OpenError::File(error) => error.into(),
            OpenError::Ini(file, error) => {
                let next = "correct it, or remove it to use 30 frames per second";
                fault(&file, &error.to_string(), next)
            }
            OpenError::Number { file, key, text } => {
                let cause = format!("{key} `{text}` is not a number above 0");
                fault(&file, &cause, &format!("correct {key}"))
            }
            OpenError::Images(error) => error.into(),
            OpenError::NotNumbered(path) => fault(
                &path,
                "its name is not a frame number",
                "name images by their frames, from 000001.jpg on",
            ),
            OpenError::FrameZero(path) => {
                fault(&path, "frames are counted from 1", "number the images from 000001 on")
            }
            OpenError::TwoImages { path, frame } => {
                fault(&path, &format!("frame {frame} has two images"), "take one of them away")
            }
            OpenError::MissingImage { dir, frame } => {
                fault(&dir, &format!("the image of frame {frame} is missing"), "fetch it")
            }
            OpenError::NoLength(dir) => fault(
                &dir,
                "it has neither images in img1 nor a seqinfo.ini with seqLength",
                "fetch the sequence with its images, or write seqLength",
            ),
            OpenError::OtherLength { dir, seen, said } => fault(
                &dir,
                &format!("it has frames 1 to {seen}, but seqLength in seqinfo.ini is {said}"),
                "fetch the images that are missing, or correct seqLength",
            ),
            OpenError::Labels(file, error) => error.about(&file),
        }
    }
}

/// Reason why the rows of a file are not accepted for a sequence.
#[derive(Debug)]
pub(super) enum RowsError {
    /// The file has no rows of tracks.
    Text(TextError),
    /// None of the labels, which are this many, is evaluated.
    NothingLabelled(usize),
    /// The results of a tracker are empty.
    NoResults,
    /// An object is in a frame that the sequence of `frames` frames does not have.
    BeyondEnd { id: u64, frame: u32, frames: u32 },
    /// An object of a tracker's results is of another class than the one that is evaluated.
    OtherClass { id: u64, frame: u32, class: u32 },
    /// An id of a tracker's results is twice in a frame.
    Repeated(RepeatedId),
}

impl From<TextError> for RowsError {
    fn from(error: TextError) -> Self {
        Self::Text(error)
    }
}

impl RowsError {
    /// Converts the error to a fault of `file`.
    pub(super) fn about(self, file: &Path) -> Diagnosis {
        let fault = |cause: String, next: &str| Diagnosis::new(&codes::DATASET, file.display(), cause, next);
        match self {
            Self::Text(error) => error.about(&file.display().to_string()),
            Self::NothingLabelled(rows) => {
                let cause = match rows {
                    0 => "it has no rows".to_owned(),
                    rows => format!("none of its {rows} rows is evaluated"),
                };
                fault(cause, "label pedestrians, as class 1 with a confidence that is not 0")
            }
            Self::NoResults => {
                fault("it has no rows".to_owned(), "check that the tracker finished writing it")
            }
            Self::BeyondEnd { id, frame, frames } => fault(
                format!("object {id} is in frame {frame}, but the sequence has frames 1 to {frames}"),
                "correct that row, or fetch the rest of the sequence",
            ),
            Self::OtherClass { id, frame, class } => fault(
                format!("object {id} of frame {frame} is of class {class}"),
                "remove rows of other classes: only pedestrians are evaluated",
            ),
            Self::Repeated(again) => fault(again.to_string(), REPEATED_NEXT),
        }
    }
}
