//! Fault of a text that is not a source URI.

/// Reason why a text is no source, and what to write instead.
pub(crate) struct Fault {
    pub(crate) cause: String,
    pub(crate) next: String,
}

impl Fault {
    pub(crate) fn new(cause: impl Into<String>, next: impl Into<String>) -> Self {
        Self { cause: cause.into(), next: next.into() }
    }
}
