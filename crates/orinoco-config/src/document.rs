//! Files into one tree.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use orinoco_core::{Diagnosis, codes};
use toml::de::{DeTable, DeValue};

use crate::{Faults, FileKind, Reader};

/// Deep enough for module, carrier, board, site; a longer chain is a mistake.
const INHERIT_DEPTH_MAX: usize = 8;

/// What `${name}` in a string stands for. `${dir}` is always there: the folder of the file it is written in.
pub type Vars = BTreeMap<String, String>;

/// A file with everything it inherits, merged.
#[derive(Debug)]
pub struct Document {
    pub(crate) root: Table,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) faults: RefCell<Vec<Diagnosis>>,
}

pub(crate) type Table = BTreeMap<String, Value>;

#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) kind: Kind,
    pub(crate) at: At,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    Array(Vec<Value>),
    Table(Table),
    Other(&'static str),
}

impl Kind {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Bool(_) => "true or false",
            Self::Array(_) => "a list",
            Self::Table(_) => "a table",
            Self::Other(name) => name,
        }
    }
}

/// Where a value was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) file: usize,
    pub(crate) line: usize,
}

impl Document {
    /// Reads `path` and the files it inherits. What a file sets wins over what it inherits: tables are merged key by
    /// key, lists of named tables by their `name`, anything else is replaced. Fails on files that are missing, are no
    /// TOML, or inherit in a circle.
    pub fn load(path: &Path, vars: &Vars) -> Result<Self, Faults> {
        let mut files = Vec::new();
        let root = load_tree(path, vars, &mut files, &mut Vec::new())?;
        Ok(Self { root, files, faults: RefCell::default() })
    }

    /// A reader over the top-level table.
    pub fn reader(&self) -> Reader<'_> {
        Reader::new(self, &self.root, String::new(), At { file: 0, line: 1 })
    }

    /// The faults the readers collected; `Ok` with `value` when there are none.
    pub fn finish<T>(self, value: T) -> Result<T, Faults> {
        let faults = self.faults.into_inner();
        if faults.is_empty() { Ok(value) } else { Err(Faults(faults)) }
    }

    /// Every file read, the one named first.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }
}

fn load_tree(
    path: &Path,
    vars: &Vars,
    files: &mut Vec<PathBuf>,
    chain: &mut Vec<PathBuf>,
) -> Result<Table, Diagnosis> {
    let shown = path.display().to_string();
    let text = FileKind::DESCRIPTION.read_text(path)?;
    let canonical = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if chain.contains(&canonical) || chain.len() >= INHERIT_DEPTH_MAX {
        let cause =
            if chain.contains(&canonical) { "it inherits from itself" } else { "it inherits too deeply" };
        let next = format!("break the chain of inherit entries (at most {INHERIT_DEPTH_MAX} files)");
        return Err(Diagnosis::new(&codes::INHERIT, shown, cause, next));
    }
    let file = files.len();
    files.push(path.to_owned());
    let mut table = Parser { text: &text, file, path, vars }.parse()?;
    let Some(inherit) = table.remove("inherit") else { return Ok(table) };

    chain.push(canonical);
    let mut merged = Table::new();
    for base in inherit_paths(&inherit, path)? {
        merge(&mut merged, load_tree(&base, vars, files, chain)?);
    }
    chain.pop();
    merge(&mut merged, table);
    Ok(merged)
}

fn inherit_paths(inherit: &Value, from: &Path) -> Result<Vec<PathBuf>, Diagnosis> {
    let Kind::Array(items) = &inherit.kind else { return Err(inherit_fault(inherit, from)) };
    let dir = from.parent().unwrap_or(Path::new(""));
    items
        .iter()
        .map(|item| match &item.kind {
            Kind::Text(text) => Ok(dir.join(text)),
            _ => Err(inherit_fault(item, from)),
        })
        .collect()
}

