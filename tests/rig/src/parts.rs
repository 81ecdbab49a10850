//! Parts of an emulated board (QEMU, kernel, root file system, initrd). A script of this folder makes each of them
//! once, and the user's cache keeps it.
//!
//! The name of a part's folder contains a hash of its sources, so a changed script makes a new part, and an old one is
//! never used in its place. A part is made under another name, and renamed when it is complete. Another process that
//! needs it meanwhile waits for a lock.

#![expect(clippy::disallowed_methods, reason = "it waits for real processes and boards")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Unavailable;

/// Exit code of a script if this machine cannot make the part (EX_UNAVAILABLE of sysexits.h).
const UNAVAILABLE: i32 = 69;

/// Time after which unused parts are removed: 30 days.
const UNUSED_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// Boot flavour of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    /// A shell script as pid 1 and dropbear for ssh: boots in 4 s.
    Dropbear,
    /// systemd, udev, D-Bus and OpenSSH, as on boards in the field: boots in about 15 s.
    Systemd,
}

impl Flavour {
    /// Returns the name in scripts and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dropbear => "dropbear",
            Self::Systemd => "systemd",
        }
    }
}

/// Parts of boards of one flavour, complete and on this machine. [`Rig::up`] starts boards.
#[derive(Clone, Debug)]
pub struct Rig {
    /// Folder with `qemu-system-aarch64`.
    pub(crate) qemu: PathBuf,
    /// Folder with `vmlinuz`.
    pub(crate) kernel: PathBuf,
    /// Folder with `root.sqfs`.
    pub(crate) root: PathBuf,
    /// Folder with `initrd.img` and the ssh keys.
    pub(crate) initrd: PathBuf,
    pub(crate) flavour: Flavour,
}

impl Rig {
    /// Finds the parts in the cache, and makes missing ones: this takes about a minute with an empty cache, else no
    /// time. Fails with [`Unavailable`] if Debian's packages or a tool are missing.
    pub fn build(flavour: Flavour) -> Result<Self> {
        let store = store()?;
        fs::create_dir_all(&store).with_context(|| format!("making {}", store.display()))?;
        let part = |name, scripts| Part { name, scripts, more: &[], from: &[], flavour };
        let (qemu, rest) = std::thread::scope(|scope| {
            // QEMU does not depend on the other parts, so it is made in parallel.
            let qemu = scope.spawn(|| part("qemu", &["qemu.sh"]).find_or_make(&store));
            let rest = || -> Result<[PathBuf; 3]> {
                let kernel = part("kernel", &["kernel.sh", "modules.sh"]).find_or_make(&store)?;
                let root = Part { more: &["applets"], from: &[&kernel], ..part("root", &["root.sh"]) };
                let root = root.find_or_make(&store)?;
                let initrd =
                    Part { more: &["guest"], from: &[&kernel, &root], ..part("initrd", &["initrd.sh"]) };
                let initrd = initrd.find_or_make(&store)?;
                Ok([kernel, root, initrd])
            };
            let rest = rest();
            (qemu.join().expect("making a part does not panic"), rest)
        });
        let (qemu, [kernel, root, initrd]) = (qemu?, rest?);
        remove_unused(&store)?;
        Ok(Self { qemu, kernel, root, initrd, flavour })
    }
}

/// Part of a board: the scripts that make it, in order, and their inputs.
struct Part<'a> {
    name: &'a str,
    scripts: &'a [&'a str],
    /// Files and folders next to the scripts that the part contains.
    more: &'a [&'a str],
    /// Other parts that the scripts read. A part made from others differs between flavours.
    from: &'a [&'a Path],
    flavour: Flavour,
}

