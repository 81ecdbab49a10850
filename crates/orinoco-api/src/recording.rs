use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Schema name of [`BoardRecording`].
pub const BOARD_RECORDING_SCHEMA: &str = "orinoco.board-recording/1";

/// Result of recording a board.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoardRecording {
    /// Name and version of this contract.
    #[schemars(extend("const" = BOARD_RECORDING_SCHEMA))]
    pub schema: String,
    /// Path of the archive.
    pub output: String,
    /// Size of the archive, in bytes.
    pub bytes: u64,
    /// Time from the start to the last round, in seconds.
    pub seconds: f64,
    /// Number of rounds in which values were read.
    pub rounds: u32,
    /// Number of rounds that were missed because reading took longer than a round.
    pub missed_rounds: u32,
    /// Number of files.
    pub files: usize,
    /// Number of contents of all files together, the first of each included.
    pub contents: usize,
    /// Whether the recording ended early because it reached its maximum size.
    pub cut_short: bool,
    /// Files that were left out, and texts that were replaced, each with the reason.
    pub left_out: Vec<String>,
}
