use serde::{Deserialize, Serialize};

/// Name of the contract of [`RecordingManifest`].
pub const RECORDING_SCHEMA: &str = "orinoco.recording/1";
/// Name of the contract of [`RecordingIndexEntry`].
pub const RECORDING_INDEX_SCHEMA: &str = "orinoco.recording-index/1";
/// Name of the contract of [`RecordingTimelineEntry`].
pub const RECORDING_TIMELINE_SCHEMA: &str = "orinoco.recording-timeline/1";

/// Entry `recording.json` of a recording of a board, the last one of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RecordingManifest {
    /// Name and version of this contract, and of the archive.
    #[cfg_attr(feature = "schemas", schemars(extend("const" = RECORDING_SCHEMA)))]
    pub schema: String,
    /// Whether the board has no other files: false in a recording of a real board, true in a synthetic one.
    pub complete: bool,
    /// Time from the start to the last reading of the values, in nanoseconds.
    pub duration_ns: u64,
    /// Number of contents that all files had together, the first of each file included.
    pub contents: usize,
}

/// Line of the entry `index.jsonl` of a recording: the names in a folder, or the reason why a path gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RecordingIndexEntry {
    /// Absolute path on the board.
    pub path: String,
    /// Names in the folder; absent where there is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// Reason why the folder could not be listed, or the file not be read; absent where there are names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether the error is of a folder; absent if it is not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub folder: bool,
}

/// Line of the entry `timeline.jsonl` of a recording: what a file contained from a later time
/// on. Exactly one of `text`, `hex` and `error` is present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RecordingTimelineEntry {
    /// Time since the start of the recording, in nanoseconds.
    pub t: u64,
    /// Absolute path of the file on the board.
    pub path: String,
    /// Content that is UTF-8 without control characters but line breaks and tabs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Any other content, as two hexadecimal digits for each byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hex: Option<String>,
    /// Reason why the file could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
