//! Reads a file with everything it inherits, and merges them into one tree.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use orinoco_core::Diagnosis;

use crate::inherit::{DOCUMENT_BYTES_MAX, INHERIT_DEPTH_MAX, INHERIT_ENTRIES_MAX, InheritError};
use crate::parser::{Parser, Vars};
use crate::tree::{FileTree, Kind, Table, Value};
use crate::{FaultList, Faults, FileKind, ReadErrorKind, TableReader};

const _: () = assert!(FileKind::DESCRIPTION.bytes_max <= DOCUMENT_BYTES_MAX);

/// A file merged with everything it inherits.
#[derive(Debug)]
pub struct Document(FileTree);

impl Document {
    /// Reads `path` and the files it inherits, each once. Keys of a file win over inherited ones: tables are merged key
    /// by key, lists of named tables by their `name`, anything else is replaced. Fails on files that are missing, are
    /// not TOML, inherit in a circle, or are too many or too large together.
    pub fn load(path: &Path, vars: &Vars) -> Result<Self, Faults> {
        let mut loader = Loader::new(vars);
        let tree = loader.load(path, None);
        let Loader { files, faults, .. } = loader;
        faults.finish(())?;
        let tree = tree.expect("a file without a tree has a fault");
        let root = Rc::unwrap_or_clone(tree).table;
        Ok(Self(FileTree { root, files, faults: RefCell::default() }))
    }

    /// Parses a file that is compiled into the binary. `path` names it in faults. It cannot inherit, because there is no
    /// folder that its entries could be relative to.
    pub fn from_text(path: &Path, text: &str, vars: &Vars) -> Result<Self, Faults> {
        let expanded_bytes = Cell::new(0);
        let parser = Parser::new(text, 0, path, vars, &expanded_bytes);
        let root = parser.parse().map_err(|error| error.about(path))?;
        let mut faults = FaultList::default();
        faults.extend(parser.errors.take().into_iter().map(|error| error.about(path)));
        if let Some(inherit) = root.get("inherit") {
            faults.push(InheritError::CompiledIn.about(&inherit_subject(inherit, path)));
        }
        faults.finish(Self(FileTree { root, files: vec![path.to_owned()], faults: RefCell::default() }))
    }

    /// Returns a reader of the top-level table.
    pub fn reader(&self) -> TableReader<'_> {
        TableReader::of(&self.0)
    }

    /// Returns the faults that the readers collected, or `Ok` with `value` when there are none.
    pub fn finish<T>(self, value: T) -> Result<T, Faults> {
        self.0.faults.into_inner().finish(value)
    }

    /// Returns the path of every file that was read, the one given to [`Document::load`] first.
    pub fn files(&self) -> &[PathBuf] {
        &self.0.files
    }
}

/// A file merged with everything it inherits.
#[derive(Clone)]
struct Tree {
    table: Table,
    /// Number of files in the longest chain of `inherit` entries, including this one.
    depth: usize,
}

/// An entry of an `inherit` list.
struct InheritEntry {
    path: PathBuf,
    /// File, line and key of the entry, as faults name it.
    subject: String,
}

/// Reads the files of one document. A file that several others inherit is read and merged once.
struct Loader<'a> {
    vars: &'a Vars,
    files: Vec<PathBuf>,
    /// Trees by canonical folder and file name, since entries of a file are relative to its folder. `None`: its faults
    /// have been reported.
    trees: BTreeMap<PathBuf, Option<Rc<Tree>>>,
    /// Files being read, each inherited by the one before: the key in `trees`, and the path as shown in faults.
    chain: Vec<(PathBuf, String)>,
    bytes: u64,
    entries: usize,
    expanded_bytes: Cell<usize>,
    faults: FaultList,
}

impl<'a> Loader<'a> {
    fn new(vars: &'a Vars) -> Self {
        Self {
            vars,
            files: Vec::new(),
            trees: BTreeMap::new(),
            chain: Vec::new(),
            bytes: 0,
            entries: 0,
            expanded_bytes: Cell::new(0),
            faults: FaultList::default(),
        }
    }

