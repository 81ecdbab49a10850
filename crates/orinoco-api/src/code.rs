//! Report of `orinoco explain`.

use orinoco_core::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Schema name of [`CodeList`].
pub const CODES_SCHEMA: &str = "orinoco.codes/1";

/// Error codes with their explanations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CodeList {
    /// Name and version of this contract.
    #[schemars(extend("const" = CODES_SCHEMA))]
    pub schema: String,
    /// All codes in order, or the requested one.
    pub codes: Vec<CodePage>,
}

impl CodeList {
    /// Creates the list of `codes`.
    pub fn new<'a>(codes: impl IntoIterator<Item = &'a Code>) -> Self {
        Self { schema: CODES_SCHEMA.to_owned(), codes: codes.into_iter().map(CodePage::from).collect() }
    }
}

/// Explanation of one error code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CodePage {
    /// Stable code, such as `E0107`.
    pub code: String,
    /// Exit code of a command that fails with this error.
    pub exit: u8,
    /// Short name of the fault.
    pub title: String,
    /// Full explanation, with the next steps.
    pub page: String,
}

impl From<&Code> for CodePage {
    fn from(code: &Code) -> Self {
        Self {
            code: code.id.to_owned(),
            exit: code.exit as u8,
            title: code.title.to_owned(),
            page: code.page.to_owned(),
        }
    }
}
