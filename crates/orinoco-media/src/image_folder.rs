//! Lists the images of a folder in natural order.

use std::cmp::Ordering;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use orinoco_core::{Diagnosis, codes};
use orinoco_uri::is_image_name;

use crate::local_file::{file_cause, file_next};

/// Maximum number of images in a folder. Their names are held in memory, about 100 bytes each.
pub(crate) const FOLDER_IMAGES_MAX: usize = 1_000_000;

/// Reason why a folder gives no list of images.
#[derive(Debug)]
pub(crate) enum FolderError {
    /// There is no such folder.
    Missing(PathBuf),
    /// Something else is at the path.
    NotAFolder,
    /// The folder is there and cannot be read.
    Unreadable(io::Error),
    /// Reading failed after the folder was opened.
    Broken(io::Error),
    /// The folder has more than [`FOLDER_IMAGES_MAX`] images.
    TooMany,
    /// The folder has no image.
    Empty,
}

/// Lists the images of a folder, in the natural order of their names. Hidden files, subfolders and other files are left
/// out.
pub(crate) fn list_images(folder: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let entries = fs::read_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::NotADirectory => FolderError::NotAFolder,
        io::ErrorKind::NotFound => FolderError::Missing(folder.to_owned()),
        _ => FolderError::Unreadable(error),
    })?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(FolderError::Broken)?.file_name();
        if is_image_name(Path::new(&name)) && !name.as_bytes().starts_with(b".") {
            names.push(name);
        }
        if names.len() > FOLDER_IMAGES_MAX {
            return Err(FolderError::TooMany);
        }
    }
    if names.is_empty() {
        return Err(FolderError::Empty);
    }
    names.sort_by(|left, right| natural_order(left.as_bytes(), right.as_bytes()));
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

impl FolderError {
    /// Converts the error to a fault of the source that is called `shown` in messages.
    pub(crate) fn about(&self, shown: &str) -> Diagnosis {
        let fault = |cause: &str, next: &str| Diagnosis::new(&codes::FILE_MISSING, shown, cause, next);
        match self {
            Self::Missing(folder) => fault("there is no such folder", file_next(folder)),
            Self::NotAFolder => fault("it is not a folder", "leave out the / at its end, or name a folder"),
            Self::Unreadable(error) => fault(&file_cause(error), "allow this user to read it"),
            Self::Broken(error) => fault(&error.to_string(), "check the disk it is on"),
            Self::TooMany => fault(
                &format!("it has more than {FOLDER_IMAGES_MAX} images"),
                "split it into several folders",
            ),
            Self::Empty => fault(
                "the folder has no PNG, JPEG or WebP image",
                "name a video file, an image, or a folder of images",
            ),
        }
    }
}

/// Compares names in natural order: `img2` before `img10`. Among equal numbers, the one with more zeros comes later.
fn natural_order(left: &[u8], right: &[u8]) -> Ordering {
    let (mut a, mut b) = (left, right);
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        if x.is_ascii_digit() && y.is_ascii_digit() {
            let (number, other) = (take_number(&mut a), take_number(&mut b));
            let order = number.len().cmp(&other.len()).then_with(|| number.cmp(other));
            if order != Ordering::Equal {
                return order;
            }
        } else if x == y {
            (a, b) = (&a[1..], &b[1..]);
        } else {
            return x.cmp(y);
        }
    }
    // One name is the beginning of the other, or they differ only in leading zeros.
    a.len().cmp(&b.len()).then_with(|| left.len().cmp(&right.len())).then_with(|| left.cmp(right))
}

/// Removes the digits at the start of `text`, and returns them without leading zeros.
fn take_number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(length);
    *text = rest;
    &digits[digits.iter().take_while(|byte| **byte == b'0').count()..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_as_people_count() {
        let mut names = [
            "b",
            "img10.png",
            "img2.png",
            "img02.png",
            "img2a.png",
            "a",
            "",
            "img002.png",
            "img99999999999999999999.png",
        ];
        names.sort_by(|a, b| natural_order(a.as_bytes(), b.as_bytes()));
        let ordered = [
            "",
            "a",
            "b",
            "img2.png",
            "img02.png",
            "img002.png",
            "img2a.png",
            "img10.png",
            "img99999999999999999999.png",
        ];
        assert_eq!(names, ordered);
    }
}
