//! Parses the text of a file into values, and replaces its variables.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;

use orinoco_core::{Diagnosis, codes};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::tree::{Kind, Table, Value, ValuePosition};

/// Maximum number of bytes that variables may add to the strings of a document: a path may be 4 KiB long, and a file
/// can name it 170,000 times.
const EXPANDED_BYTES_MAX: usize = 4 << 20;

/// Values of the variables that strings refer to as `${name}`. `${dir}` is always defined: the folder of the file that
/// contains it.
pub type Vars = BTreeMap<String, String>;

/// Error in the text of a file.
#[derive(Debug)]
pub(crate) struct ParseError {
    /// Line of the error, from 1.
    line: usize,
    kind: ParseErrorKind,
}

/// Reason why a text is not accepted.
#[derive(Debug)]
enum ParseErrorKind {
    /// The text is not TOML; with the TOML parser's message.
    Toml(String),
    /// A string refers to a variable that is not one of the `known` ones.
    UnknownVariable { name: String, known: Vec<String> },
    /// The variables have added more than [`EXPANDED_BYTES_MAX`] to the document's strings.
    TooLong,
}

impl ParseError {
    /// Converts the error to a fault of the file at `path`.
    pub(crate) fn about(self, path: &Path) -> Diagnosis {
        let subject = format!("{}:{}", path.display(), self.line);
        match self.kind {
            ParseErrorKind::Toml(message) => {
                Diagnosis::new(&codes::SYNTAX, subject, message, "correct the TOML at that line")
            }
            ParseErrorKind::UnknownVariable { name, known } => {
                let cause = format!("`${{{name}}}` is not defined");
                Diagnosis::new(&codes::REFERENCE, subject, cause, format!("use one of {}", known.join(", ")))
            }
            ParseErrorKind::TooLong => {
                let cause = "strings of the board's files exceed 4 MiB in total after ${...} is replaced";
                Diagnosis::new(&codes::SYNTAX, subject, cause, "use fewer variables")
            }
        }
    }
}

/// Parser of one file's text.
pub(crate) struct Parser<'a> {
    text: &'a str,
    /// Offset of each line's end, so that the line of an offset is found without counting from the start.
    line_ends: Vec<usize>,
    file: usize,
    path: &'a Path,
    vars: &'a Vars,
    /// Bytes that variables have added to the document's strings.
    expanded_bytes: &'a Cell<usize>,
    dir: OnceCell<String>,
    /// Errors in strings, which do not stop the parser.
    pub(crate) errors: RefCell<Vec<ParseError>>,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(
        text: &'a str,
        file: usize,
        path: &'a Path,
        vars: &'a Vars,
        expanded_bytes: &'a Cell<usize>,
    ) -> Self {
        let bytes = text.bytes().enumerate();
        let line_ends = bytes.filter(|(_, byte)| *byte == b'\n').map(|(offset, _)| offset).collect();
        let (dir, errors) = (OnceCell::new(), RefCell::default());
        Self { text, line_ends, file, path, vars, expanded_bytes, dir, errors }
    }

    /// Parses the file's table. Errors of variables are collected in `errors`; in the strings these variables are
    /// empty.
    pub(crate) fn parse(&self) -> Result<Table, ParseError> {
        let table = DeTable::parse(self.text).map_err(|error| {
            let line = error.span().map_or(1, |span| self.line(span.start));
            ParseError { line, kind: ParseErrorKind::Toml(error.message().to_owned()) }
        })?;
        Ok(self.table(table.get_ref()))
    }

    fn table(&self, table: &DeTable<'_>) -> Table {
        let value = |(key, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
            let at = ValuePosition { file: self.file, line: self.line(key.span().start) };
            (key.get_ref().to_string(), Value { kind: self.kind(value.get_ref(), at), at })
        };
        table.iter().map(value).collect()
    }

    fn kind(&self, value: &DeValue<'_>, at: ValuePosition) -> Kind {
        match value {
            DeValue::String(text) => Kind::Text(self.expand(text, at)),
            DeValue::Integer(n) => match i64::from_str_radix(n.as_str(), n.radix()) {
                Ok(n) => Kind::Integer(n),
                Err(_) => Kind::Other("a number that is too large"),
            },
            DeValue::Float(n) => n.as_str().parse().map_or(Kind::Other("an unreadable number"), Kind::Float),
            DeValue::Boolean(b) => Kind::Bool(*b),
            DeValue::Datetime(_) => Kind::Other("a date"),
            DeValue::Array(items) => {
                let item = |item: &Spanned<DeValue<'_>>| {
                    let at = ValuePosition { line: self.line(item.span().start), ..at };
                    Value { kind: self.kind(item.get_ref(), at), at }
                };
                Kind::Array(items.iter().map(item).collect())
            }
            DeValue::Table(table) => Kind::Table(self.table(table)),
        }
    }

    fn line(&self, offset: usize) -> usize {
        self.line_ends.partition_point(|end| *end < offset) + 1
    }

    /// Replaces each `${name}` by its value.
    fn expand(&self, text: &str, at: ValuePosition) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let Some(length) = rest[start..].find('}') else { break };
            let name = &rest[start + 2..start + length];
            out.push_str(&rest[..start]);
            match (name, self.vars.get(name)) {
                ("dir", _) => self.insert(&mut out, self.dir(), at),
                (_, Some(value)) => self.insert(&mut out, value, at),
                (_, None) => self.unknown_variable(name, at),
            }
            rest = &rest[start + length + 1..];
        }
        out.push_str(rest);
        out
    }

    fn insert(&self, out: &mut String, value: &str, at: ValuePosition) {
        let before = self.expanded_bytes.get();
        self.expanded_bytes.set(before + value.len());
        if before + value.len() <= EXPANDED_BYTES_MAX {
            out.push_str(value);
        } else if before <= EXPANDED_BYTES_MAX {
            self.push(at, ParseErrorKind::TooLong);
        }
    }

    fn dir(&self) -> &str {
        self.dir.get_or_init(|| {
            let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            dir.canonicalize().unwrap_or_else(|_| dir.to_owned()).display().to_string()
        })
    }

    fn unknown_variable(&self, name: &str, at: ValuePosition) {
        let known = std::iter::once("dir").chain(self.vars.keys().map(String::as_str));
        let known = known.map(str::to_owned).collect();
        self.push(at, ParseErrorKind::UnknownVariable { name: name.to_owned(), known });
    }

    fn push(&self, at: ValuePosition, kind: ParseErrorKind) {
        self.errors.borrow_mut().push(ParseError { line: at.line, kind });
    }
}
