//! What `orinoco memory` prints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::LaneMemory;

/// The schema name of [`MemoryReport`].
pub const MEMORY_SCHEMA: &str = "orinoco.memory/1";

/// The memory plan of a board. Sizes and offsets are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryReport {
    /// Name and version of this contract.
    #[schemars(extend("const" = MEMORY_SCHEMA))]
    pub schema: String,
    /// The budget, of the board file or of `--budget`.
    pub budget_bytes: u64,
    /// What the plan takes of it.
    pub total_bytes: u64,
    /// Areas; each is mapped by itself.
    pub areas: Vec<MemoryArea>,
    /// What is allocated in addition, of a size that is known only once its stream runs.
    #[serde(default)]
    pub uncounted: Vec<UncountedMemory>,
    /// What a run used; absent without `--frames`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub used: Option<MemoryUse>,
}

/// One area of a plan, in whole pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryArea {
    /// The model, lane or stream that it is for.
    pub name: String,
    /// What it holds: `weights`, `scratch`, `inputs, outputs` or `frames`.
    pub kind: String,
    /// Which memory it is in: `host`, `pinned` or `device`.
    pub domain: String,
    /// Sum of the areas before it in its domain, in bytes. It is no address.
    pub offset: u64,
    /// Its size, in bytes.
    pub bytes: u64,
    /// How the size is known: `computed` from sizes that the board gives, or `measured` in a run of the model.
    #[serde(default)]
    pub basis: String,
    /// What shares it. Spans of models of one lane overlap: these models never run at the same time.
    pub spans: Vec<MemorySpan>,
}

/// Memory whose size is known only once its stream runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UncountedMemory {
    /// The stream.
    pub name: String,
    /// What it is: `decoder buffers`.
    pub what: String,
}

/// A part of an area.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemorySpan {
    /// The model, tensor or stream that it is for.
    pub name: String,
    /// Where it begins in its domain, in bytes.
    pub offset: u64,
    /// Its size, in bytes.
    pub bytes: u64,
}

/// What a run used of a plan. Models and streams are measured by the growth of the process, which is the host's memory
/// alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryUse {
    /// Frames of all streams.
    pub frames: u64,
    /// Growth while models were loaded and bound, with what an engine sets up once for all of them, in bytes.
    pub models_bytes: u64,
    /// The scratch area of each lane.
    pub lanes: Vec<LaneMemory>,
    /// Growth from then to the end, without the lanes' areas, in bytes: frames, and what decoders take for themselves.
    pub streams_bytes: u64,
}
