//! The user's cache, from which a library is loaded: nobody else may have written it.

use std::env;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The user's cache folder of Orinoco: `$XDG_CACHE_HOME/orinoco`, else `$HOME/.cache/orinoco`.
///
/// What lies in it is used only where the user or root owns it, and nobody else can write it, up to the folder itself: an
/// engine's library is run as the user, and measured sizes decide what is loaded. There is no folder for everybody, such
/// as one in `/tmp`, which whoever is first would own.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

/// Reason for which there is no cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheUnavailable {
    /// The environment names no folder.
    Unnamed,
    /// Somebody else owns it or can write it; a sentence.
    Untrusted(String),
}

impl std::fmt::Display for CacheUnavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unnamed => f.write_str("no cache folder: set HOME, or XDG_CACHE_HOME to an absolute path"),
            Self::Untrusted(why) => f.write_str(why),
        }
    }
}

impl Cache {
    /// The cache of this process's user, which need not exist yet.
    ///
    /// # Errors
    /// Returns an error where none is named, or its folder is not trusted.
    pub fn of_process() -> Result<Self, CacheUnavailable> {
        Self::named(env::var_os("XDG_CACHE_HOME").map(PathBuf::from), env::var_os("HOME").map(PathBuf::from))
    }

    fn named(xdg_cache_home: Option<PathBuf>, home: Option<PathBuf>) -> Result<Self, CacheUnavailable> {
        // The XDG specification wants relative paths ignored.
        let base = xdg_cache_home.filter(|path| path.is_absolute());
        let home = home.filter(|path| path.is_absolute());
        let base = base.or_else(|| Some(home?.join(".cache"))).ok_or(CacheUnavailable::Unnamed)?;
        Self::at(base.join("orinoco"))
    }

    pub(crate) fn at(folder: PathBuf) -> Result<Self, CacheUnavailable> {
        let cache = Self { folder };
        cache.check(&cache.folder).map_err(CacheUnavailable::Untrusted)?;
        Ok(cache)
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Checks that the user or root owns `path`, which lies in the cache, and each folder on the way to it, and that nobody
    /// else can write them. What does not exist is no danger.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self, path: &Path) -> Result<(), String> {
        let below =
            path.strip_prefix(&self.folder).map_err(|_| format!("{} is not in the cache", path.display()))?;
        let mut path = self.folder.clone();
        check_one(&path)?;
        for part in below {
            path.push(part);
            check_one(&path)?;
        }
        Ok(())
    }

    /// Makes a folder in the cache, and those on the way to it, for the user alone.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn make_folder(&self, folder: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)
    }
}

fn check_one(path: &Path) -> Result<(), String> {
    // A link may lead anywhere its owner likes, so both ends count. The mode of a link itself means nothing.
    for metadata in [fs::symlink_metadata(path), fs::metadata(path)].into_iter().flatten() {
        if let Some(why) = distrust(&metadata) {
            let shown = path.display();
            return Err(format!("cache {shown} is ignored: {why}"));
        }
    }
    Ok(())
}

