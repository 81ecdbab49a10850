//! Resources of running boards on this machine: a folder, emulators, and a network namespace, all with one name. They
//! are removed when the boards end, even if their owner was killed.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::parts::sources;

const PREFIX: &str = "orinoco-boards-";
const LOCK: &str = "owner.lock";
/// Folder of a run that its boards can read, but not write.
pub(crate) const SHARED: &str = "shared";

/// Folder of one set of running boards. Dropping it ends and removes everything that belongs to the set.
#[derive(Debug)]
pub(crate) struct Run {
    folder: PathBuf,
    /// Lock that the owner holds. If it is free, the owner has died, and the folder can be removed.
    _lock: File,
    /// Script that cleans up when its standard input ends: in `drop`, or when this process dies.
    undertaker: Child,
}

impl Run {
    /// Creates a folder with a unique name, after removing the folders of earlier runs whose owner has died.
    pub(crate) fn new() -> Result<Self> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let base = std::env::temp_dir();
        clear_left(&base)?;
        let name = format!("{PREFIX}{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
        let folder = base.join(&name);
        // It is locked before it gets its final name; otherwise another process could find it unlocked and remove it.
        let early = base.join(format!(".{name}"));
        fs::create_dir_all(early.join(SHARED)).with_context(|| format!("making {}", early.display()))?;
        let lock = File::create(early.join(LOCK))?;
        lock.lock()?;
        fs::rename(&early, &folder)?;
        let undertaker = undertaker(&folder, Stdio::piped())?;
        Ok(Self { folder, _lock: lock, undertaker })
    }

    /// Returns the path of a file in the folder. The folder's path is short, because the names of sockets must be
    /// short.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the folder that the boards can read.
    pub(crate) fn shared(&self) -> PathBuf {
        self.file(SHARED)
    }

    /// Returns the folder of the run.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        drop(self.undertaker.stdin.take());
        let _ = self.undertaker.wait();
    }
}

/// Returns the name of the run's network namespace, which exists only if its boards have a bridge.
pub(crate) fn namespace(folder: &Path) -> &str {
    folder.file_name().and_then(|name| name.to_str()).expect("runs have plain names")
}

/// Starts the script that cleans up after a run.
fn undertaker(folder: &Path, stdin: Stdio) -> Result<Child> {
    Command::new(sources().join("undertaker.sh"))
        .arg(folder)
        .stdin(stdin)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0) // or Ctrl-C would end it too
        .spawn()
        .context("starting undertaker.sh")
}

/// Removes runs of this user whose owner died together with its cleanup script.
fn clear_left(base: &Path) -> Result<()> {
    let ours = rustix::process::getuid().as_raw();
    for entry in fs::read_dir(base)? {
        let path = entry?.path();
        let named =
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX));
        // The folder may disappear at any moment, because its own cleanup script may run.
        let left = named
            && path.metadata().is_ok_and(|metadata| metadata.uid() == ours)
            && File::open(path.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok());
        if left {
            undertaker(&path, Stdio::null())?.wait()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_leaves_nothing() {
        let run = Run::new().expect("made");
        let folder = run.folder().to_owned();
        assert!(folder.is_dir());
        clear_left(folder.parent().expect("it has one")).expect("cleared");
        assert!(folder.is_dir(), "a run with an owner stays");
        drop(run);
        assert!(!folder.exists());
    }

    #[test]
    fn what_a_dead_owner_left_is_cleared() {
        let base = tempfile::tempdir().expect("a temporary folder");
        let left = base.path().join(format!("{PREFIX}1-0"));
        fs::create_dir(&left).expect("made");
        File::create(left.join(LOCK)).expect("made");
        clear_left(base.path()).expect("cleared");
        assert!(!left.exists());
    }
}
