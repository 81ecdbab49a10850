//! The serialised contracts: what `--json` prints and result files hold. Within a version, fields are only added.
//!
//! Read first: [`ResultLine`] and [`Summary`].

mod fault;
mod result;
mod summary;

pub use fault::Fault;
pub use result::{
    ClassJson, ClassMapJson, DetectionJson, MaskJson, ObjectJson, RESULT_SCHEMA, ResultLine, TensorJson,
};
pub use summary::{
    Dropped, EndState, LaneMemory, LineSummary, MemorySummary, ModelMemory, ModelSummary, PlannedMemory,
    PowerSummary, RefusedJson, SUMMARY_SCHEMA, StageSummary, StreamSummary, Summary, TrackedSummary,
    ZoneSummary,
};
