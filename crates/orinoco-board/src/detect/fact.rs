//! Answers with their sources, and files that gave none.

/// Value with the file from which it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact<T> {
    /// Value.
    pub value: T,
    /// Path on the board, or several that decide together.
    pub source: String,
}

impl<T> Fact<T> {
    /// Creates the fact that `source` gives `value`.
    pub(crate) fn new(value: T, source: impl Into<String>) -> Self {
        Self { value, source: source.into() }
    }

    /// Converts the value and keeps the source.
    pub(crate) fn map<U>(self, convert: impl FnOnce(T) -> U) -> Fact<U> {
        Fact { value: convert(self.value), source: self.source }
    }
}

/// File that gave no value, or a wrong one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Key of the answer for which the file was read, as in [`Detection::unknown`](crate::Detection::unknown).
    pub key: &'static str,
    /// Path on the board.
    pub path: String,
    /// Cause, such as `does not exist`.
    pub cause: String,
    /// Whether the file is merely not there.
    pub is_absent: bool,
}
