//! Report of `orinoco perf`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model_card::{Measured, Uncertain};

/// Name and version of the contract of [`PerfReport`].
pub const PERF_SCHEMA: &str = "orinoco.perf/1";

/// Times of a collective operation, by size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PerfReport {
    /// Name and version of this contract.
    #[schemars(extend("const" = PERF_SCHEMA))]
    pub schema: String,
    /// Operation, such as `all_reduce`.
    pub operation: String,
    /// Data type of the elements.
    #[serde(rename = "type")]
    pub data_type: String,
    /// Reduction, such as `sum`; null for operations that only copy.
    pub redop: Option<String>,
    /// Order in which the reduction combines values: `reproducible` or `fast`; null for operations that only copy.
    #[serde(default)]
    pub order: Option<String>,
    /// Algorithm that was demanded for every size; null if it is chosen by size.
    #[serde(default)]
    pub algorithm: Option<String>,
    /// Whether algorithms were chosen by measured links.
    #[serde(default)]
    pub tuned: bool,
    /// Number of ranks.
    pub ranks: usize,
    /// Transport: `shm`, `tcp` (encrypted), `tcp-plaintext`, `rdma` or `pcie`.
    pub transport: String,
    /// Processor cores that the ranks share.
    pub cores: usize,
    /// Timed calls of each size, at most: large sizes have fewer.
    pub iterations: u32,
    /// Median time of the shortest exchange without the library, in microseconds. With `shm` every rank raises a flag and sees those of
    /// all others, with `tcp` ranks 0 and 1 exchange 8 bytes. 0 if it is not known, as over RDMA and PCIe.
    pub exchange_us: f64,
    /// Rate at which a rank can receive, in bytes per second. With `shm` it copies what another has just written, with `tcp` rank 0
    /// receives from rank 1 and sends as much. 0 if it is not known.
    pub copy_bytes_per_s: f64,
    /// Figures by size, in increasing order.
    pub rows: Vec<PerfRow>,
}

/// Times of a collective operation for one size. A call is timed after a barrier, and the slowest rank counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PerfRow {
    /// Size in bytes, as nccl-tests counts it: that of the largest buffer of a rank.
    pub bytes: u64,
    /// Elements of the buffer that nccl-tests counts: of the input, but of the output for a reduce-scatter.
    pub count: u64,
    /// Timed calls.
    pub iterations: u32,
    /// Median time, in microseconds.
    pub p50_us: f64,
    /// Time that 99 % of the calls did not exceed, in microseconds.
    pub p99_us: f64,
    /// Bytes divided by the median time, in bytes per second.
    pub algbw: f64,
    /// `algbw` times the share of the bytes that each link must carry, in bytes per second: see nccl-tests.
    pub busbw: f64,
    /// Least time that this machine allows divided by the median time, 0 to 1: the larger of a bare exchange and of the bytes that
    /// each rank must read from others. 0 if the limits are not known.
    pub limit_share: f64,
    /// Elements of all ranks that differ from the expected result; null if results were not checked.
    pub wrong: Option<u64>,
    /// Energy above the idle power; absent without `--energy`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub energy: Option<Measured<PerfEnergy>>,
    /// Choice of the algorithm; absent without `--explain`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub explanation: Option<PerfExplanation>,
}

/// Energy of a collective operation above the idle power, added up over the boards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PerfEnergy {
    /// Joules for each gigabyte (10^9 bytes) of the size.
    pub joules_per_gb: Uncertain,
    /// Joules of one call.
    pub joules_per_call: Uncertain,
    /// Power of the idle boards, in watts.
    pub idle_watts: Uncertain,
    /// Number of boards that were measured.
    pub boards: u64,
    /// Names of the rails in the total, on the board of rank 0.
    pub rails: Vec<String>,
}

/// Choice of an operation's algorithm for one size, by the measured costs of messages, copies and reductions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PerfExplanation {
    /// Algorithm that was used, such as `two-shot`.
    pub algorithm: String,
    /// Its predicted time after a barrier that ranks reach at different times, in microseconds.
    pub predicted_us: f64,
    /// Least time that any algorithm takes on these links, in microseconds.
    pub bound_us: f64,
    /// `bound_us` divided by the median time.
    pub bound_share: f64,
    /// All algorithms that could be used, the fastest one first.
    pub candidates: Vec<PerfCandidate>,
}

/// Algorithm that could be used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PerfCandidate {
    /// Algorithm, such as `two-shot`.
    pub algorithm: String,
    /// Its predicted time after a barrier that ranks reach at different times, in microseconds.
    pub predicted_us: f64,
}
