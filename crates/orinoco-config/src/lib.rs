//! TOML files that people write: inheritance, and all faults at once with file, line and key.
//!
//! [`Document::load`] reads a file and what it inherits into one tree whose values remember where they were
//! written. A [`TableReader`] then takes keys out of the tree one by one; whatever is missing, of the wrong type, out of
//! range or unknown is collected in [`Faults`] rather than stopping at the first. This crate knows no key by name
//! except `version`, `inherit` and the `name` by which array tables are merged.
//!
//! Whole files of any kind are read by a [`FileKind`], within its bound, and written by [`write_whole`].

mod document;
mod faults;
mod file;
mod inherit;
mod parser;
mod reader;
mod tree;

pub use document::Document;
pub use faults::{FaultList, Faults};
pub use file::{Existing, FileKind, ReadError, ReadErrorKind, write_whole};
pub use parser::Vars;
pub use reader::{SourcePosition, TableReader};