/// Why somebody else may have written what has this metadata.
fn distrust(metadata: &Metadata) -> Option<String> {
    /// Writable by the group or by others.
    const OTHERS_WRITE: u32 = 0o022;
    let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != user && owner != 0 {
        let expected = if user == 0 { "root".to_owned() } else { format!("user {user} or root") };
        return Some(format!("owned by user {owner}, expected {expected} (chown it)"));
    }
    let others_write = !metadata.is_symlink() && metadata.mode() & OTHERS_WRITE != 0;
    others_write.then(|| "others can write it (chmod go-w)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    /// Nobody, on Debian and elsewhere.
    const OTHER_USER: u32 = 65534;

    fn named(xdg: Option<&str>, home: Option<&str>) -> Result<PathBuf, CacheUnavailable> {
        Cache::named(xdg.map(PathBuf::from), home.map(PathBuf::from)).map(|cache| cache.folder)
    }

    #[test]
    fn there_is_no_cache_for_everybody() {
        for (xdg, home) in [(None, None), (Some("relative"), None), (None, Some("")), (Some(""), Some("."))] {
            assert_eq!(named(xdg, home), Err(CacheUnavailable::Unnamed), "{xdg:?} {home:?}");
        }
        let why = "no cache folder: set HOME, or XDG_CACHE_HOME to an absolute path";
        assert_eq!(CacheUnavailable::Unnamed.to_string(), why);
        let path = |path: &str| Ok(PathBuf::from(path));
        assert_eq!(named(Some("/no/x"), Some("/no/h")), path("/no/x/orinoco"));
        assert_eq!(named(Some("x"), Some("/no/h")), path("/no/h/.cache/orinoco"));
    }

    /// A cache with a file in it, and what is said of the file.
    fn check(spoil: impl FnOnce(&Path)) -> Result<(), String> {
        let dir = tempfile::tempdir().expect("temporary folder");
        let folder = dir.path().join("orinoco");
        let cache = Cache { folder: folder.clone() };
        cache.make_folder(&folder.join("memory")).expect("made");
        let file = folder.join("memory/key.json");
        fs::write(&file, "{}").expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("set");
        spoil(&folder);
        let shown = format!("{}/", dir.path().display());
        let named = Cache::at(folder).map_err(|why| why.to_string());
        named.and_then(|cache| cache.check(&file)).map_err(|why| why.replace(&shown, ""))
    }

    fn mode(path: PathBuf, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
    }

    #[test]
    fn what_others_can_write_is_not_used() {
        let others_write =
            |path: &str| Err(format!("cache {path} is ignored: others can write it (chmod go-w)"));
        assert_eq!(check(|_| ()), Ok(()));
        assert_eq!(check(|folder| mode(folder.to_owned(), 0o777)), others_write("orinoco"));
        assert_eq!(check(|folder| mode(folder.to_owned(), 0o1777)), others_write("orinoco"));
        assert_eq!(check(|folder| mode(folder.join("memory"), 0o770)), others_write("orinoco/memory"));
        assert_eq!(
            check(|folder| mode(folder.join("memory/key.json"), 0o666)),
            others_write("orinoco/memory/key.json")
        );
        let shared_elsewhere = check(|folder| {
            fs::rename(folder, folder.with_extension("real")).expect("moved");
            mode(folder.with_extension("real"), 0o777);
            symlink("orinoco.real", folder).expect("linked");
        });
        assert_eq!(shared_elsewhere, others_write("orinoco"));
    }

    #[test]
    #[allow(clippy::print_stdout, reason = "tests say what they skip")]
    fn what_another_user_owns_is_not_used_by_root_either() {
        let user = rustix::process::geteuid().as_raw();
        if user != 0 {
            println!(
                "skipped: what_another_user_owns_is_not_used_by_root_either: only root can give a file away"
            );
            return;
        }
        for path in ["", "memory", "memory/key.json"] {
            let why = check(|folder| {
                let path = if path.is_empty() { folder.to_owned() } else { folder.join(path) };
                chown(path, Some(OTHER_USER), None).expect("given away");
            });
            let why = why.expect_err("another user owns it");
            assert!(
                why.ends_with("is ignored: owned by user 65534, expected root (chown it)"),
                "{path}: {why}"
            );
        }
        let link = check(|folder| {
            fs::rename(folder, folder.with_extension("real")).expect("moved");
            symlink("orinoco.real", folder).expect("linked");
            std::os::unix::fs::lchown(folder, Some(OTHER_USER), None).expect("given away");
        });
        assert!(link.is_err(), "another user's link");
    }

    #[test]
    fn folders_are_made_for_the_user_alone() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let cache = Cache::at(dir.path().join(".cache/orinoco")).expect("nothing is there yet");
        cache.make_folder(&cache.folder().join("memory")).expect("made");
        for folder in [cache.folder().join("memory"), cache.folder().to_owned()] {
            assert_eq!(fs::metadata(&folder).expect("there").mode() & 0o777, 0o700, "{}", folder.display());
        }
    }
}
