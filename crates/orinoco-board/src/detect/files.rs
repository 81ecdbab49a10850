//! The files of a board, read with a note of each that gives nothing.

use std::cell::RefCell;

use orinoco_sysroot::{ReadError, ReadErrorKind, Sysroot};

use super::fact::{Fact, Problem};

/// Greatest number of problems that are kept: a board with more is not a board.
const PROBLEMS_MAX: usize = 200;
/// Greatest number of entries of a folder that are looked at.
const ENTRIES_MAX: usize = 256;
/// Greatest length of a text from a file in an answer, in characters.
const SHOWN_CHARS_MAX: usize = 160;

/// Files of a board.
pub(super) struct BoardFiles<'a> {
    sysroot: &'a Sysroot,
    problems: RefCell<Vec<Problem>>,
}

impl<'a> BoardFiles<'a> {
    pub(super) fn new(sysroot: &'a Sysroot) -> Self {
        Self { sysroot, problems: RefCell::default() }
    }

    /// Returns the text of a file that answers `key`. A file without one is a problem.
    pub(super) fn text(&self, key: &'static str, path: &str) -> Option<Fact<String>> {
        let read = self.sysroot.text(path).map(|text| Fact::new(text, path));
        let fact = self.value(key, read)?;
        if fact.value.is_empty() {
            self.note(key, path, "is empty");
            return None;
        }
        Some(fact)
    }

    /// Returns the text of a file that may be long and that a board may lack. Nothing is noted.
    pub(super) fn long_text(&self, path: &str, bytes_max: u64) -> Option<String> {
        String::from_utf8(self.sysroot.bytes_within(path, bytes_max).ok()?).ok()
    }

    /// Returns the strings of a property of the device tree.
    pub(super) fn texts(&self, key: &'static str, path: &str) -> Option<Fact<Vec<String>>> {
        self.value(key, self.sysroot.texts(path).map(|texts| Fact::new(texts, path)))
    }

    /// Returns the text of a file that a driver may leave out. Nothing is noted.
    pub(super) fn optional_text(&self, path: &str) -> Option<String> {
        self.sysroot.text(path).ok().filter(|text| !text.is_empty()).map(|text| shown(&text))
    }

    /// Returns the names in a folder that may not be there.
    pub(super) fn optional_entries(&self, path: &str) -> Vec<String> {
        let mut entries = self.sysroot.entries(path).unwrap_or_default();
        entries.truncate(ENTRIES_MAX);
        entries
    }

    /// Notes a file whose value is of no use.
    pub(super) fn note(&self, key: &'static str, path: &str, cause: impl Into<String>) {
        let problem = Problem { key, path: path.to_owned(), cause: cause.into(), is_absent: false };
        self.push(problem);
    }

    /// Returns the problems that matter: files that are wrong, and files that are not there and leave one of the keys
    /// `unknown`.
    pub(super) fn into_problems(self, unknown: &[&str]) -> Vec<Problem> {
        let matters = |problem: &Problem| !problem.is_absent || unknown.contains(&problem.key);
        self.problems.into_inner().into_iter().filter(matters).collect()
    }

    fn value<T>(&self, key: &'static str, read: Result<T, ReadError>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(error) => {
                let is_absent = error.kind == ReadErrorKind::Absent;
                let cause = shown(&error.kind.to_string());
                self.push(Problem { key, path: error.path, cause, is_absent });
                None
            }
        }
    }

    fn push(&self, problem: Problem) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < PROBLEMS_MAX && !problems.contains(&problem) {
            problems.push(problem);
        }
    }
}

/// Returns a text of a file as an answer may show it: on one line, without control characters, and not endless.
pub(super) fn shown(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let cut: String = plain.take(SHOWN_CHARS_MAX).collect();
    cut.split_whitespace().collect::<Vec<_>>().join(" ")
}
