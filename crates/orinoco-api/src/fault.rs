use orinoco_core::Diagnosis;
use serde::{Deserialize, Serialize};

/// A [`Diagnosis`] as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Stable code: `E0107`.
    pub code: String,
    /// The file, key, URI, model or peer.
    pub subject: String,
    /// Why.
    pub cause: String,
    /// What to do.
    pub next: String,
    /// The cause in full, where `cause` is shortened.
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
