//! A root that is a directory of this machine.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use crate::error::{FILE_BYTES_MAX, ReadErrorKind};

/// Number of symbolic links on the way to a file, as the kernel bounds it (`MAXSYMLINKS`, path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Returns the bytes of the file `path` of the root `root`.
pub(crate) fn read(root: &Path, path: &str) -> Result<Vec<u8>, ReadErrorKind> {
    let file = open(&resolve(root, path)?).map_err(|error| ReadErrorKind::from(&error))?;
    let metadata = file.metadata().map_err(|error| ReadErrorKind::from(&error))?;
    if metadata.is_dir() {
        return Err(ReadErrorKind::WrongType);
    }
    if !metadata.is_file() {
        return Err(ReadErrorKind::NotAFile);
    }
    let mut bytes = Vec::new();
    let mut bounded = file.take(FILE_BYTES_MAX + 1);
    bounded.read_to_end(&mut bytes).map_err(|error| ReadErrorKind::from(&error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ReadErrorKind::TooLarge);
    }
    Ok(bytes)
}

/// Returns the names in the folder `path`, sorted. Names that are not UTF-8 are left out: no driver makes any.
pub(crate) fn entries(root: &Path, path: &str) -> Result<Vec<String>, ReadErrorKind> {
    let entries = fs::read_dir(resolve(root, path)?).map_err(|error| ReadErrorKind::from(&error))?;
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
    let parent = resolve(root, parent)?;
    let target = fs::read_link(parent.join(path.file_name().unwrap_or_default()));
    match target {
        Ok(target) => target.into_os_string().into_string().map_err(|_| ReadErrorKind::NotText),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(ReadErrorKind::WrongType),
        Err(error) => Err(ReadErrorKind::from(&error)),
    }
}

/// Opens a file without waiting for the other end of a FIFO, and without becoming a terminal's process.
fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}

/// Returns the path on this machine to which `path` leads in the root `root`: symbolic links, also absolute ones and `..`,
/// stay inside the root, as after chroot(2). The machine's own root is left to the kernel.
fn resolve(root: &Path, path: &str) -> Result<PathBuf, ReadErrorKind> {
    if root == Path::new("/") {
        return Ok(Path::new("/").join(path));
    }
    let mut left: Vec<OsString> = components(Path::new(path));
    let mut inside = PathBuf::new();
    let mut links = 0;
    while let Some(component) = left.pop() {
        if component == ".." {
            inside.pop();
            continue;
        }
        inside.push(&component);
        let Ok(target) = fs::read_link(root.join(&inside)) else { continue };
        links += 1;
        if links > LINKS_MAX {
            return Err(ReadErrorKind::LinkLoop);
        }
        inside.pop();
        if target.is_absolute() {
            inside = PathBuf::new();
        }
        left.extend(components(&target));
    }
    Ok(root.join(inside))
}

/// Returns the names of a path and its `..`, the last one first.
fn components(path: &Path) -> Vec<OsString> {
    let named = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    });
    let mut names: Vec<OsString> = named.collect();
    names.reverse();
    names
}
