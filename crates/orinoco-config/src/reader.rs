//! Takes keys out of the tree, and collects faults in one list.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use orinoco_core::{Choice, Code, Diagnosis, codes};

use crate::tree::{FileTree, Kind, Table, Value, ValuePosition};

/// Minimum similarity (Jaro-Winkler) at which a known key is suggested for an unknown one.
const SUGGEST_MIN: f64 = 0.7;

/// Takes keys out of one table. Keys that are never asked for are unknown, and [`TableReader::finish`] reports them.
#[derive(Debug)]
pub struct TableReader<'a> {
    doc: &'a FileTree,
    table: &'a Table,
    path: String,
    at: ValuePosition,
    asked: RefCell<Vec<&'static str>>,
}

/// Position of a value in its file, for faults that only a later check can find.
#[derive(Clone, Debug)]
pub struct SourcePosition {
    place: String,
    key: String,
}

impl SourcePosition {
    /// Returns the file and the line: `board.toml:12`.
    pub fn line(&self) -> String {
        self.place.clone()
    }

    /// Makes a fault about this value.
    pub fn fault(
        &self,
        code: &'static Code,
        cause: impl std::fmt::Display,
        next: impl std::fmt::Display,
    ) -> Diagnosis {
        Diagnosis::new(code, format!("{}: key `{}`", self.place, self.key), cause, next)
    }
}

impl<'a> TableReader<'a> {
    /// Creates a reader of the top-level table.
    pub(crate) fn of(doc: &'a FileTree) -> Self {
        Self::new(doc, &doc.root, String::new(), ValuePosition { file: 0, line: 1 })
    }

    fn new(doc: &'a FileTree, table: &'a Table, path: String, at: ValuePosition) -> Self {
        Self { doc, table, path, at, asked: RefCell::default() }
    }

    /// Checks `version = 1`, which every file has.
    pub fn version(&self) {
        match self.integer("version", 1..=i64::MAX) {
            Some(1) => {}
            Some(other) => {
                let next = "write version = 1, or update Orinoco if a newer one wrote the file";
                self.fault("version", &codes::VERSION, format!("it is {other}"), next);
            }
            None if self.table.contains_key("version") => {}
            None => self.missing("version", "add version = 1 at the top"),
        }
    }

    /// Whether the table has the key.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Returns a string, if the key is there.
    pub fn text(&self, key: &'static str) -> Option<String> {
        self.take(key, "a string in quotes", |kind| match kind {
            Kind::Text(text) => Some(text.clone()),
            _ => None,
        })
    }

    /// Returns a string that must be there; if it is missing, records a fault and returns an empty string.
    pub fn text_required(&self, key: &'static str) -> String {
        if !self.has(key) {
            self.missing(key, "add it");
        }
        self.text(key).unwrap_or_default()
    }

    /// Returns a string, or `None` for `false`, if the key is there.
    pub fn text_or_false(&self, key: &'static str) -> Option<Option<String>> {
        const WANTED: &str = "a string in quotes, or false";
        let value = self.take(key, WANTED, |kind| match kind {
            Kind::Text(text) => Some(Ok(Some(text.clone()))),
            Kind::Bool(is_on) => Some(if *is_on { Err(()) } else { Ok(None) }),
            _ => None,
        })?;
        value.inspect_err(|()| self.wrong_type(key, "true", WANTED)).ok()
    }

