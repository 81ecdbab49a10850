//! Fault of a text that is not a source URI.

use orinoco_core::{Diagnosis, codes};

/// Reason why a text is no source, and what to write instead.
pub(crate) struct Fault {
    pub(crate) cause: String,
    pub(crate) next: String,
}

impl Fault {
    pub(crate) fn new(cause: impl Into<String>, next: impl Into<String>) -> Self {
        Self { cause: cause.into(), next: next.into() }
    }

    /// Converts it to a fault of the text that is called `shown` in messages.
    pub(crate) fn about(&self, shown: &str) -> Diagnosis {
        Diagnosis::new(&codes::SOURCE_URI, shown, &self.cause, &self.next)
    }
}
