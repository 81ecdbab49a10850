//! Report of `orinoco doctor`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Schema name of [`DoctorReport`].
pub const DOCTOR_SCHEMA: &str = "orinoco.doctor/1";

/// Everything of this machine that Orinoco can use, and the reasons why other things cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorReport {
    /// Name and version of this contract.
    #[schemars(extend("const" = DOCTOR_SCHEMA))]
    pub schema: String,
    /// Parts by group: the board, engines and GPU, sources, sensors, the machine, the board file.
    pub parts: Vec<MachinePart>,
    /// Operating system, by which the commands in `fix` were chosen; null where it is not known.
    pub system: Option<String>,
    /// Verdict on the board file; null where none was named.
    pub board_file: Option<BoardFileVerdict>,
}

/// Part of a machine, or of its software, that Orinoco can use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachinePart {
    /// Kind of the part: `engine`, `gpu`, `video` or `camera`; `board`, `conflict`, `gstreamer`, `decoder`, `encoder`, `source`,
    /// `rail`, `temperature`, `clock`, `sensor`, `memory`, `disk` or `device`; of a board file `model`, `stream`, `sink`, `plan`,
    /// `trial` or `governor`.
    pub kind: String,
    /// Name of the part.
    pub name: String,
    /// Whether it can be used here.
    pub ok: bool,
    /// Version, purpose or value of the part; where `ok` is false, the reason.
    pub says: String,
    /// Group of the part: `board`, `engines`, `sources`, `sensors`, `machine` or `board file`.
    pub group: String,
    /// Result of the check.
    pub state: PartState,
    /// Commands that correct it, for a shell, in this order; empty where none is known for this operating system.
    pub fix: Vec<String>,
    /// Next step in words, where a command is not enough; else null.
    pub next: Option<String>,
}

/// Result of the check of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartState {
    /// It can be used: it was used, or read.
    Ok,
    /// It is not here.
    Missing,
    /// It is here and cannot be used.
    Broken,
    /// It was not checked, or does not tell.
    NotChecked,
}

/// Whether a board file can run on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoardFileVerdict {
    /// Path of the board file.
    pub file: String,
    /// Name of the board.
    pub board: String,
    /// Whether it can run here.
    pub can_run: bool,
}
