use serde::{Deserialize, Serialize};

/// Name of the contract of [`FlightRecordJson`].
pub const FLIGHT_RECORD_SCHEMA: &str = "orinoco.flight-record/1";

/// The last operations of a group for collective operations, at most 64, as one rank has seen them. Durations are in milliseconds,
/// to the microsecond.
// Here and below, fields are in alphabetical order, so that the JSON stays as it was before these types existed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct FlightRecordJson {
    /// Message of the first failure, after which no operation is recorded; null if none has failed.
    pub failure: Option<String>,
    /// The operations, oldest first. After a failure, the last one is the one that failed.
    pub operations: Vec<OperationJson>,
    /// Number of this rank in the group.
    pub rank: usize,
    /// Waits for each rank of the group, in order. This rank's own are 0.
    pub waits: Vec<RankWaitsJson>,
}

/// Collective operation of a flight record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct OperationJson {
    /// Beginning, in whole milliseconds since the group was joined: the time at which the rank last looked at its clock before.
    pub began_ms: f64,
    /// Kind, length, element type, reduction and root: `broadcast of 1000 f32, root 0`.
    pub call: String,
    /// End, in milliseconds since the group was joined, as coarse as the beginning; null if it is under way.
    pub ended_ms: Option<f64>,
    /// The rank for which it waited longest; null if it waited for none.
    pub longest: Option<LongestWaitJson>,
    /// Number of the call on this rank, from 1 on.
    pub number: u64,
    /// Whether it has ended, and how.
    pub state: OperationStateJson,
    /// Time for which it waited for other ranks, in milliseconds.
    pub waited_ms: f64,
}

/// State of a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OperationStateJson {
    /// It has not ended.
    #[serde(rename = "under way")]
    UnderWay,
    /// It returned its result.
    Done,
    /// It returned an error.
    Failed,
}

/// Wait of an operation for the rank for which it waited longest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct LongestWaitJson {
    /// Number of the rank.
    pub rank: usize,
    /// Time of all waits of the operation for it, in milliseconds.
    pub waited_ms: f64,
}

/// Waits for one rank, since the group was joined.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RankWaitsJson {
    /// Number of waits.
    pub count: u64,
    /// Longest wait, in milliseconds.
    pub longest_ms: f64,
    /// Time of all waits together, in milliseconds.
    pub waited_ms: f64,
}