impl Part<'_> {
    /// Returns the part's folder in `store`, after making it if it is missing.
    fn find_or_make(&self, store: &Path) -> Result<PathBuf> {
        let folder = store.join(format!("{}-{}", self.name, self.key()?));
        // The lock is held until the function returns; the kernel releases it if this process dies.
        let lock = File::create(folder.with_extension("lock"))?;
        lock.lock().with_context(|| format!("waiting for {}", folder.display()))?;
        if !folder.is_dir() {
            let unfinished = folder.with_extension("part");
            if unfinished.exists() {
                fs::remove_dir_all(&unfinished)?;
            }
            fs::create_dir(&unfinished)?;
            self.make(store, &unfinished)?;
            fs::rename(&unfinished, &folder)?;
        }
        File::open(&folder)?.set_modified(SystemTime::now())?;
        Ok(folder)
    }

    /// Executes the scripts of the part.
    fn make(&self, store: &Path, out: &Path) -> Result<()> {
        for script in self.scripts {
            let mut command = Command::new(sources().join(script));
            command.arg(out).args(self.from).env("APT", store.join("apt"));
            if !self.from.is_empty() {
                command.arg(self.flavour.name());
            }
            // Standard output of the scripts is progress for people, so it goes to standard error.
            let output = command
                .stdin(Stdio::null())
                .stdout(std::io::stderr())
                .output()
                .with_context(|| format!("starting {script}"))?;
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            match output.status.code() {
                Some(0) => {}
                Some(UNAVAILABLE) => return Err(Unavailable(said).into()),
                _ => bail!("{script} failed: {said}"),
            }
        }
        Ok(())
    }

    /// Returns a short hash of everything that the part is made from.
    fn key(&self) -> Result<String> {
        let mut hash = Sha256::new();
        for name in ["common.sh"].iter().chain(self.scripts).chain(self.more) {
            add_files(&mut hash, &sources().join(name))?;
        }
        for part in self.from {
            hash.update(part.file_name().expect("parts have names").as_encoded_bytes());
            hash.update(self.flavour.name());
        }
        Ok(hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Adds the files at and under `path` to a hash, with their names, in order.
fn add_files(hash: &mut Sha256, path: &Path) -> Result<()> {
    if path.is_dir() {
        let entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
        let mut entries = entries.collect::<std::io::Result<Vec<PathBuf>>>()?;
        entries.sort();
        return entries.iter().try_for_each(|entry| add_files(hash, entry));
    }
    let name = path.strip_prefix(sources()).expect("sources lie in their folder");
    let content = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    for piece in [name.as_os_str().as_encoded_bytes(), &content] {
        hash.update((piece.len() as u64).to_le_bytes());
        hash.update(piece);
    }
    Ok(())
}

/// Removes parts, package lists and locks that have been unused for 30 days.
fn remove_unused(store: &Path) -> Result<()> {
    for entry in fs::read_dir(store)? {
        let path = entry?.path();
        // Another process may remove the same entry.
        let Ok(modified) = path.metadata().and_then(|metadata| metadata.modified()) else { continue };
        if modified.elapsed().is_ok_and(|age| age > UNUSED_MAX) {
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
    Ok(())
}

/// Returns the folder with the scripts and with the files that run inside a board.
pub(crate) fn sources() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the folder of all parts in the user's cache.
pub(crate) fn store() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    Ok(cache.context("set HOME or XDG_CACHE_HOME, where the boards' parts are kept")?.join("orinoco/boards"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: Part<'static> =
        Part { name: "test", scripts: &[], more: &["applets"], from: &[], flavour: Flavour::Dropbear };

    #[test]
    fn a_part_is_keyed_by_what_it_is_made_from() {
        let (kernel, other) = (Path::new("/x/kernel-1"), Path::new("/x/kernel-2"));
        let keys = [
            PART.key(),
            Part { more: &["guest"], ..PART }.key(),
            Part { from: &[kernel], ..PART }.key(),
            Part { from: &[other], ..PART }.key(),
            Part { from: &[kernel], flavour: Flavour::Systemd, ..PART }.key(),
        ]
        .map(|key| key.expect("sources can be read"));
        let unique: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(unique.len(), keys.len(), "{keys:?}");
        assert_eq!(keys[0], PART.key().expect("sources can be read"));
        // Parts that are not made from others are the same for every flavour.
        assert_eq!(keys[0], Part { flavour: Flavour::Systemd, ..PART }.key().expect("sources can be read"));
    }

    #[test]
    fn an_unfinished_part_is_made_again() {
        let store = tempfile::tempdir().expect("a temporary folder");
        let name = format!("test-{}", PART.key().expect("sources can be read"));
        let unfinished = store.path().join(format!("{name}.part"));
        fs::create_dir(&unfinished).expect("made");
        fs::write(unfinished.join("half"), "").expect("written");
        let folder = PART.find_or_make(store.path()).expect("made");
        assert_eq!(folder, store.path().join(name));
        assert_eq!(fs::read_dir(&folder).expect("there").count(), 0);
        assert!(!unfinished.exists());
    }
}
