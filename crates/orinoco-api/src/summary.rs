//! Summary that a run prints at its end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ClusterStatus, EnergyFigure, Fault};

/// Schema name of [`Summary`].
pub const SUMMARY_SCHEMA: &str = "orinoco.summary/1";

/// Statistics of a run: its streams, models, memory, power and faults.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Name and version of this contract.
    #[schemars(extend("const" = SUMMARY_SCHEMA))]
    pub schema: String,
    /// Name of the board; `foreground` where there is no board file.
    pub board: String,
    /// Outcome of the run.
    pub end: EndState,
    /// Wall time from the first source's start to the last sink's end, in seconds.
    pub wall_s: f64,
    /// Streams that ran at the end, and the last 1,000 that ended before.
    pub streams: Vec<StreamSummary>,
    /// Totals of streams that ended earlier, by name; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub older_streams: Vec<StreamTotals>,
    /// Models with their engines: those of the board at the end, and the last 1,000 that were removed before.
    pub models: Vec<ModelSummary>,
    /// Totals of models that were removed earlier, by name; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub older_models: Vec<ModelTotals>,
    /// Resident memory of the process.
    pub memory: MemorySummary,
    /// Power of the board.
    pub power: PowerSummary,
    /// The cluster as this board's seat saw it when the streams had ended; absent where the board file has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cluster: Option<ClusterStatus>,
    /// Output files that are complete.
    pub files: Vec<String>,
    /// Output files without their end, because their writer failed.
    #[serde(default)]
    pub incomplete: Vec<String>,
    /// Faults that occurred.
    pub faults: Vec<Fault>,
}

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EndState {
    /// Every source reached its end.
    Complete,
    /// Ctrl-C or SIGTERM ended the run.
    Interrupted,
    /// A source, engine or sink failed permanently, or the thread of the sensors or of the governor.
    Failed,
}

/// Statistics of one stream.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StreamSummary {
    /// Name of the stream.
    pub name: String,
    /// URI of the source, without secrets.
    pub source: String,
    /// GStreamer element that decodes or captures the source; absent where there was no choice.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decoder: Option<String>,
    /// Processor time of the decoder in milliseconds, where it works in one thread of the host; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decoder_cpu_ms: Option<f64>,
    /// Last state of the source: `connecting`, `live`, `stalled`, `backing-off` or `ended`.
    pub state: String,
    /// Frames that the source delivered or reported as lost.
    pub frames_in: u64,
    /// Frames that passed every model and sink.
    pub frames_out: u64,
    /// Dropped frames by cause, without causes that never occurred.
    pub dropped: Vec<Dropped>,
    /// Frames later than the stream's bound.
    pub late: u64,
    /// Scheduled reconnections: one after each loss of the source and after each failed attempt.
    pub reconnects: u64,
    /// Outage times: from the loss of the source to its next frame. Absent where the source never recovered from an
    /// outage.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recovery: Option<StageSummary>,
    /// Throughput in frames per second, from the arrival of the first finished frame to the end of the last one.
    pub fps: f64,
    /// Detected objects of all models.
    pub detections: u64,
    /// Energy of one frame in all models, above the idle power; absent where the board measures no power.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub energy_per_frame: Option<EnergyFigure>,
    /// Energy of all frames in all models, above the idle power, in joules, without what could not be measured; absent where
    /// nothing was measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub energy_j: Option<f64>,
    /// Counts of tracked objects; absent where tracking is disabled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tracked: Option<TrackedSummary>,
    /// Percentiles of each stage, without stages that have no samples.
    pub stages: Vec<StageSummary>,
}

