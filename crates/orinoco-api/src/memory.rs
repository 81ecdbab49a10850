//! Report of `orinoco memory`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::LaneMemory;

/// Schema name of [`MemoryReport`].
pub const MEMORY_SCHEMA: &str = "orinoco.memory/1";

/// Memory plan of a board. Sizes and offsets are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryReport {
    /// Name and version of this contract.
    #[schemars(extend("const" = MEMORY_SCHEMA))]
    pub schema: String,
    /// Memory budget, from the board file or `--budget`.
    pub budget_bytes: u64,
    /// Sum of the plan's areas.
    pub total_bytes: u64,
    /// Planned areas; each becomes a memory mapping of its own.
    pub areas: Vec<MemoryArea>,
    /// Memory that is allocated in addition, of a size that is known only when its stream runs.
    #[serde(default)]
    pub uncounted: Vec<UncountedMemory>,
    /// Memory that a run used; absent without `--frames`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub used: Option<MemoryUse>,
}

/// One area of a plan, in whole pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryArea {
    /// Model, lane or stream that uses the area.
    pub name: String,
    /// Content of the area: `weights`, `scratch`, `inputs, outputs` or `frames`.
    pub kind: String,
    /// Memory domain of the area: `host`, `pinned` or `device`.
    pub domain: String,
    /// Sum of the sizes of the areas before it in its domain, in bytes. It is not an address.
    pub offset: u64,
    /// Size of the area, in bytes.
    pub bytes: u64,
    /// Origin of the size: `computed` from sizes in the board file, or `measured` in a run of the model.
    #[serde(default)]
    pub basis: String,
    /// Parts of the area. Spans of models of one lane overlap, because these models never run at the same time.
    pub spans: Vec<MemorySpan>,
}

/// Memory whose size is known only once its stream runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UncountedMemory {
    /// Name of the stream.
    pub name: String,
    /// Kind of memory, such as `decoder buffers`.
    pub what: String,
}

/// Part of an area.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemorySpan {
    /// Model, tensor or stream that uses the part.
    pub name: String,
    /// Start of the part in its domain, in bytes.
    pub offset: u64,
    /// Size of the part, in bytes.
    pub bytes: u64,
}

/// Memory that a run used, compared with a plan. For models and streams it is the growth of the process's resident
/// memory, so only host memory counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryUse {
    /// Frames of all streams together.
    pub frames: u64,
    /// Growth while models were loaded and bound, in bytes. It includes memory that an engine sets up once for all
    /// models.
    pub models_bytes: u64,
    /// Scratch area of each lane.
    pub lanes: Vec<LaneMemory>,
    /// Growth from then to the end of the run, without the lanes' scratch areas, in bytes: frames and the decoders' own
    /// memory.
    pub streams_bytes: u64,
}
