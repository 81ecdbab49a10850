//! Resolution of paths inside a root.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use crate::error::ReadErrorKind;

/// Number of symbolic links on the way to a file, as the kernel bounds it (`MAXSYMLINKS`, path_resolution(7)).
pub(crate) const LINKS_MAX: usize = 40;

/// Returns the path, relative to the root, to which `path` leads: symbolic links, also absolute ones and `..`, stay inside
/// the root, as after chroot(2). `link` returns the target of a path that is a link, and `None` for any other.
pub(crate) fn resolve(
    path: &Path,
    mut link: impl FnMut(&Path) -> Option<PathBuf>,
) -> Result<PathBuf, ReadErrorKind> {
    let mut left: Vec<OsString> = components(path);
    let mut inside = PathBuf::new();
    let mut links = 0;
    while let Some(component) = left.pop() {
        if component == ".." {
            inside.pop();
            continue;
        }
        inside.push(&component);
        let Some(target) = link(&inside) else { continue };
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
    Ok(inside)
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
