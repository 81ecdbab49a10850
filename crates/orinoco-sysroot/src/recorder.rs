use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::attribute::Attribute;
use crate::error::{FILE_BYTES_MAX, ReadError, ReadErrorKind};
use crate::path::LINKS_MAX;
use crate::recording::{AddError, Node, Recording};
use crate::redact::{PACKAGES, PACKAGES_BYTES_MAX, forbidden, is_identifying, redacted};
use crate::sysroot::Sysroot;

/// Depth of folders below a `**`.
const DEPTH_MAX: usize = 16;

/// Number of files that are kept open while a board is recorded; the others are opened for each read. A process may open
/// 1024 files by default.
const OPEN_FILES_MAX: usize = 256;

/// Files to record. A path can have `*` in its names, and `**` as its last name for everything below a folder; symbolic
/// links are followed and recorded, except below a `**`, where they are only recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Files that are read once, when the recording starts.
    pub tree: Vec<String>,
    /// Files whose values change: they are read in every round.
    pub values: Vec<String>,
}

/// Rounds of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Time from the start of one round to that of the next. A round that takes longer makes the next one start late, and
    /// the rounds in between are missed.
    pub period: Duration,
    /// Number of rounds, those missed included.
    pub rounds: u32,
}

/// Finished recording.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The board's files and values.
    pub recording: Recording,
    /// Number of rounds that were recorded.
    pub rounds: u32,
    /// Number of rounds that were missed because an earlier one took too long.
    pub missed: u32,
    /// Whether the recording ended early because it reached its maximum size.
    pub is_cut_short: bool,
}

/// Records the files of a board, and round by round the values that change.
///
/// `now` returns the time since the start. `wait` waits until the time that it is given, by the same clock, and says whether
/// to go on.
pub fn record(
    sysroot: &Sysroot,
    selection: &Selection,
    schedule: Schedule,
    now: impl Fn() -> Duration,
    mut wait: impl FnMut(Duration) -> ControlFlow<()>,
) -> Recorded {
    let mut recorder = Recorder::new(sysroot, selection);
    let (mut rounds, mut missed) = (0, 0);
    let mut round = 0;
    while round < schedule.rounds && !recorder.is_full() {
        let due = schedule.period.saturating_mul(round);
        if wait(due).is_break() {
            break;
        }
        recorder.sample(&now);
        rounds += 1;
        let begun = whole_periods(now(), schedule.period).min(schedule.rounds - 1);
        missed += begun.saturating_sub(round);
        round = round.max(begun) + 1;
    }
    let is_cut_short = recorder.is_full();
    Recorded { recording: recorder.finish(), rounds, missed, is_cut_short }
}

/// Returns the number of the round that a time lies in.
fn whole_periods(time: Duration, period: Duration) -> u32 {
    let period = period.as_nanos().max(1);
    u32::try_from(time.as_nanos() / period).unwrap_or(u32::MAX)
}

/// Recorder of a board whose rounds the caller starts.
#[derive(Debug)]
pub struct Recorder {
    recording: Recording,
    values: Vec<Attribute>,
    left_out: BTreeSet<String>,
    buffer: Vec<u8>,
    is_full: bool,
}

impl Recorder {
    /// Records the tree of a board, and finds the files whose values change. The paths that a selection names and that the
    /// board does not have are recorded as missing.
    pub fn new(sysroot: &Sysroot, selection: &Selection) -> Self {
        let mut walk = Walk {
            sysroot,
            recording: Recording::default(),
            left_out: BTreeSet::new(),
            values: BTreeSet::new(),
            is_value: false,
        };
        let is_full = walk.walk(selection).is_err();
        let Walk { recording, left_out, values, .. } = walk;
        let attribute = |(index, path): (usize, String)| {
            let attribute = Attribute::new(sysroot, path);
            if index < OPEN_FILES_MAX { attribute } else { attribute.opened_for_each_read() }
        };
        let values = values.into_iter().enumerate().map(attribute).collect();
        Self { recording, values, left_out, buffer: Vec::new(), is_full }
    }

