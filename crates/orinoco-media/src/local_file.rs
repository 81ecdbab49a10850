//! Checks whether a local file can be read.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use orinoco_core::{Diagnosis, codes};

/// Reason why a local file cannot be read.
#[derive(Debug)]
pub(crate) enum FileError {
    /// Nothing is found at the path: it does not exist, or a folder on the way may not be entered.
    Missing(PathBuf, io::Error),
    /// A folder is at the path.
    Folder,
    /// A device, pipe or socket is at the path.
    Special,
    /// The file is there and cannot be opened.
    Unopened(io::Error),
}

/// Checks that `path` is a file that can be read now.
pub(crate) fn check_file(path: &Path) -> Result<(), FileError> {
    let metadata = fs::metadata(path).map_err(|error| FileError::Missing(path.to_owned(), error))?;
    if metadata.is_dir() {
        return Err(FileError::Folder);
    }
    if !metadata.is_file() {
        return Err(FileError::Special);
    }
    File::open(path).map(drop).map_err(FileError::Unopened)
}

impl FileError {
    /// Converts the error to a fault of the source that is called `shown` in messages.
    pub(crate) fn about(&self, shown: &str) -> Diagnosis {
        let fault = |cause: &str, next: &str| Diagnosis::new(&codes::FILE_MISSING, shown, cause, next);
        match self {
            Self::Missing(path, error) => fault(&file_cause(error), file_next(path)),
            Self::Folder => fault("it is a folder, not a file", "name a file in it"),
            Self::Special => fault("it is a device or pipe, not a file", "name a video or image file"),
            Self::Unopened(error) => fault(&file_cause(error), "allow this user to read it"),
        }
    }
}

pub(crate) fn file_cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "this user may not read it".to_owned(),
        _ => error.to_string(),
    }
}

pub(crate) fn file_next(path: &Path) -> &'static str {
    if path.as_os_str().as_bytes().contains(&b'%') {
        "check the path; in file:// URIs %XX is an escape, in plain paths it is not"
    } else if path.is_relative() {
        "check the path, which is relative to the working folder"
    } else {
        "check the path"
    }
}
