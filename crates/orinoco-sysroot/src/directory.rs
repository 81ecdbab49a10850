//! A root that is a directory of this machine.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::ReadErrorKind;
use crate::path::resolve;

/// Returns the bytes of the file `path` of the root `root`, at most `bytes_max` of them.
pub(crate) fn read(root: &Path, path: &str, bytes_max: u64) -> Result<Vec<u8>, ReadErrorKind> {
    let mut bytes = Vec::new();
    let mut bounded = open(root, path)?.take(bytes_max + 1);
    bounded.read_to_end(&mut bytes).map_err(|error| ReadErrorKind::from(&error))?;
    if bytes.len() as u64 > bytes_max {
        return Err(ReadErrorKind::TooLarge);
    }
    Ok(bytes)
}

/// Opens the regular file `path` of the root `root`, without waiting for the other end of a FIFO, and without becoming a
/// terminal's process.
pub(crate) fn open(root: &Path, path: &str) -> Result<File, ReadErrorKind> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits() as i32);
    let file = options.open(inside(root, path)?).map_err(|error| ReadErrorKind::from(&error))?;
    let metadata = file.metadata().map_err(|error| ReadErrorKind::from(&error))?;
    if metadata.is_dir() {
        return Err(ReadErrorKind::WrongType);
    }
    if !metadata.is_file() {
        return Err(ReadErrorKind::NotAFile);
    }
    Ok(file)
}

/// Returns the names in the folder `path`, sorted. Names that are not UTF-8 are left out: no driver makes any.
pub(crate) fn entries(root: &Path, path: &str) -> Result<Vec<String>, ReadErrorKind> {
    let entries = fs::read_dir(inside(root, path)?).map_err(|error| ReadErrorKind::from(&error))?;
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
    let names: io::Result<Vec<Option<String>>> = names.collect();
    let mut names: Vec<String> =
        names.map_err(|error| ReadErrorKind::from(&error))?.into_iter().flatten().collect();
    names.sort();
    Ok(names)
}

/// Returns the target of the symbolic link `path`, as it is written there.
pub(crate) fn link(root: &Path, path: &str) -> Result<String, ReadErrorKind> {
    let path = Path::new(path);
    let parent = path.parent().and_then(Path::to_str).unwrap_or("/");
    let parent = inside(root, parent)?;
    let target = fs::read_link(parent.join(path.file_name().unwrap_or_default()));
    match target {
        Ok(target) => target.into_os_string().into_string().map_err(|_| ReadErrorKind::NotText),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(ReadErrorKind::WrongType),
        Err(error) => Err(ReadErrorKind::from(&error)),
    }
}

/// Returns the path on this machine to which `path` leads in the root `root`. The machine's own root is left to the kernel.
pub(crate) fn inside(root: &Path, path: &str) -> Result<PathBuf, ReadErrorKind> {
    if root == Path::new("/") {
        return Ok(Path::new("/").join(path));
    }
    let relative = resolve(Path::new(path), |inside| fs::read_link(root.join(inside)).ok())?;
    Ok(root.join(relative))
}
