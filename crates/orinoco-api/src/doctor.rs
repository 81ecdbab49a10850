//! What `orinoco doctor` prints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema name of [`DoctorReport`].
pub const DOCTOR_SCHEMA: &str = "orinoco.doctor/1";

/// What this machine has for Orinoco, and why it lacks the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorReport {
    /// Name and version of this contract.
    #[schemars(extend("const" = DOCTOR_SCHEMA))]
    pub schema: String,
    /// Engines, then GPU, video hardware and cameras.
    pub parts: Vec<MachinePart>,
}

/// A part of a machine, or of its software, that Orinoco can use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachinePart {
    /// What it is: `engine`, `gpu`, `video` or `camera`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Whether it can be used here.
    pub ok: bool,
    /// Its version or purpose; where `ok` is false, the reason.
    pub says: String,
}
