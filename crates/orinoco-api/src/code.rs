//! What `orinoco explain` prints.

use orinoco_core::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema name of [`CodeList`].
pub const CODES_SCHEMA: &str = "orinoco.codes/1";

/// The pages of `orinoco explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CodeList {
    /// Name and version of this contract.
    #[schemars(extend("const" = CODES_SCHEMA))]
    pub schema: String,
    /// All codes in order, or the one that was asked for.
    pub codes: Vec<CodePage>,
}

impl CodeList {
    /// The pages of `codes`.
    pub fn new<'a>(codes: impl IntoIterator<Item = &'a Code>) -> Self {
        Self { schema: CODES_SCHEMA.to_owned(), codes: codes.into_iter().map(CodePage::from).collect() }
    }
}

/// The page of one code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CodePage {
    /// Stable code, such as `E0107`.
    pub code: String,
    /// The exit code of a command that ends with this fault.
    pub exit: u8,
    /// What the fault is, in a few words.
    pub title: String,
    /// The explanation in full.
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
