//! Operations to explain, and explanations as JSON.

use std::time::Duration;

use orinoco_api::{AlgorithmCandidateJson, ExplanationJson, MeasuredTimesJson};
use orinoco_collective::{Candidate, Collective, DataType, Explanation, Measured};

use crate::fault::Fault;

/// Operation: `orinoco_barrier`.
pub const ORINOCO_BARRIER: u32 = 0;
/// Operation: `orinoco_broadcast`.
pub const ORINOCO_BROADCAST: u32 = 1;
/// Operation: `orinoco_reduce`.
pub const ORINOCO_REDUCE: u32 = 2;
/// Operation: `orinoco_all_reduce`.
pub const ORINOCO_ALL_REDUCE: u32 = 3;
/// Operation: `orinoco_all_gather`.
pub const ORINOCO_ALL_GATHER: u32 = 4;
/// Operation: `orinoco_reduce_scatter`.
pub const ORINOCO_REDUCE_SCATTER: u32 = 5;
/// Operation: `orinoco_scatter`.
pub const ORINOCO_SCATTER: u32 = 6;
/// Operation: `orinoco_gather`.
pub const ORINOCO_GATHER: u32 = 7;
/// Operation: `orinoco_all_to_all`.
pub const ORINOCO_ALL_TO_ALL: u32 = 8;

/// Most bytes of the largest vector of an operation that is explained: the memory of the largest boards. A price has an entry for each piece
/// of 512 KiB.
const EXPLAINED_BYTES_MAX: u64 = 64 << 30;

/// The operation with this number among so many ranks. `count` is that of the function in C.
pub(crate) fn collective(
    operation: u32,
    count: usize,
    data_type: DataType,
    root: usize,
    ranks: usize,
) -> Result<Collective, Fault> {
    let counts = || vec![count; ranks];
    let collective = match operation {
        ORINOCO_BARRIER => return Ok(Collective::Barrier),
        ORINOCO_BROADCAST => Collective::Broadcast { root, count },
        ORINOCO_REDUCE => Collective::Reduce { root, count },
        ORINOCO_ALL_REDUCE => Collective::AllReduce { count },
        ORINOCO_ALL_GATHER => Collective::AllGather { counts: counts() },
        ORINOCO_REDUCE_SCATTER => Collective::ReduceScatter { counts: counts() },
        ORINOCO_SCATTER => Collective::Scatter { root, counts: counts() },
        ORINOCO_GATHER => Collective::Gather { root, counts: counts() },
        ORINOCO_ALL_TO_ALL => Collective::all_to_all(ranks, count),
        other => {
            return Err(Fault::argument(format!(
                "{other} is no operation that can be explained; see ORINOCO_BARRIER and those after it"
            )));
        }
    };
    let blocks = if has_blocks(operation) { ranks } else { 1 };
    let bytes = (count as u64)
        .checked_mul(blocks as u64)
        .and_then(|count| count.checked_mul(data_type.size() as u64));
    match bytes {
        Some(bytes) if bytes <= EXPLAINED_BYTES_MAX => Ok(collective),
        _ => Err(Fault::argument(format!(
            "a vector of {collective} has more than {} GiB, the most that can be explained",
            EXPLAINED_BYTES_MAX >> 30
        ))),
    }
}

/// Whether an operation has a vector with a block for each rank.
fn has_blocks(operation: u32) -> bool {
    operation >= ORINOCO_ALL_GATHER
}

/// Describes an explanation as one JSON object. Times are in us.
pub(crate) fn json(explanation: &Explanation) -> String {
    let object = ExplanationJson {
        algorithm: explanation.chosen.to_string(),
        bound_us: micros(explanation.bound),
        bytes: explanation.bytes,
        candidates: explanation.candidates.iter().map(candidate).collect(),
        data_type: explanation.data_type.to_string(),
        measured: explanation.measured.map(|times| measured(times, explanation.bound_share())),
        operation: explanation.operation.clone(),
        ranks: explanation.ranks,
    };
    serde_json::to_string(&object).expect("an explanation has only strings and finite numbers")
}

fn candidate(candidate: &Candidate) -> AlgorithmCandidateJson {
    AlgorithmCandidateJson {
        algorithm: candidate.algorithm.to_string(),
        predicted_after_barrier_us: micros(candidate.predicted_after_barrier),
        predicted_at_once_us: micros(candidate.predicted),
    }
}

fn measured(times: Measured, bound_share: Option<f64>) -> MeasuredTimesJson {
    let Measured { calls, last, median } = times;
    MeasuredTimesJson { bound_share, calls, last_us: micros(last), median_us: micros(median) }
}

/// Microseconds, to the nanosecond.
fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}
