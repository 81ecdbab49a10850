//! Faults, and the report of a command that fails.

use orinoco_core::Diagnosis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Schema name of [`ErrorReport`].
pub const ERROR_SCHEMA: &str = "orinoco.error/1";

/// Report that a command prints with `--json` when it fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorReport {
    /// Name and version of this contract.
    #[schemars(extend("const" = ERROR_SCHEMA))]
    pub schema: String,
    /// Every fault, in the order in which they were found. The first one decides the exit code.
    pub faults: Vec<Fault>,
}

impl ErrorReport {
    /// Creates a report of `faults`.
    pub fn new(faults: &[Diagnosis]) -> Self {
        Self { schema: ERROR_SCHEMA.to_owned(), faults: faults.iter().map(Fault::from).collect() }
    }
}

/// A fault that a user can correct, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fault {
    /// Stable code, such as `E0107`; `orinoco explain E0107` prints its page.
    pub code: String,
    /// File, key, URI, model or peer with the fault.
    pub subject: String,
    /// Cause of the fault.
    pub cause: String,
    /// Next step that may correct the fault.
    pub next: String,
    /// Cause in full; absent where `cause` is not shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl From<&Diagnosis> for Fault {
    fn from(d: &Diagnosis) -> Self {
        Self {
            code: d.code.id.to_owned(),
            subject: d.subject.clone(),
            cause: d.cause.clone(),
            next: d.next.clone(),
            detail: d.detail.clone(),
        }
    }
}
