//! What a run prints at its end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Fault;

/// The schema name of [`Summary`].
pub const SUMMARY_SCHEMA: &str = "orinoco.summary/1";

/// What a run saw and what it cost.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Name and version of this contract.
    #[schemars(extend("const" = SUMMARY_SCHEMA))]
    pub schema: String,
    /// The board's name; `foreground` where there is no board file.
    pub board: String,
    /// How it ended.
    pub end: EndState,
    /// Wall time from the first source's start to the last sink's end, in seconds.
    pub wall_s: f64,
    /// Streams: all that ran at the end, and the last 1,000 that ended before.
    pub streams: Vec<StreamSummary>,
    /// Totals of older streams, by name; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub older_streams: Vec<StreamTotals>,
    /// Models and their engines.
    pub models: Vec<ModelSummary>,
    /// Resident memory.
    pub memory: MemorySummary,
    /// Power and energy.
    pub power: PowerSummary,
    /// Files written, complete.
    pub files: Vec<String>,
    /// Files whose end is missing, since what wrote them failed.
    #[serde(default)]
    pub incomplete: Vec<String>,
    /// What went wrong.
    pub faults: Vec<Fault>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EndState {
    /// Every source reached its end.
    Complete,
    /// Ctrl-C or SIGTERM.
    Interrupted,
    /// A source, engine or sink failed for good.
    Failed,
}

/// One stream.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StreamSummary {
    /// Its name.
    pub name: String,
    /// Its source, without secrets.
    pub source: String,
    /// The GStreamer element that decodes or captures it; absent where there was no choice.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decoder: Option<String>,
    /// Processor time of its decoder in milliseconds, where it works in one thread of the host; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decoder_cpu_ms: Option<f64>,
    /// The source's last state: `connecting`, `live`, `stalled`, `backing-off` or `ended`.
    pub state: String,
    /// Frames that the source delivered or reported as lost.
    pub frames_in: u64,
    /// Frames through every model and sink.
    pub frames_out: u64,
    /// Frames dropped, by cause; causes that never happened are left out.
    pub dropped: Vec<Dropped>,
    /// Frames later than the stream's bound.
    pub late: u64,
    /// Times the source was to be opened again: after a loss, or after an attempt that failed.
    pub reconnects: u64,
    /// From losing the source to its next frame, for each time that it came back; absent where it never did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recovery: Option<StageSummary>,
    /// Frames out a second, from the arrival of the first of them to the last one's end.
    pub fps: f64,
    /// Objects found, all models.
    pub detections: u64,
    /// Counts of tracked objects; absent where objects are not tracked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tracked: Option<TrackedSummary>,
    /// Percentiles by stage; stages without samples are left out.
    pub stages: Vec<StageSummary>,
}

/// Totals of the streams of one name that ended before those that are listed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct StreamTotals {
    /// Their name; "(others)" for all whose name came after 1,000 others.
    pub name: String,
    /// How many there were.
    pub streams: u64,
    /// Frames their sources delivered.
    pub frames_in: u64,
    /// Frames through every model and sink.
    pub frames_out: u64,
    /// Frames dropped, by cause; causes that never happened are left out.
    pub dropped: Vec<Dropped>,
    /// Times a source was to be opened again.
    pub reconnects: u64,
}

/// Counts of tracked objects, all models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrackedSummary {
    /// Objects that got an id.
    pub objects: u64,
    /// Counts of each zone; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub zones: Vec<ZoneSummary>,
    /// Counts of each line; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub lines: Vec<LineSummary>,
}

/// Objects in one zone, each counted once for each time. `inside` = `appeared` + `entered` - `left` - `vanished`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ZoneSummary {
    /// Its name.
    pub name: String,
    /// Objects in it at the end.
    pub inside: u64,
    /// Objects first seen in it.
    pub appeared: u64,
    /// Objects that came in.
    pub entered: u64,
    /// Objects that went out.
    pub left: u64,
    /// Objects last seen in it.
    pub vanished: u64,
}

/// Crossings of one line. Side A is left of the direction from its first end to its second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LineSummary {
    /// Its name.
    pub name: String,
    /// From side A to side B.
    pub a_to_b: u64,
    /// From side B to side A.
    pub b_to_a: u64,
}

/// Frames dropped for one cause.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Dropped {
    /// The cause: `lost-at-source`, `drop-oldest`, `drop-newest`, `sink-behind`, `sink-failed`, `replay-failed` or
    /// `shutdown`.
    pub cause: String,
    /// How many frames.
    pub frames: u64,
}

/// Percentiles of one stage, or of recovery, in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StageSummary {
    /// The stage: `capture`, `decode`, `queue`, `preprocess`, `infer`, `postprocess`, `sink` or `total`; `recovery`
    /// for that.
    pub stage: String,
    /// Samples.
    pub count: u64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Longest.
    pub max_us: f64,
}

/// One model.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ModelSummary {
    /// Its name on the board.
    pub name: String,
    /// The ONNX file.
    pub file: String,
    /// The engine that served it.
    pub engine: String,
    /// That engine's version.
    pub engine_version: String,
    /// Maximum number of pictures of one inference.
    pub batch: usize,
    /// Frames, and objects in them, that it looked at.
    #[serde(default)]
    pub pictures: u64,
    /// Inferences, of one batch of pictures each.
    #[serde(default)]
    pub replays: u64,
    /// Percentiles of one inference with what is before and after it; absent where there was none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stages: Vec<StageSummary>,
    /// Captured sequences of launches that a GPU's driver refused, and that were launched call by call.
    #[serde(default)]
    pub graph_fallbacks: u64,
    /// What was left out because an output was no finite number: candidates for detections, keypoints, classes, cells of
    /// a map, embeddings; of raw tensors the elements.
    #[serde(default)]
    pub not_finite: u64,
    /// Engines before it in the order, and why each could not.
    pub refused: Vec<RefusedJson>,
}

/// An engine that could not serve a model.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RefusedJson {
    /// The engine's name.
    pub engine: String,
    /// Why.
    pub why: String,
}

/// Resident memory of the process, in bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct MemorySummary {
    /// The highest the kernel saw.
    pub peak_bytes: u64,
    /// After the first 500 frames of all streams; absent in shorter runs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub warm_bytes: Option<u64>,
    /// At the end, shortly before the last source was through: while the models were still loaded.
    pub end_bytes: u64,
    /// The plan and what was used of it; absent where the board has no budget.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub planned: Option<PlannedMemory>,
}

/// Planned memory compared with what was used of it, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedMemory {
    /// What all may take.
    pub budget_bytes: u64,
    /// What was planned.
    pub total_bytes: u64,
    /// The scratch area of each lane.
    pub lanes: Vec<LaneMemory>,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// One lane's scratch area.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LaneMemory {
    /// Its size: what the lane's largest model needs.
    pub scratch_bytes: u64,
    /// How far it was used.
    pub used_bytes: u64,
    /// How much of that is on the GPU; absent where nothing is.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub used_on_device_bytes: u64,
    /// Requests of an engine that it had no room for; the system served them.
    pub outside: u64,
    /// How far each model used it.
    pub models: Vec<ModelMemory>,
}

/// What a model used of a lane's scratch area.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelMemory {
    /// The model's name.
    pub model: String,
    /// How far it used the area, in bytes.
    pub used_bytes: u64,
}

/// Power over the run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PowerSummary {
    /// Mean power of the board in watts; absent where nothing measures it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub watts: Option<f64>,
    /// Where the figure comes from, or why there is none.
    pub source: String,
}
