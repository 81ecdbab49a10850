//! Faults of `inherit` entries, and the bounds on them.

use orinoco_core::{Diagnosis, codes};

use crate::ReadError;

/// Maximum length of a chain of `inherit` entries: enough for module, carrier, board and site. A longer chain is a
/// mistake.
pub(crate) const INHERIT_DEPTH_MAX: usize = 8;
/// Maximum number of `inherit` entries of a document's files together. Each entry is one merge, so this bounds the time
/// that merging takes.
pub(crate) const INHERIT_ENTRIES_MAX: usize = 256;
/// Maximum size of a document's files together, in bytes.
pub(crate) const DOCUMENT_BYTES_MAX: u64 = 2 << 20;

/// Reason why a file is not inherited.
#[derive(Debug)]
pub(crate) enum InheritError {
    /// The file that inherits is compiled in, so there is no folder that its entries could be relative to.
    CompiledIn,
    /// The value, or an item of it, has this type instead.
    WrongType(&'static str),
    /// Each of these files inherits the next one, and the last one the first.
    Circle(Vec<String>),
    /// The chain of files is longer than [`INHERIT_DEPTH_MAX`].
    TooDeep,
    /// The document has more than [`INHERIT_ENTRIES_MAX`] entries.
    TooManyEntries,
    /// The file and those read before are larger than [`DOCUMENT_BYTES_MAX`] together.
    TooManyBytes,
    /// No file can be opened at the path of the entry.
    Unopened(ReadError),
}

impl InheritError {
    /// Converts the error to a fault about `subject`: the entry, or a file.
    pub(crate) fn about(self, subject: &str) -> Diagnosis {
        let fault = |cause: String, next: &str| Diagnosis::new(&codes::INHERIT, subject, cause, next);
        match self {
            Self::CompiledIn => {
                fault("a file that is compiled in cannot inherit".to_owned(), "write its keys into the file")
            }
            Self::WrongType(found) => {
                let next = "write an array of file names, such as [\"base.toml\"]";
                Diagnosis::new(&codes::KEY_TYPE, subject, format!("it is {found}"), next)
            }
            Self::Circle(files) => fault(circle(&files), "remove one of these inherit entries"),
            Self::TooDeep => fault(
                format!("the chain of inherited files is longer than {INHERIT_DEPTH_MAX}"),
                &format!("shorten the chain of inherit entries (at most {INHERIT_DEPTH_MAX} files)"),
            ),
            Self::TooManyEntries => fault(
                format!("a file and all that it inherits may have {INHERIT_ENTRIES_MAX} inherit entries"),
                "inherit fewer files",
            ),
            Self::TooManyBytes => {
                let mib = DOCUMENT_BYTES_MAX >> 20;
                let cause = format!("it and the files read before are larger than {mib} MiB together");
                Diagnosis::new(&codes::SYNTAX, subject, cause, "inherit fewer or smaller files")
            }
            Self::Unopened(error) => {
                let path = error.path.display().to_string();
                let Diagnosis { code, cause, .. } = error.into();
                let next = "correct the entry: it is relative to the file it is written in";
                Diagnosis::new(code, subject, format!("{path}: {cause}"), next)
            }
        }
    }
}

fn circle(files: &[String]) -> String {
    let [first, others @ ..] = files else { unreachable!("a circle has a file") };
    if others.is_empty() {
        return "it inherits from itself".to_owned();
    }
    let inherits: Vec<String> = others.iter().chain([first]).map(|file| format!("inherits {file}")).collect();
    format!("{first} {}", inherits.join(", which "))
}