    /// Returns the tree of `path`. `entry` is the `inherit` entry that names it; none for the document's own file.
    /// Returns `None` when its faults have been reported.
    fn load(&mut self, path: &Path, entry: Option<&InheritEntry>) -> Option<Rc<Tree>> {
        let shown = path.display().to_string();
        let subject = entry.map_or(&shown, |entry| &entry.subject);
        let place = place_of(path);
        if let Some(first) = self.chain.iter().position(|(known, _)| *known == place) {
            let files = self.chain[first..].iter().map(|(_, shown)| shown.clone()).collect();
            self.faults.push(InheritError::Circle(files).about(subject));
            return None;
        }
        let known = self.trees.get(&place).cloned();
        let tree = known.unwrap_or_else(|| {
            self.chain.push((place.clone(), shown.clone()));
            let read = self.read(path, &shown, entry);
            self.chain.pop();
            let tree = read.map_err(|fault| self.faults.push(fault)).ok().map(Rc::new);
            self.trees.insert(place, tree.clone());
            tree
        })?;
        if self.chain.len() + tree.depth > INHERIT_DEPTH_MAX {
            self.faults.push(InheritError::TooDeep.about(subject));
            return None;
        }
        Some(tree)
    }

    /// Reads a file, which is the last one of the chain, and merges what it inherits.
    fn read(&mut self, path: &Path, shown: &str, entry: Option<&InheritEntry>) -> Result<Tree, Diagnosis> {
        if self.chain.len() > INHERIT_DEPTH_MAX {
            return Err(InheritError::TooDeep.about(entry.map_or(shown, |entry| &entry.subject)));
        }
        let text = read(path, entry)?;
        self.bytes += text.len() as u64;
        if self.bytes > DOCUMENT_BYTES_MAX {
            return Err(InheritError::TooManyBytes.about(shown));
        }
        let file = self.files.len();
        self.files.push(path.to_owned());
        let parser = Parser::new(&text, file, path, self.vars, &self.expanded_bytes);
        let mut table = parser.parse().map_err(|error| error.about(path))?;
        self.faults.extend(parser.errors.take().into_iter().map(|error| error.about(path)));
        let Some(inherit) = table.remove("inherit") else { return Ok(Tree { table, depth: 1 }) };

        let (mut merged, mut depth) = (Table::new(), 1);
        for entry in self.inherit_entries(&inherit, path) {
            self.entries += 1;
            if self.entries > INHERIT_ENTRIES_MAX {
                return Err(InheritError::TooManyEntries.about(&entry.subject));
            }
            if let Some(base) = self.load(&entry.path, Some(&entry)) {
                depth = depth.max(base.depth + 1);
                merge(&mut merged, base.table.clone());
            }
        }
        merge(&mut merged, table);
        Ok(Tree { table: merged, depth })
    }

    fn inherit_entries(&mut self, inherit: &Value, from: &Path) -> Vec<InheritEntry> {
        let Kind::Array(items) = &inherit.kind else {
            self.faults.push(wrong_type(inherit, from));
            return Vec::new();
        };
        let dir = from.parent().unwrap_or(Path::new(""));
        let mut entries = Vec::new();
        for item in items {
            match &item.kind {
                Kind::Text(text) => {
                    entries.push(InheritEntry { path: dir.join(text), subject: inherit_subject(item, from) });
                }
                _ => self.faults.push(wrong_type(item, from)),
            }
        }
        entries
    }
}

/// Returns the canonical folder of a file joined with its name, so that one file has one key however its path is
/// written.
fn place_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let named = || Some(folder.canonicalize().ok()?.join(path.file_name()?));
    named().or_else(|| path.canonicalize().ok()).unwrap_or_else(|| path.to_owned())
}

/// Reads the text of a file. If no file can be opened at its path, the entry that refers to it is at fault.
fn read(path: &Path, entry: Option<&InheritEntry>) -> Result<String, Diagnosis> {
    FileKind::DESCRIPTION.read_text(path).map_err(|error| match (entry, &error.kind) {
        (Some(entry), ReadErrorKind::Io(_) | ReadErrorKind::NotAFile(_)) => {
            InheritError::Unopened(error).about(&entry.subject)
        }
        _ => error.into(),
    })
}

fn inherit_subject(value: &Value, from: &Path) -> String {
    format!("{}:{}: key `inherit`", from.display(), value.at.line)
}

fn wrong_type(value: &Value, from: &Path) -> Diagnosis {
    InheritError::WrongType(value.kind.name()).about(&inherit_subject(value, from))
}

fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key).map(|v| &mut v.kind), value.kind) {
            (Some(Kind::Table(old)), Kind::Table(new)) => merge(old, new),
            (Some(Kind::Array(old)), Kind::Array(new)) if named(old) && named(&new) => merge_named(old, new),
            (_, kind) => {
                base.insert(key, Value { kind, at: value.at });
            }
        }
    }
}

fn named(items: &[Value]) -> bool {
    items.iter().all(|item| name_of(item).is_some())
}

