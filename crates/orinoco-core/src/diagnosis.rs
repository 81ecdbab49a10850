use alloc::{format, string::String};
use core::fmt;

/// Stable error code of one kind of fault, with the page that `orinoco explain` prints. [`crate::codes`] holds all of
/// them.
#[derive(Debug)]
pub struct Code {
    /// Printed form: `E0107`.
    pub id: &'static str,
    /// Exit code of a process that ends with this fault.
    pub exit: Exit,
    /// Short name of the fault.
    pub title: &'static str,
    /// Explanation and next steps, in full sentences.
    pub page: &'static str,
}

/// Exit code of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything requested was done.
    Done = 0,
    /// A gate or check did not pass.
    CheckFailed = 1,
    /// The command line or a file given to it is wrong.
    Configuration = 2,
    /// The run failed.
    RunFailed = 3,
    /// Ctrl-C or SIGTERM, after a clean end.
    Interrupted = 130,
}

/// Fault that a user can understand and correct: its subject, its cause and the next step.
///
/// The display form is one sentence: `subject: cause; next`.
#[derive(Clone)]
pub struct Diagnosis {
    /// Kind of fault.
    pub code: &'static Code,
    /// File, key, URI, model or peer with the fault.
    pub subject: String,
    /// Cause of the fault.
    pub cause: String,
    /// Next step, as an instruction.
    pub next: String,
    /// Full cause, such as an engine's own message, where `cause` is only part of it. May span lines.
    pub detail: Option<String>,
}

impl Diagnosis {
    /// Creates a fault of kind `code` about `subject`.
    pub fn new(
        code: &'static Code,
        subject: impl fmt::Display,
        cause: impl fmt::Display,
        next: impl fmt::Display,
    ) -> Self {
        Self { code, subject: name(subject), cause: one_line(cause), next: one_line(next), detail: None }
    }

    /// Adds the full cause, unless it contains no more than `cause`.
    #[must_use]
    pub fn with_detail(self, detail: &str) -> Self {
        let detail = detail.trim();
        let more = !detail.is_empty() && one_line(detail) != self.cause;
        Self { detail: more.then(|| String::from(detail)), ..self }
    }
}

/// Prepares a subject. A subject is a name, and every character of a name counts: `.` is a folder. A blank name is
/// shown in quotes.
fn name(text: impl fmt::Display) -> String {
    let name = format!("{text}").replace(char::is_control, " ");
    if name.trim().is_empty() { format!("\"{name}\"") } else { name }
}

/// Joins a text into one line without a full stop, because a diagnosis is one sentence. Causes come from other
/// libraries, and may span lines or end with full stops.
fn one_line(text: impl fmt::Display) -> String {
    let text = format!("{text}");
    let mut words = text.split_whitespace();
    let mut line = String::from(words.next().unwrap_or_default());
    for word in words {
        line.push(' ');
        line.push_str(word);
    }
    line.truncate(line.trim_end_matches(['.', ' ']).len());
    line
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.subject, self.cause, self.next)
    }
}

impl fmt::Debug for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {self}", self.code.id)
    }
}

impl core::error::Error for Diagnosis {}

/// Turns any error into a [`Diagnosis`] about a subject.
pub trait WithSubject<T> {
    /// Converts an error to a fault of kind `code` about `subject`, with the error as its cause.
    fn about(
        self,
        code: &'static Code,
        subject: impl fmt::Display,
        next: impl fmt::Display,
    ) -> Result<T, Diagnosis>;
}

impl<T, E: fmt::Display> WithSubject<T> for Result<T, E> {
    fn about(
        self,
        code: &'static Code,
        subject: impl fmt::Display,
        next: impl fmt::Display,
    ) -> Result<T, Diagnosis> {
        self.map_err(|cause| Diagnosis::new(code, subject, cause, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn causes_are_folded_into_one_sentence() {
        let d = Diagnosis::new(&crate::codes::FILE_MISSING, "a.mp4", "no such\n  file.", "check the path");
        assert_eq!(d.to_string(), "a.mp4: no such file; check the path");
        assert_eq!(d.clone().with_detail(" no such file.\n").detail, None);
        let whole = d.with_detail("no such file.\nat line 3");
        assert_eq!(whole.detail.as_deref(), Some("no such file.\nat line 3"));
        assert_eq!(whole.to_string(), "a.mp4: no such file; check the path");
    }

    #[test]
    fn a_subject_is_never_empty() {
        for (subject, shown) in [
            (".", "."),
            ("..", ".."),
            ("out/.", "out/."),
            ("two  spaces ...", "two  spaces ..."),
            ("", "\"\""),
            (" ", "\" \""),
            ("a\nb", "a b"),
        ] {
            let diagnosis = Diagnosis::new(&crate::codes::FILE_MISSING, subject, "cause", "next");
            assert_eq!(diagnosis.subject, shown);
        }
    }
}