    /// Reads every value that changes, and records those that are different from their last one, each with the time that
    /// `now` returns after its read.
    pub fn sample(&mut self, now: impl Fn() -> Duration) {
        for value in &mut self.values {
            let content = value.bytes(&mut self.buffer);
            let added = add_content(&mut self.recording, &mut self.left_out, value.path(), now(), content);
            self.is_full |= added == Err(AddError::Full);
        }
        self.recording.extend_to(now());
    }

    /// Returns whether the recording has reached its maximum size and takes no more.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns the recording.
    pub fn finish(mut self) -> Recording {
        if self.is_full {
            let line =
                "The recording ended early, or has no more files, because it reached its maximum size.";
            self.left_out.insert(line.to_owned());
        }
        self.left_out.into_iter().for_each(|line| self.recording.add_left_out(line));
        self.recording
    }
}

/// Adds a content without what must not be recorded.
fn add_content(
    recording: &mut Recording,
    left_out: &mut BTreeSet<String>,
    path: &str,
    at: Duration,
    content: Result<&[u8], ReadErrorKind>,
) -> Result<(), AddError> {
    let bytes = match content {
        Ok(bytes) => bytes,
        Err(kind) => return recording.add_value(path, at, Err(kind)),
    };
    let (safe, replaced) = redacted(path, bytes);
    if let Some(what) = replaced {
        left_out.insert(format!("{path}: replaced: {what}"));
    }
    recording.add_value(path, at, Ok(&safe))
}

/// Name on the way to a file.
#[derive(Clone, Debug)]
enum Step {
    Name(String),
    /// Names that match a pattern with `*`.
    Pattern(String),
    /// Everything below a folder.
    All,
}

/// Walk through a board along the paths of a selection.
struct Walk<'s> {
    sysroot: &'s Sysroot,
    recording: Recording,
    left_out: BTreeSet<String>,
    values: BTreeSet<String>,
    is_value: bool,
}