fn name_of(item: &Value) -> Option<&str> {
    match &item.kind {
        Kind::Table(table) => match &table.get("name")?.kind {
            Kind::Text(name) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

/// Merges lists of named tables. Each inherited item is changed once; a second new item of its name is added, and the
/// code that reads the list rejects it.
fn merge_named(old: &mut Vec<Value>, new: Vec<Value>) {
    // Indices of the inherited items of each name, in their order.
    let mut unchanged: BTreeMap<String, VecDeque<usize>> = BTreeMap::new();
    for (index, item) in old.iter().enumerate() {
        let name = name_of(item).expect("the list is one of named tables").to_owned();
        unchanged.entry(name).or_default().push_back(index);
    }
    for item in new {
        let first = name_of(&item).and_then(|name| unchanged.get_mut(name)?.pop_front());
        match (first.map(|index| &mut old[index].kind), item.kind) {
            (Some(Kind::Table(table)), Kind::Table(over)) => merge(table, over),
            (_, kind) => old.push(Value { kind, at: item.at }),
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
mod tests {
    use super::*;
    use expect_test::expect;
    use std::time::{Duration, Instant};
    use toml::de::DeTable;

    /// Returns the shortest of several times: a busy machine makes some longer, and none shorter.
    fn shortest(mut run: impl FnMut() -> Duration) -> Duration {
        (0..3).map(|_| run()).min().expect("several")
    }

    fn time<T>(run: impl FnOnce() -> T) -> Duration {
        let begin = Instant::now();
        let result = run();
        let time = begin.elapsed();
        drop(result);
        time
    }

    /// Makes files of several kinds with this many items each.
    fn files(items: usize) -> [(&'static str, String); 4] {
        let lines = |line: &dyn Fn(usize) -> String| (0..items).map(line).collect::<String>();
        [
            ("labels", format!("labels = [\n{}]\n", lines(&|index| format!("'{index}',\n")))),
            ("keys", lines(&|index| format!("k{index}=1\n"))),
            ("tables", lines(&|index| format!("[[m]]\nname='{index}'\n"))),
            ("short lists", lines(&|index| format!("[t.{index}]\na=[1]\n"))),
        ]
    }

    #[test]
    fn reading_takes_no_longer_than_a_few_times_parsing() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("b.toml");
        for (name, text) in files(20_000) {
            std::fs::write(&path, &text).expect("written");
            let parsing = shortest(|| time(|| DeTable::parse(&text).expect("sound")));
            let reading = shortest(|| time(|| Document::load(&path, &Vars::new()).expect("sound")));
            // If each value cost the bytes before it, this would be hundreds of times as long.
            assert!(reading < parsing * 20, "{name}: parsed in {parsing:?}, read in {reading:?}");
        }
    }

    #[test]
    fn merging_takes_no_longer_than_reading() {
        let [.., (_, tables), _] = files(50_000);
        let (vars, expanded_bytes) = (Vars::new(), Cell::new(0));
        let parse =
            || Parser::new(&tables, 0, Path::new("b.toml"), &vars, &expanded_bytes).parse().expect("sound");
        let reading = shortest(|| time(parse));
        let merging = shortest(|| {
            let (mut base, over) = (parse(), parse());
            time(|| merge(&mut base, over))
        });
        // If each table were compared with those before it, this would be ten times as long.
        assert!(merging < reading * 3, "read in {reading:?}, merged in {merging:?}");
    }

    /// Loads `a.toml`, and returns the number of its files or its faults without the folder.
    fn faults_of(files: &[(&str, &str)]) -> String {
        let dir = tempfile::tempdir().expect("temporary folder");
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).expect("written");
        }
        let faults = match Document::load(&dir.path().join("a.toml"), &Vars::new()) {
            Ok(document) => return format!("{} files", document.files().len()),
            Err(faults) => faults.to_string(),
        };
        faults.replace(&format!("{}/", dir.path().display()), "")
    }

    #[test]
    fn every_fault_of_every_inherited_file_is_reported_with_who_asked() {
        let files = [
            ("a.toml", "x = '${no}'\ny = '${nor}'\ninherit = ['no.toml', 'b.toml',\n 'c.toml', 'b.toml']"),
            ("b.toml", "inherit = ['gone.toml', 3]\n"),
            ("c.toml", "x = \n"),
        ];
        expect![[r#"
            a.toml:1: `${no}` is not defined; use one of dir
            a.toml:2: `${nor}` is not defined; use one of dir
            a.toml:3: key `inherit`: no.toml: No such file or directory (os error 2); correct the entry: it is relative to the file it is written in
            b.toml:1: key `inherit`: it is a whole number; write an array of file names, such as ["base.toml"]
            b.toml:1: key `inherit`: gone.toml: No such file or directory (os error 2); correct the entry: it is relative to the file it is written in
            c.toml:1: string values must be quoted, expected literal string; correct the TOML at that line"#]].assert_eq(&faults_of(&files));
    }

    #[test]
    fn a_circle_is_shown_whole() {
        let two = [("a.toml", "inherit = ['b.toml']"), ("b.toml", "\ninherit = ['a.toml']")];
        expect!["b.toml:2: key `inherit`: a.toml inherits b.toml, which inherits a.toml; remove one of these inherit entries"].assert_eq(&faults_of(&two));
        let later = [
            ("a.toml", "inherit = ['b.toml']"),
            ("b.toml", "inherit = ['c.toml']"),
            ("c.toml", "inherit = ['b.toml']"),
        ];
        expect!["c.toml:1: key `inherit`: b.toml inherits c.toml, which inherits b.toml; remove one of these inherit entries"].assert_eq(&faults_of(&later));
    }

    /// Makes `levels` files, each of which inherits the next one `entries` times.
    fn tower(levels: usize, entries: usize) -> Vec<(String, String)> {
        let name = |level: usize| match level {
            0 => "a.toml".to_owned(),
            level => format!("level{level}.toml"),
        };
        let text = |level: usize| match level + 1 == levels {
            true => "x = 1".to_owned(),
            false => format!("inherit = [{}]", format!("'{}', ", name(level + 1)).repeat(entries)),
        };
        (0..levels).map(|level| (name(level), text(level))).collect()
    }

    #[test]
    fn a_file_is_read_once_however_often_it_is_inherited() {
        let check = |levels, entries| {
            let files = tower(levels, entries);
            let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (&**name, &**text)).collect();
            faults_of(&files)
        };
        // Seven levels by twelve are 36 million chains.
        assert_eq!([check(7, 12), check(8, 1), check(2, 256)], ["7 files", "8 files", "2 files"]);
        expect!["level7.toml:1: key `inherit`: the chain of inherited files is longer than 8; shorten the chain of inherit entries (at most 8 files)"].assert_eq(&check(9, 1));
        expect!["a.toml:1: key `inherit`: a file and all that it inherits may have 256 inherit entries; inherit fewer files"].assert_eq(&check(2, 257));
    }

    #[test]
    fn a_chain_that_is_reached_later_is_as_deep() {
        let mut files = tower(8, 1);
        files.push(("top.toml".to_owned(), "inherit = ['level1.toml', 'a.toml']".to_owned()));
        let rename = |name: &str| match name {
            "top.toml" => "a.toml".to_owned(),
            "a.toml" => "first.toml".to_owned(),
            name => name.to_owned(),
        };
        let files: Vec<(String, String)> =
            files.iter().map(|(name, text)| (rename(name), text.replace("a.toml", "first.toml"))).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (&**name, &**text)).collect();
        expect!["first.toml:1: key `inherit`: the chain of inherited files is longer than 8; shorten the chain of inherit entries (at most 8 files)"].assert_eq(&faults_of(&files));
    }

    #[test]
    fn what_is_no_file_is_refused_with_who_asked() {
        expect![[r#"
            a.toml:1: key `inherit`: /dev/zero: it is a device, not a file; correct the entry: it is relative to the file it is written in
            a.toml:1: key `inherit`: .: it is a folder, not a file; correct the entry: it is relative to the file it is written in"#]].assert_eq(&faults_of(&[("a.toml", "inherit = ['/dev/zero', '.']")]));
    }

    #[test]
    fn a_document_has_a_greatest_size() {
        let large = format!("# {}\n", "x".repeat(900 << 10));
        let files = [
            ("a.toml", "inherit = ['b.toml', 'c.toml', 'd.toml']"),
            ("b.toml", &large),
            ("c.toml", &large),
            ("d.toml", &large),
        ];
        expect!["d.toml: it and the files read before are larger than 2 MiB together; inherit fewer or smaller files"].assert_eq(&faults_of(&files));
        let dirs = "${dir}".repeat(80_000);
        let text = format!("inherit = ['b.toml']\nx = '{dirs}'\ny = '{dirs}'");
        let longer = format!("x = '{dirs}'\ny = '{dirs}'\nz = '{}'", "${dir}".repeat(1000));
        let faults = faults_of(&[("a.toml", &text), ("b.toml", &longer)]);
        expect!["b.toml:2: strings of the board's files exceed 4 MiB in total after ${...} is replaced; use fewer variables"].assert_eq(&faults);
    }
}