fn inherit_fault(value: &Value, from: &Path) -> Diagnosis {
    let subject = format!("{}:{}: key `inherit`", from.display(), value.at.line);
    let cause = format!("it is {}", value.kind.name());
    Diagnosis::new(&codes::KEY_TYPE, subject, cause, "write a list of file names, such as [\"base.toml\"]")
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

/// Each inherited item is changed once: a second one of its name is another, which whoever reads the list refuses.
fn merge_named(old: &mut Vec<Value>, new: Vec<Value>) {
    let mut changed = vec![false; old.len()];
    for item in new {
        let same = |&place: &usize| !changed[place] && name_of(&old[place]) == name_of(&item);
        let place = (0..changed.len()).find(same);
        match (place, item.kind) {
            (Some(place), Kind::Table(over)) => {
                changed[place] = true;
                if let Kind::Table(table) = &mut old[place].kind {
                    merge(table, over);
                }
            }
            (_, kind) => old.push(Value { kind, at: item.at }),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    file: usize,
    path: &'a Path,
    vars: &'a Vars,
}

impl Parser<'_> {
    fn parse(&self) -> Result<Table, Diagnosis> {
        let table = DeTable::parse(self.text).map_err(|error| {
            let line = error.span().map_or(1, |span| self.line(span.start));
            let subject = format!("{}:{line}", self.path.display());
            Diagnosis::new(&codes::SYNTAX, subject, error.message(), "correct the TOML at that line")
        })?;
        self.table(table.get_ref())
    }

    fn table(&self, table: &DeTable<'_>) -> Result<Table, Diagnosis> {
        table
            .iter()
            .map(|(key, value)| {
                let at = At { file: self.file, line: self.line(key.span().start) };
                Ok((key.get_ref().to_string(), Value { kind: self.kind(value.get_ref(), at)?, at }))
            })
            .collect()
    }

    fn kind(&self, value: &DeValue<'_>, at: At) -> Result<Kind, Diagnosis> {
        Ok(match value {
            DeValue::String(text) => Kind::Text(self.expand(text, at)?),
            DeValue::Integer(n) => match i64::from_str_radix(n.as_str(), n.radix()) {
                Ok(n) => Kind::Integer(n),
                Err(_) => Kind::Other("a number too large to hold"),
            },
            DeValue::Float(n) => n.as_str().parse().map_or(Kind::Other("an unreadable number"), Kind::Float),
            DeValue::Boolean(b) => Kind::Bool(*b),
            DeValue::Datetime(_) => Kind::Other("a date"),
            DeValue::Array(items) => Kind::Array(
                items
                    .iter()
                    .map(|item| {
                        let at = At { line: self.line(item.span().start), ..at };
                        Ok(Value { kind: self.kind(item.get_ref(), at)?, at })
                    })
                    .collect::<Result<_, Diagnosis>>()?,
            ),
            DeValue::Table(table) => Kind::Table(self.table(table)?),
        })
    }

    fn line(&self, offset: usize) -> usize {
        self.text.as_bytes()[..offset.min(self.text.len())].iter().filter(|b| **b == b'\n').count() + 1
    }

    /// Replaces `${name}` by what it stands for.
    fn expand(&self, text: &str, at: At) -> Result<String, Diagnosis> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let Some(length) = rest[start..].find('}') else { break };
            let name = &rest[start + 2..start + length];
            out.push_str(&rest[..start]);
            match (name, self.vars.get(name)) {
                ("dir", _) => out.push_str(&self.dir()),
                (_, Some(value)) => out.push_str(value),
                (_, None) => return Err(self.unknown_variable(name, at)),
            }
            rest = &rest[start + length + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }

    fn dir(&self) -> String {
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        dir.canonicalize().unwrap_or_else(|_| dir.to_owned()).display().to_string()
    }

    fn unknown_variable(&self, name: &str, at: At) -> Diagnosis {
        let known: Vec<&str> = std::iter::once("dir").chain(self.vars.keys().map(String::as_str)).collect();
        let subject = format!("{}:{}", self.path.display(), at.line);
        let next = format!("use one of {}", known.join(", "));
        Diagnosis::new(&codes::REFERENCE, subject, format!("`${{{name}}}` stands for nothing"), next)
    }
}
