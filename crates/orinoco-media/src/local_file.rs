//! Checks whether a local file can be read.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use orinoco_core::{Diagnosis, codes};

/// Checks that `path` is a file that can be read now.
pub(crate) fn check_file(path: &Path, shown: &str) -> Result<(), Diagnosis> {
    let fault = |cause: &str, next: &str| Err(Diagnosis::new(&codes::FILE_MISSING, shown, cause, next));
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return fault(&file_cause(&error), file_next(path)),
    };
    if metadata.is_dir() {
        return fault("it is a folder, not a file", "name a file in it");
    }
    if !metadata.is_file() {
        return fault("it is a device or pipe, not a file", "name a video or image file");
    }
    match File::open(path) {
        Ok(_) => Ok(()),
        Err(error) => fault(&file_cause(&error), "allow this user to read it"),
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
