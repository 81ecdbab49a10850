//! Post-mortems: a dump of the run in a file when a lane is stuck, fails or panics, and when native code crashes. The control
//! socket gives one on request.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orinoco_api::Dump;
use orinoco_config::{Existing, write_whole};
use orinoco_runtime::Monitor;

use crate::crash::Crash;
use crate::journal::{self, Level};
use crate::state::state_directory;

/// Maximum number of dumps that are kept; the oldest are removed. Each is about 2 MiB.
const DUMPS_MAX: usize = 8;
/// Folder of the dumps, in the daemon's state directory.
const FOLDER: &str = "dumps";

/// Writer of post-mortems.
#[derive(Clone)]
pub(crate) struct PostMortem {
    monitor: Monitor,
    /// Folder for the files; `None` where systemd gives the daemon no state directory.
    folder: Option<PathBuf>,
    /// Number of the latest event that was looked at.
    seen: u64,
    was_healthy: bool,
    /// Whether the latest dump of this run is that of a lane that is stuck.
    is_stuck: Arc<AtomicBool>,
}

impl PostMortem {
    /// Creates a writer for the daemon's state directory.
    pub(crate) fn new(monitor: Monitor) -> Self {
        let folder = state_directory().map(|state| state.join(FOLDER));
        Self { monitor, folder, seen: 0, was_healthy: true, is_stuck: Arc::default() }
    }

    /// Writes a dump if a lane has got stuck, or has failed, since the last check.
    pub(crate) fn check(&mut self) {
        let events = self.monitor.events_after(self.seen);
        self.seen = events.last().map_or(self.seen, |event| event.number);
        let has_failed = events.iter().any(|event| ["lane-failed", "lane-restarted"].contains(&&*event.kind));
        let was_healthy = std::mem::replace(&mut self.was_healthy, self.monitor.is_healthy());
        match (has_failed, was_healthy && !self.was_healthy) {
            (true, _) => self.write("crash", None),
            (false, true) => self.write("stuck", None),
            (false, false) => {}
        }
    }

    /// Writes a dump because the process is about to end by a signal. None if that comes from outside after the dump of a
    /// stuck lane, whose watchdog is not fed: systemd's has sent it then.
    pub(crate) fn write_crash(&self, crash: Crash) {
        let text = crash.text();
        journal::log(Level::Error, &format!("crashed: {text}"));
        if !(crash.is_from_outside() && self.is_stuck.load(Ordering::Relaxed)) {
            self.write("crash", Some(&text));
        }
    }

    fn write(&self, reason: &str, crash: Option<&str>) {
        self.is_stuck.store(reason == "stuck", Ordering::Relaxed);
        let Some(folder) = &self.folder else { return };
        let dump = Dump { crash: crash.map(str::to_owned), ..self.monitor.dump(reason) };
        let stuck = dump.stuck.iter().map(|part| format!("{} in {}", part.part, part.stage));
        let stuck = stuck.collect::<Vec<_>>().join(", ");
        let path = folder.join(format!("{}-{reason}.json", dump.written_unix_s as u64));
        let text = serde_json::to_string(&dump).expect("a dump has only text keys and plain numbers");
        let written =
            fs::create_dir_all(folder).and_then(|()| write_whole(&path, text.as_bytes(), Existing::Replace));
        match written.and_then(|()| remove_oldest(folder)) {
            Ok(()) if stuck.is_empty() => journal::log(Level::Error, &format!("dump={}", path.display())),
            Ok(()) => journal::log(Level::Error, &format!("dump={} stuck: {stuck}", path.display())),
            Err(why) => journal::log(Level::Warning, &format!("dump={} not written: {why}", path.display())),
        }
    }
}

/// Removes the oldest dumps, by their names, which begin with the time.
fn remove_oldest(folder: &Path) -> io::Result<()> {
    let names = fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut dumps: Vec<String> = names.filter(|name| name.ends_with(".json")).collect();
    dumps.sort();
    let too_many = dumps.len().saturating_sub(DUMPS_MAX);
    dumps.iter().take(too_many).try_for_each(|name| fs::remove_file(folder.join(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_dumps_are_kept() {
        let dir = tempfile::tempdir().expect("temporary folder");
        for second in 100..120 {
            fs::write(dir.path().join(format!("{second}-stuck.json")), "{}").expect("written");
        }
        fs::write(dir.path().join("notes.txt"), "mine").expect("written");
        remove_oldest(dir.path()).expect("it is readable");
        let mut left: Vec<_> = fs::read_dir(dir.path())
            .expect("readable")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        left.sort();
        assert_eq!(left.len(), DUMPS_MAX + 1, "{left:?}");
        assert_eq!((&left[0], &left[DUMPS_MAX]), (&"112-stuck.json".into(), &"notes.txt".into()));
    }
}
