use serde::{Deserialize, Serialize};

/// Name of the contract of [`ExplanationJson`].
pub const EXPLANATION_SCHEMA: &str = "orinoco.explanation/1";

/// Reasons for the choice of the algorithm of a collective operation: what each would take, and what the operation took. Times are in
/// microseconds, to the nanosecond.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ExplanationJson {
    /// Algorithm that is used, such as `two-shot`.
    pub algorithm: String,
    /// Least time that any algorithm takes on these links, in microseconds.
    pub bound_us: f64,
    /// Bytes of the largest vector of any rank.
    pub bytes: usize,
    /// Algorithms that could be used, the fastest one first.
    pub candidates: Vec<AlgorithmCandidateJson>,
    /// Data type of its elements, such as `f32`.
    pub data_type: String,
    /// Times of the calls so far at this rank; null if there were none.
    pub measured: Option<MeasuredTimesJson>,
    /// Operation, such as `all_reduce`.
    pub operation: String,
    /// Number of ranks.
    pub ranks: usize,
}

/// Algorithm that could be used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct AlgorithmCandidateJson {
    /// Algorithm, such as `two-shot`.
    pub algorithm: String,
    /// Predicted time of the slowest rank in a benchmark that times each call after a barrier, in microseconds.
    pub predicted_after_barrier_us: f64,
    /// Predicted time until the last rank has finished, if all begin at once, in microseconds.
    pub predicted_at_once_us: f64,
}

/// Times of an operation's last calls at one rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct MeasuredTimesJson {
    /// `bound_us` divided by the median; null if the median is 0.
    pub bound_share: Option<f64>,
    /// Number of calls.
    pub calls: usize,
    /// Time of the last call, in microseconds.
    pub last_us: f64,
    /// Median of the last calls, at most 32, in microseconds.
    pub median_us: f64,
}
