//! Checks of a model file that need no engine.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use orinoco_config::ReadError;
use orinoco_core::{Diagnosis, codes};

use crate::files::weight_files;
use crate::onnx::ONNX;

/// Fault of a model file that engines report badly, or not in the same words.
#[derive(Debug)]
pub enum ModelFileError {
    /// The file is missing, is not a regular file, is too large, or may not be opened.
    Open(ReadError),
    /// The file cannot be read.
    Read(io::Error),
    /// The file is empty.
    Empty,
    /// The file is a pointer of Git LFS, and the model was never fetched.
    LfsPointer,
    /// A file with weights of the model is missing, or is not a file.
    Weights {
        /// Path of the file with weights.
        path: PathBuf,
        /// Cause in one sentence.
        cause: String,
    },
}

impl ModelFileError {
    /// Returns the fault of the model `file` that a user sees.
    pub fn diagnosis(&self, file: &Path) -> Diagnosis {
        match self {
            Self::Open(error) => error.into(),
            Self::Read(why) => Diagnosis::new(&codes::FILE_MISSING, file.display(), why, ONNX.next),
            Self::Empty => unreadable(file, "the file is empty"),
            Self::LfsPointer => Diagnosis::new(
                &codes::MODEL_PARSE,
                file.display(),
                "it is a Git LFS pointer, not the model",
                "fetch the model with `git lfs pull`",
            ),
            Self::Weights { path, cause } => {
                let cause = format!("{} stores weights in this file: {cause}", file.display());
                let next = "put that file into the model's folder, with the name that it had when the model was exported";
                Diagnosis::new(&codes::FILE_MISSING, path.display(), cause, next)
            }
        }
    }
}

/// Makes the fault of a file that is not a model or is damaged. `cause` is a short sentence.
pub fn unreadable(file: &Path, cause: &str) -> Diagnosis {
    let next = "compare its size and sha256 with the original";
    Diagnosis::new(&codes::MODEL_PARSE, file.display(), cause, next)
}

/// Finds the faults of a model file that engines report badly: it is missing, not a file, empty, or was never fetched
/// from Git LFS; or a file with its weights is missing.
pub fn check_file(file: &Path) -> Result<(), ModelFileError> {
    const LFS: &[u8] = b"version https://git-lfs";
    let opened = ONNX.open(file).map_err(ModelFileError::Open)?;
    let mut head = Vec::with_capacity(LFS.len());
    opened.take(LFS.len() as u64).read_to_end(&mut head).map_err(ModelFileError::Read)?;
    match head.as_slice() {
        [] => Err(ModelFileError::Empty),
        LFS => Err(ModelFileError::LfsPointer),
        _ => check_external(file),
    }
}

/// Checks that the files with external weights exist.
fn check_external(file: &Path) -> Result<(), ModelFileError> {
    for path in weight_files(file) {
        let metadata = std::fs::metadata(&path);
        let cause = match metadata {
            Ok(metadata) if metadata.is_file() => continue,
            Ok(_) => "it is not a file".to_owned(),
            Err(why) => why.to_string(),
        };
        return Err(ModelFileError::Weights { path, cause });
    }
    Ok(())
}