    /// Returns an integer within `range`, if the key is there.
    pub fn integer(&self, key: &'static str, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let n = self.take(key, "a whole number", |kind| match kind {
            Kind::Integer(n) => Some(*n),
            _ => None,
        })?;
        self.in_range(key, n, range.contains(&n), format!("{} to {}", range.start(), range.end()))
    }

    /// Returns a number within `range`, if the key is there.
    pub fn float(&self, key: &'static str, range: std::ops::RangeInclusive<f64>) -> Option<f64> {
        let n = self.take(key, "a number", number)?;
        self.in_range(key, n, range.contains(&n), format!("{} to {}", range.start(), range.end()))
    }

    /// Returns a boolean, if the key is there.
    pub fn boolean(&self, key: &'static str) -> Option<bool> {
        self.take(key, "true or false", |kind| match kind {
            Kind::Bool(b) => Some(*b),
            _ => None,
        })
    }

    /// Returns the value of one of `choices` by its name, if the key is there.
    pub fn choice<T: Copy>(&self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text(key)?;
        let found = choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        if found.is_none() {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            self.fault(key, &codes::KEY_RANGE, format!("`{text}` is not one of the choices"), one_of(&names));
        }
        found
    }

    /// Returns a value of a closed set by its name, if the key is there.
    pub fn choice_of<T: Choice>(&self, key: &'static str) -> Option<T> {
        let choices: Vec<(&str, T)> = T::ALL.iter().map(|value| (value.name(), *value)).collect();
        self.choice(key, &choices)
    }

    /// Returns an array of strings; empty when the key is not there.
    pub fn texts(&self, key: &'static str) -> Vec<String> {
        self.texts_given(key).unwrap_or_default()
    }

    /// Returns an array of strings, if the key is there and holds one.
    pub fn texts_given(&self, key: &'static str) -> Option<Vec<String>> {
        self.list_given(key, "an array of strings", |kind| match kind {
            Kind::Text(text) => Some(text.clone()),
            _ => None,
        })
    }

    /// Returns an array of numbers; empty when the key is not there.
    pub fn floats(&self, key: &'static str) -> Vec<f64> {
        self.list(key, "a list of numbers", number)
    }

    /// Returns an array of integers of at least 1; empty when the key is not there.
    pub fn counts(&self, key: &'static str) -> Vec<u32> {
        self.list(key, "a list of whole numbers from 1", |kind| match kind {
            Kind::Integer(n) => u32::try_from(*n).ok().filter(|n| *n > 0),
            _ => None,
        })
    }

    /// Returns a path, relative to the file in which it was written.
    pub fn path(&self, key: &'static str) -> Option<PathBuf> {
        let text = self.text(key)?;
        Some(self.dir_of(key).join(text))
    }

    /// Returns the folder of the file in which `key` was written.
    pub fn dir_of(&self, key: &str) -> PathBuf {
        self.doc.files[self.at_of(key).file].parent().unwrap_or(Path::new("")).to_owned()
    }

    /// Returns a reader of a table; of an empty one when the key is not there.
    pub fn table(&self, key: &'static str) -> TableReader<'a> {
        static EMPTY: Table = Table::new();
        let found = self.take_ref(key, "a table", |kind| match kind {
            Kind::Table(table) => Some(table),
            _ => None,
        });
        TableReader::new(self.doc, found.unwrap_or(&EMPTY), self.path_to(key), self.at_of(key))
    }

    /// Returns readers of the tables of `[[key]]`; none when there are none.
    pub fn tables(&self, key: &'static str) -> Vec<TableReader<'a>> {
        let items = self.take_ref(key, "a list of tables", |kind| match kind {
            Kind::Array(items) => Some(items.as_slice()),
            _ => None,
        });
        let mut readers = Vec::new();
        for (index, item) in items.unwrap_or_default().iter().enumerate() {
            match &item.kind {
                Kind::Table(table) => {
                    let path = format!("{}[{index}]", self.path_to(key));
                    readers.push(TableReader::new(self.doc, table, path, item.at));
                }
                other => self.wrong_type(key, other.name(), "a list of tables"),
            }
        }
        readers
    }

    /// Returns the position of `key`, or of the table if the key is not there.
    pub fn spot(&self, key: &str) -> SourcePosition {
        SourcePosition { place: self.place(self.at_of(key)), key: self.path_to(key) }
    }

    /// Records a fault about `key`.
    pub fn fault(
        &self,
        key: &str,
        code: &'static Code,
        cause: impl std::fmt::Display,
        next: impl std::fmt::Display,
    ) {
        self.push(self.spot(key).fault(code, cause, next));
    }

    /// Records a fault that another check found.
    pub fn push(&self, fault: Diagnosis) {
        self.doc.faults.borrow_mut().push(fault);
    }

    /// Records that `key` is missing.
    pub fn missing(&self, key: &str, next: &str) {
        self.fault(key, &codes::KEY_MISSING, "it is missing", next);
    }

    /// Ends the reading of this table: records keys that nobody asked for as unknown.
    pub fn finish(self) {
        let asked = self.asked.borrow();
        for key in self.table.keys().filter(|key| !asked.contains(&key.as_str())) {
            let nearest = asked
                .iter()
                .map(|known| (strsim::jaro_winkler(known, key), known))
                .filter(|(score, _)| *score > SUGGEST_MIN)
                .max_by(|a, b| a.0.total_cmp(&b.0));
            let next = match nearest {
                Some((_, known)) => format!("did you mean `{known}`?"),
                None => one_of(&asked),
            };
            self.fault(key, &codes::KEY_UNKNOWN, "unknown key", next);
        }
    }

    fn take<T>(&self, key: &'static str, wanted: &str, pick: impl Fn(&Kind) -> Option<T>) -> Option<T> {
        self.take_ref(key, wanted, pick)
    }

    fn take_ref<T>(
        &self,
        key: &'static str,
        wanted: &str,
        pick: impl Fn(&'a Kind) -> Option<T>,
    ) -> Option<T> {
        self.asked.borrow_mut().push(key);
        let value: &'a Value = self.table.get(key)?;
        let picked = pick(&value.kind);
        if picked.is_none() {
            self.wrong_type(key, value.kind.name(), wanted);
        }
        picked
    }

    fn list<T>(&self, key: &'static str, wanted: &str, pick: impl Fn(&Kind) -> Option<T>) -> Vec<T> {
        self.list_given(key, wanted, pick).unwrap_or_default()
    }

    fn list_given<T>(
        &self,
        key: &'static str,
        wanted: &str,
        pick: impl Fn(&Kind) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.take(key, wanted, |kind| match kind {
            Kind::Array(items) => items.iter().map(|item| pick(&item.kind)).collect::<Option<Vec<T>>>(),
            _ => None,
        })
    }

    fn in_range<T: std::fmt::Display>(&self, key: &str, value: T, fits: bool, range: String) -> Option<T> {
        if fits {
            return Some(value);
        }
        self.fault(
            key,
            &codes::KEY_RANGE,
            format!("{value} is outside its range"),
            format!("choose {range}"),
        );
        None
    }

    fn wrong_type(&self, key: &str, is: &str, wanted: &str) {
        self.fault(key, &codes::KEY_TYPE, format!("it is {is}"), format!("write {wanted}"));
    }

    fn at_of(&self, key: &str) -> ValuePosition {
        self.table.get(key).map_or(self.at, |value| value.at)
    }

    fn place(&self, at: ValuePosition) -> String {
        format!("{}:{}", self.doc.files[at.file].display(), at.line)
    }

    fn path_to(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

fn number(kind: &Kind) -> Option<f64> {
    match kind {
        Kind::Integer(n) => Some(*n as f64),
        Kind::Float(n) => Some(*n),
        _ => None,
    }
}

fn one_of(names: &[&str]) -> String {
    format!("use one of {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use crate::{Document, Vars};
    use expect_test::{Expect, expect};

    fn check(files: &[(&str, &str)], expected: Expect) {
        let dir = tempfile::tempdir().expect("temporary folder");
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).expect("write");
        }
        let path = dir.path().join(files[0].0);
        let vars = Vars::from([("cache".to_owned(), "/c".to_owned())]);
        let outcome = Document::load(&path, &vars).and_then(|doc| {
            let top = doc.reader();
            top.version();
            let name = top.text_required("name");
            let size = top.integer("size", 1..=64);
            let inner = top.table("inner");
            let ratio = inner.float("ratio", 0.0..=1.0);
            inner.finish();
            let mut items = Vec::new();
            for item in top.tables("item") {
                items.push((item.text_required("name"), item.choice("kind", &[("a", 1), ("b", 2)])));
                item.finish();
            }
            top.finish();
            doc.finish(format!("{name} {size:?} {ratio:?} {items:?}"))
        });
        let text = match outcome {
            Ok(text) => text,
            Err(faults) => faults.to_string().replace(&dir.path().display().to_string(), ""),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn a_child_overrides_what_it_inherits() {
        check(
            &[
                ("b.toml", "inherit = ['base.toml']\nsize = 2\n[[item]]\nname = 'x'\nkind = 'b'\n"),
                (
                    "base.toml",
                    "version = 1\nname = '${cache}/n'\nsize = 1\n[inner]\nratio = 1\n[[item]]\nname='x'\nkind='a'\n",
                ),
            ],
            expect![[r#"/c/n Some(2) Some(1.0) [("x", Some(2))]"#]],
        );
        // The second of a name is another item, as it is in a file that inherits nothing.
        check(
            &[
                (
                    "b.toml",
                    "inherit = ['base.toml']\n[[item]]\nname = 'y'\nkind = 'a'\n[[item]]\nname = 'y'\nkind = 'b'\n",
                ),
                ("base.toml", "version = 1\nname = 'n'\n[[item]]\nname='x'\nkind='a'\n"),
            ],
            expect![[r#"n None None [("x", Some(1)), ("y", Some(1)), ("y", Some(2))]"#]],
        );
    }

    #[test]
    fn all_faults_come_at_once_with_their_lines() {
        check(
            &[(
                "b.toml",
                "version = 2\nsize = 99\nsizes = 1\n[inner]\nratio = 'x'\n[[item]]\nname = 'x'\nkind = 'c'\n",
            )],
            expect![[r#"
                /b.toml:1: key `version`: it is 2; write version = 1, or update Orinoco if a newer one wrote the file
                /b.toml:1: key `name`: it is missing; add it
                /b.toml:2: key `size`: 99 is outside its range; choose 1 to 64
                /b.toml:5: key `inner.ratio`: it is a text; write a number
                /b.toml:8: key `item[0].kind`: `c` is not one of the choices; use one of a, b
                /b.toml:3: key `sizes`: unknown key; did you mean `size`?"#]],
        );
    }

    #[test]
    fn broken_files_are_one_sentence() {
        check(
            &[("b.toml", "version = \n")],
            expect![
                "/b.toml:1: string values must be quoted, expected literal string; correct the TOML at that line"
            ],
        );
        check(
            &[("b.toml", "inherit = ['b.toml']")],
            expect!["/b.toml:1: key `inherit`: it inherits from itself; remove one of these inherit entries"],
        );
        check(
            &[("b.toml", "inherit = ['c.toml']")],
            expect![
                "/b.toml:1: key `inherit`: /c.toml: No such file or directory (os error 2); correct the entry: it is relative to the file it is written in"
            ],
        );
        check(
            &[("b.toml", "version = 1\nname = '${nothing}'")],
            expect!["/b.toml:2: `${nothing}` is not defined; use one of dir, cache"],
        );
    }
}