/// Totals of the streams with one name that ended before those in `streams`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct StreamTotals {
    /// Name of the streams; "(others)" for all names after the first 1,000.
    pub name: String,
    /// Number of streams.
    pub streams: u64,
    /// Frames that their sources delivered or reported as lost.
    pub frames_in: u64,
    /// Frames that passed every model and sink.
    pub frames_out: u64,
    /// Dropped frames by cause, without causes that never occurred.
    pub dropped: Vec<Dropped>,
    /// Scheduled reconnections: one after each loss of a source and after each failed attempt.
    pub reconnects: u64,
    /// Frames later than their stream's bound.
    #[serde(default)]
    pub late: u64,
    /// Detected objects of all models.
    #[serde(default)]
    pub detections: u64,
    /// Processor time of the decoders in milliseconds, of the streams of which it is known; absent where it is known of none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decoder_cpu_ms: Option<f64>,
    /// Energy of all frames in all models, above the idle power, in joules, without what could not be measured; absent where
    /// nothing was measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub energy_j: Option<f64>,
    /// Counts of tracked objects, of the first 100 zones and lines by name and of "(others)"; absent where no stream tracked
    /// objects.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tracked: Option<TrackedSummary>,
}

/// Counts of tracked objects, for all models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrackedSummary {
    /// Objects that got a track id.
    pub objects: u64,
    /// Counts of each zone; absent where there are no zones.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub zones: Vec<ZoneSummary>,
    /// Counts of each line; absent where there are no lines.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub lines: Vec<LineSummary>,
}

/// Counts of tracked objects in one zone. An object counts again each time. `inside` = `appeared` + `entered` - `left`
/// - `vanished`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ZoneSummary {
    /// Name of the zone.
    pub name: String,
    /// Objects inside the zone at the end.
    pub inside: u64,
    /// Objects whose track began inside the zone.
    pub appeared: u64,
    /// Objects that entered the zone.
    pub entered: u64,
    /// Objects that left the zone.
    pub left: u64,
    /// Objects whose track ended inside the zone.
    pub vanished: u64,
}

/// Crossings of one line. Side A is left of the direction from the line's first end to its second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LineSummary {
    /// Name of the line.
    pub name: String,
    /// Crossings from side A to side B.
    pub a_to_b: u64,
    /// Crossings from side B to side A.
    pub b_to_a: u64,
}

/// Number of frames dropped for one cause.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Dropped {
    /// Cause: `lost-at-source`, `drop-oldest`, `drop-newest`, `sink-behind`, `sink-failed`, `replay-failed` or
    /// `shutdown`.
    pub cause: String,
    /// Number of dropped frames.
    pub frames: u64,
}

/// Percentiles of a stage's time or of outage times, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageSummary {
    /// Stage: `capture`, `decode`, `queue`, `preprocess`, `infer`, `postprocess`, `sink`, `total` or
    /// `capture-to-result`; `recovery` for outage times.
    pub stage: String,
    /// Number of samples.
    pub count: u64,
    /// Median, in microseconds.
    pub p50_us: f64,
    /// 90th percentile, in microseconds.
    pub p90_us: f64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
    /// 99.9th percentile, in microseconds.
    pub p999_us: f64,
    /// Maximum, in microseconds.
    pub max_us: f64,
}

/// Statistics of one model.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ModelSummary {
    /// Name of the model on the board.
    pub name: String,
    /// Path of the ONNX file.
    pub file: String,
    /// Name of the engine that executed the model.
    pub engine: String,
    /// Version of the engine.
    pub engine_version: String,
    /// Maximum batch size, in images.
    pub batch: usize,
    /// Number of images: frames, and objects in frames.
    #[serde(default, rename = "pictures")]
    pub images: u64,
    /// Number of inferences, each of one batch.
    #[serde(default, rename = "replays")]
    pub inferences: u64,
    /// Percentiles of the stages of one inference, with preprocessing and postprocessing; absent where there was none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stages: Vec<StageSummary>,
    /// Launch sequences that the GPU's driver could not capture, so their kernels were launched one by one.
    #[serde(default)]
    pub graph_fallbacks: u64,
    /// Values that were left out because the model gave no finite number: candidates for detections, keypoints,
    /// classes, cells of a map, embeddings. In raw tensors, the number of elements that are not finite.
    #[serde(default)]
    pub not_finite: u64,
    /// Energy of one image above the idle power; absent where the board measures no power.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub energy_per_image: Option<EnergyFigure>,
    /// Energy of all images above the idle power, in joules, without what could not be measured; absent where nothing was
    /// measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub energy_j: Option<f64>,
    /// Seat of the cluster that executes the model for this board; absent if this board executes it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remote: Option<RemoteSummary>,
    /// Engines earlier in the order of preference, with the reason why each could not execute the model.
    pub refused: Vec<RefusedJson>,
}

