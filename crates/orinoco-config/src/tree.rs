//! Values of files, each with the position at which it was written.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::FaultList;

/// A file merged with everything it inherits.
#[derive(Debug)]
pub(crate) struct FileTree {
    pub(crate) root: Table,
    /// Paths of all files that were read, the first one first.
    pub(crate) files: Vec<PathBuf>,
    /// Faults that readers have found so far.
    pub(crate) faults: RefCell<FaultList>,
}

pub(crate) type Table = BTreeMap<String, Value>;

#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) kind: Kind,
    pub(crate) at: ValuePosition,
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

/// Position of a value: index of its file, and line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValuePosition {
    pub(crate) file: usize,
    pub(crate) line: usize,
}
