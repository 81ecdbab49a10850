//! What boards leave on this machine while they run: a folder, emulators, and a network namespace, all with one name. All
//! of it is gone when the boards are done, however their owner ended.

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
/// The folder of a run that its boards see, and may not write to.
pub(crate) const SHARED: &str = "shared";

/// The folder of one set of running boards. Dropping it ends and removes everything that belongs to it.
#[derive(Debug)]
pub(crate) struct Run {
    folder: PathBuf,
    /// Held by the owner: a folder whose lock is free is left from one that died.
    _lock: File,
    /// Cleans up once its standard input ends: in `drop`, or when this process dies.
    undertaker: Child,
}

impl Run {
    /// Makes a folder that no other run has, after clearing away what earlier ones left.
    pub(crate) fn new() -> Result<Self> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let base = std::env::temp_dir();
        clear_left(&base)?;
        let name = format!("{PREFIX}{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
        let folder = base.join(&name);
        // Locked before it has the name by which others would find it and take it for left.
        let early = base.join(format!(".{name}"));
        fs::create_dir_all(early.join(SHARED)).with_context(|| format!("making {}", early.display()))?;
        let lock = File::create(early.join(LOCK))?;
        lock.lock()?;
        fs::rename(&early, &folder)?;
        let undertaker = undertaker(&folder, Stdio::piped())?;
        Ok(Self { folder, _lock: lock, undertaker })
    }

    /// A file in the folder. Sockets among them: the path is short, as their names must be.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The folder that the boards see.
    pub(crate) fn shared(&self) -> PathBuf {
        self.file(SHARED)
    }

    /// The folder.
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

/// The network namespace of a run, if it has one.
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

/// Clears away runs of this user whose owner died together with its undertaker.
fn clear_left(base: &Path) -> Result<()> {
    let ours = rustix::process::getuid().as_raw();
    for entry in fs::read_dir(base)? {
        let path = entry?.path();
        let named =
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX));
        // It may go away at any moment, by its own undertaker.
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