/// Totals of the models with one name that were removed before those in `models`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ModelTotals {
    /// Name of the models on the board; "(others)" for all names after the first 1,000.
    pub name: String,
    /// Number of models.
    pub models: u64,
    /// Number of images: frames, and objects in frames.
    pub images: u64,
    /// Number of inferences, each of one batch.
    pub inferences: u64,
    /// Launch sequences that the GPU's driver could not capture.
    pub graph_fallbacks: u64,
    /// Values that were left out because a model gave no finite number.
    pub not_finite: u64,
    /// Energy of all images above the idle power, in joules, without what could not be measured; absent where nothing was
    /// measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub energy_j: Option<f64>,
    /// Number of images that another seat of the cluster inferred.
    pub remote_images: u64,
    /// Images that another seat should have inferred and did not; causes without images are left out.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub missed: Vec<MissedImages>,
}

/// Images of a model that another seat of the cluster executes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RemoteSummary {
    /// Name of the seat.
    pub seat: String,
    /// Treatment of images that the seat does not infer: `local` (this board infers them) or `skip`.
    pub fallback: String,
    /// Number of images that the seat inferred.
    pub images: u64,
    /// Images that it did not infer; causes without images are left out.
    pub missed: Vec<MissedImages>,
}

/// Images that another seat did not infer, for one cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MissedImages {
    /// Cause: `offline`, `overloaded`, `late` or `failed`.
    pub cause: String,
    /// Number of images.
    pub images: u64,
}

/// Engine that could not execute a model.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RefusedJson {
    /// Name of the engine.
    pub engine: String,
    /// Reason why the engine could not be used.
    pub why: String,
}

/// Resident memory of the process, in bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct MemorySummary {
    /// Highest value during the run, as the kernel counts it.
    pub peak_bytes: u64,
    /// Value after the first 500 frames of all streams; absent in shorter runs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub warm_bytes: Option<u64>,
    /// Value at the end, shortly before the last source ended, while the models were still loaded.
    pub end_bytes: u64,
    /// Planned and used memory; absent where the board has no budget.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub planned: Option<PlannedMemory>,
}

/// Planned memory compared with the memory in use, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedMemory {
    /// Memory budget of the board.
    pub budget_bytes: u64,
    /// Total of the plan that was admitted last: at the start, or by a reload.
    pub total_bytes: u64,
    /// The latest scratch area of each lane.
    pub lanes: Vec<LaneMemory>,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// Use of one lane's scratch area.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LaneMemory {
    /// Size of the area: the scratch size of the lane's largest model, in bytes.
    pub scratch_bytes: u64,
    /// Part of the area that was used, from its start to the last byte used, in bytes.
    pub used_bytes: u64,
    /// Used bytes of the area on the GPU; absent where nothing is used there.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub used_on_device_bytes: u64,
    /// Allocation requests of an engine that did not fit in the area; the system served them.
    pub outside: u64,
    /// Use of the area by each model.
    pub models: Vec<ModelMemory>,
}

/// Use of a lane's scratch area by one model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelMemory {
    /// Name of the model.
    pub model: String,
    /// Part of the area that the model used, from its start to the last byte used, in bytes.
    pub used_bytes: u64,
}

/// Power during the run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PowerSummary {
    /// Mean power of the board, in watts; absent where nothing measures it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub watts: Option<f64>,
    /// Energy of the board during the run, in joules; absent where nothing measures it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub energy_j: Option<f64>,
    /// Origin of the figures, or the reason why there are none.
    pub source: String,
}
