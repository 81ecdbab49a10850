//! Report of `orinoco doctor`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Schema name of [`DoctorReport`].
pub const DOCTOR_SCHEMA: &str = "orinoco.doctor/1";

/// Engines and devices of this machine that Orinoco can use, and the reasons why others cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorReport {
    /// Name and version of this contract.
    #[schemars(extend("const" = DOCTOR_SCHEMA))]
    pub schema: String,
    /// Engines first, then the GPU, video hardware and cameras.
    pub parts: Vec<MachinePart>,
}

/// Part of a machine, or of its software, that Orinoco can use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachinePart {
    /// Kind of the part: `engine`, `gpu`, `video` or `camera`.
    pub kind: String,
    /// Name of the part.
    pub name: String,
    /// Whether it can be used here.
    pub ok: bool,
    /// Version or purpose of the part; where `ok` is false, the reason.
    pub says: String,
}