impl Walk<'_> {
    /// Records the tree, then finds the values. Ends early with an error when the recording is full.
    fn walk(&mut self, selection: &Selection) -> Result<(), AddError> {
        for (paths, is_value) in [(&selection.values, true), (&selection.tree, false)] {
            self.is_value = is_value;
            for path in paths {
                self.visit(String::new(), steps(path, Step::of), 0)?;
            }
        }
        Ok(())
    }

    /// Goes `rest` (its last step first) from the folder `at`, a path without links, and records where it ends.
    fn visit(&mut self, mut at: String, mut rest: Vec<Step>, mut links: usize) -> Result<(), AddError> {
        while let Some(step) = rest.pop() {
            let name = match step {
                Step::All => return self.visit_all(&at, 0),
                Step::Pattern(pattern) => return self.visit_matching(&at, &pattern, &rest, links),
                Step::Name(name) if name == ".." => {
                    at.truncate(at.rfind('/').unwrap_or(0));
                    continue;
                }
                Step::Name(name) => name,
            };
            let path = format!("{at}/{name}");
            match self.sysroot.link(&path) {
                Ok(target) => {
                    self.add_link(&path, &target)?;
                    links += 1;
                    if links > LINKS_MAX {
                        return Ok(());
                    }
                    if target.starts_with('/') {
                        at.clear();
                    }
                    rest.extend(steps(&target, Step::Name));
                }
                Err(ReadError { kind: ReadErrorKind::WrongType, .. }) => at = path,
                Err(ReadError { kind, .. }) => {
                    return unless_full(self.recording.add_unreadable(&path, kind));
                }
            }
        }
        self.add(&at)
    }

    fn visit_matching(
        &mut self,
        at: &str,
        pattern: &str,
        rest: &[Step],
        links: usize,
    ) -> Result<(), AddError> {
        for name in self.names(at)?.unwrap_or_default() {
            if matches(pattern, &name) {
                let rest = rest.iter().cloned().chain([Step::Name(name)]).collect();
                self.visit(at.to_owned(), rest, links)?;
            }
        }
        Ok(())
    }

    /// Records everything below a folder. Links are recorded, not followed.
    fn visit_all(&mut self, at: &str, depth: usize) -> Result<(), AddError> {
        for name in self.names(at)?.unwrap_or_default() {
            let path = format!("{at}/{name}");
            if let Ok(target) = self.sysroot.link(&path) {
                self.add_link(&path, &target)?;
            } else if depth < DEPTH_MAX && self.names(&path)?.is_some() {
                self.visit_all(&path, depth + 1)?;
            } else {
                self.add(&path)?;
            }
        }
        Ok(())
    }

    /// Records a path without links: the names of a folder, the content of a file, or the reason why it gives nothing.
    fn add(&mut self, path: &str) -> Result<(), AddError> {
        if path.is_empty() || self.names(path)?.is_some() {
            return Ok(());
        }
        if self.recording.nodes().contains_key(path) {
            return Ok(());
        }
        if let Some(reason) = forbidden(path) {
            self.left_out.insert(format!("{path}: left out: {reason}"));
            return unless_full(self.recording.add_unreadable(path, ReadErrorKind::NotRecorded));
        }
        if self.is_value {
            self.values.insert(path.to_owned());
            return Ok(());
        }
        if self.values.contains(path) {
            return Ok(());
        }
        let bytes_max = if path == PACKAGES { PACKAGES_BYTES_MAX } else { FILE_BYTES_MAX };
        let content = self.sysroot.bytes_within(path, bytes_max);
        let content = content.as_deref().map_err(|error| error.kind.clone());
        unless_full(add_content(&mut self.recording, &mut self.left_out, path, Duration::ZERO, content))
    }

    /// Returns the names in a folder, and records them; `None` for what is not a folder that can be read. Names that could
    /// identify a device are left out.
    fn names(&mut self, path: &str) -> Result<Option<Vec<String>>, AddError> {
        if let Some(Node::Directory(Some(names))) = self.recording.nodes().get(path) {
            return Ok(names.as_ref().ok().cloned());
        }
        let names = match self.sysroot.entries(if path.is_empty() { "/" } else { path }) {
            Ok(names) => names,
            Err(ReadError { kind: ReadErrorKind::WrongType, .. }) => return Ok(None),
            Err(ReadError { kind, .. }) => {
                unless_full(self.recording.add_unreadable(path, kind))?;
                return Ok(None);
            }
        };
        let (forbidden, names): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| is_identifying(name));
        if !forbidden.is_empty() {
            let count = forbidden.len();
            self.left_out.insert(format!("{path}: left out: {count} names with MAC addresses or UUIDs"));
        }
        if !path.is_empty() {
            unless_full(self.recording.add_listing(path, Ok(names.clone())))?;
        }
        Ok(Some(names))
    }

    fn add_link(&mut self, path: &str, target: &str) -> Result<(), AddError> {
        if self.recording.nodes().contains_key(path) {
            return Ok(());
        }
        unless_full(self.recording.add_link(path, target))
    }
}

impl Step {
    /// Returns the step of a name in a selection.
    fn of(name: String) -> Self {
        match name.as_str() {
            "**" => Self::All,
            _ if name.contains('*') => Self::Pattern(name),
            _ => Self::Name(name),
        }
    }
}

/// Returns the steps of a path, the last one first.
fn steps(path: &str, step: impl Fn(String) -> Step) -> Vec<Step> {
    path.rsplit('/').filter(|name| !matches!(*name, "" | ".")).map(|name| step(name.to_owned())).collect()
}

/// Ignores that something cannot be added, such as a file below a file: the board changed while it was walked. Only the
/// end of the recording's size ends the walk.
fn unless_full(added: Result<(), AddError>) -> Result<(), AddError> {
    match added {
        Err(AddError::Full) => added,
        _ => Ok(()),
    }
}

/// Whether a name matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_names() {
        for (pattern, name, expected) in [
            ("*", "hwmon3", true),
            ("hwmon*", "hwmon3", true),
            ("hwmon*", "hwmo", false),
            ("in*_input", "in1_input", true),
            ("in*_input", "in_voltage0_input", true),
            ("in*_input", "in1_inputs", false),
            ("*_*_*", "a_b", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("temp", "temp", true),
            ("temp", "temp1", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
