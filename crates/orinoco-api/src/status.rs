//! State of a running board, as the control socket serves it and `orinoco status` and `orinoco top` show it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ClusterStatus, Dropped, EnergyFigure, Fault, RemoteSummary, StageEnergyFigure, StageSummary};

/// Schema name of [`Status`].
pub const STATUS_SCHEMA: &str = "orinoco.status/1";
/// Schema name of [`Health`].
pub const HEALTH_SCHEMA: &str = "orinoco.health/1";
/// Schema name of [`EventJson`].
pub const EVENT_SCHEMA: &str = "orinoco.event/1";

/// State of a running board: its streams, models, lanes, memory, sensors and energy.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Name and version of this contract.
    #[schemars(extend("const" = STATUS_SCHEMA))]
    pub schema: String,
    /// Version of the program.
    pub version: String,
    /// Name of the board.
    pub board: String,
    /// Whether every lane makes progress: the board does not hang. `/healthz` answers with it.
    pub healthy: bool,
    /// Whether all streams of the board deliver frames. `/readyz` answers with it.
    pub ready: bool,
    /// Time since the start, in seconds.
    pub uptime_s: f64,
    /// Length of the sliding window over which rates and `window` percentiles are taken, in seconds.
    pub window_s: f64,
    /// Streams that have not ended, in the order in which they joined.
    pub streams: Vec<StreamStatus>,
    /// Number of streams that have ended.
    pub streams_ended: u64,
    /// Models on the board.
    pub models: Vec<ModelStatus>,
    /// Lanes: threads that execute models.
    pub lanes: Vec<LaneStatus>,
    /// Memory of the process and of the board.
    pub memory: MemoryStatus,
    /// Readings of the board's sensors.
    pub sensors: SensorsStatus,
    /// Energy of the board, its models and streams.
    pub energy: EnergyStatus,
    /// Power and thermal governor; absent where the board file has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub governor: Option<GovernorStatus>,
    /// Cluster of boards in which this one has a seat; absent where the board file has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cluster: Option<ClusterStatus>,
    /// Latest events, oldest first.
    pub events: Vec<EventJson>,
}

/// Whether a board is alive and ready, as `/healthz` and `/readyz` answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Name and version of this contract.
    #[schemars(extend("const" = HEALTH_SCHEMA))]
    pub schema: String,
    /// State of the board: `starting`, `running`, or `unresponsive` where the run did not answer in time.
    pub state: String,
    /// Whether the board is alive: it starts, or every lane makes progress.
    pub healthy: bool,
    /// Whether the board is healthy and all of its streams deliver frames.
    pub ready: bool,
    /// Reasons why it is not healthy or not ready, as sentences; empty where it is both.
    pub reasons: Vec<String>,
}

/// State of one stream.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StreamStatus {
    /// Name of the stream.
    pub name: String,
    /// URI of the source, without secrets.
    pub source: String,
    /// State of the source: `connecting`, `live`, `stalled`, `backing-off` or `ended`; `starting` before the first.
    pub state: String,
    /// Index of the lane that executes its models.
    pub lane: usize,
    /// Names of its models, in order.
    pub models: Vec<String>,
    /// Rate of finished frames over the window, in frames per second.
    pub fps: f64,
    /// Frames that the source delivered or reported as lost.
    pub frames_in: u64,
    /// Frames that passed every model and sink.
    pub frames_out: u64,
    /// Dropped frames by cause, without causes that never occurred.
    pub dropped: Vec<Dropped>,
    /// Frames later than the stream's bound.
    pub late: u64,
    /// Late frames by the stage that took the longest share of their time, without stages that never did.
    pub late_in: Vec<LateFrames>,
    /// Scheduled reconnections: one after each loss of the source and after each failed attempt.
    pub reconnects: u64,
    /// Detected objects of all models.
    pub detections: u64,
    /// Time since the latest finished frame, in milliseconds; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub silence_ms: Option<f64>,
    /// Percentiles of each stage over the window, without stages that have no samples in it.
    pub window: Vec<StageSummary>,
    /// Percentiles of each stage over the whole run.
    pub stages: Vec<StageSummary>,
    /// Energy of one frame in all models, above the idle power; absent where the board measures no power.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub energy_per_frame: Option<EnergyFigure>,
    /// Energy of all frames in all models, above the idle power, in joules, without what could not be measured; absent where
    /// nothing was measured. An estimate, which later readings correct.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub energy_j: Option<f64>,
    /// The same as `energy_per_frame` for each stage, over all models. A single stage has a wide interval, and a short one is
    /// often not measured.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub energy_by_stage: Vec<StageEnergyFigure>,
}

/// Number of frames whose longest stage was this one.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LateFrames {
    /// The stage.
    pub stage: String,
    /// Number of late frames.
    pub frames: u64,
}

/// State of one model.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ModelStatus {
    /// Name of the model on the board.
    pub name: String,
    /// Name of the engine that executes it.
    pub engine: String,
    /// Version of the engine.
    pub engine_version: String,
    /// Maximum batch size, in images.
    pub batch: usize,
    /// Number of inferences, each of one batch.
    pub inferences: u64,
    /// Number of images: frames, and objects in frames.
    pub images: u64,
    /// Captured CUDA graphs that the driver refused.
    pub graph_fallbacks: u64,
    /// Values in the outputs that were not finite.
    pub not_finite: u64,
    /// Seat of the cluster that executes the model for this board; absent if this board executes it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remote: Option<RemoteSummary>,
    /// Percentiles of each stage over the window, per batch.
    pub window: Vec<StageSummary>,
    /// Percentiles of each stage over the whole run, per batch.
    pub stages: Vec<StageSummary>,
    /// Energy of one image above the idle power; absent where the board measures no power.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub energy_per_image: Option<EnergyFigure>,
    /// Energy of all images above the idle power, in joules, without what could not be measured; absent where nothing was
    /// measured. An estimate, which later readings correct.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub energy_j: Option<f64>,
    /// The same as `energy_per_image` for each stage. A single stage has a wide interval, and a short one is often not
    /// measured.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub energy_by_stage: Vec<StageEnergyFigure>,
}

/// State of one lane.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LaneStatus {
    /// Index of the lane.
    pub lane: usize,
    /// Batches that the lane took.
    pub batches: u64,
    /// Frames in these batches.
    pub frames: u64,
    /// Clients' requests that it executed.
    pub requests: u64,
    /// Time for which its thread has been busy, in seconds.
    pub busy_s: f64,
    /// Time for which it kept a GPU busy, in seconds.
    pub gpu_busy_s: f64,
    /// Time for which it has executed the present batch, or has done other work, in milliseconds; absent while it waits for some.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub executing_ms: Option<f64>,
    /// Name of the model that it executes; absent while it waits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// Stage of that model: `preprocess`, `infer` or `postprocess`; without a model `track` (a tracker has the results of a frame) or
    /// `change` (streams or models join, change or leave); absent while it waits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stage: Option<String>,
    /// Whether it has been at the same work for longer than the bound after which it counts as stuck.
    pub stuck: bool,
}

/// Memory of the process and of the board, in bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct MemoryStatus {
    /// Resident memory of the process.
    pub resident_bytes: u64,
    /// Memory that the board's plan admits; absent where the board has no budget.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub planned_bytes: Option<u64>,
    /// Budget of the board; absent where it has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub budget_bytes: Option<u64>,
    /// Memory of the machine; absent where it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub machine_bytes: Option<u64>,
    /// Memory of the machine that programs can still take; absent where it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub available_bytes: Option<u64>,
}

/// Readings of the board's sensors. A value that cannot be read is absent, and its reason stands in `unknown`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SensorsStatus {
    /// Power rails.
    pub rails: Vec<RailStatus>,
    /// Temperatures.
    pub temperatures: Vec<TemperatureStatus>,
    /// Devices with clocks, such as the GPU, and groups of processor cores.
    pub clocks: Vec<ClockStatus>,
    /// Share of the processor's time that was in use, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_load: Option<f64>,
    /// Fans.
    pub fans: Vec<FanStatus>,
    /// Values that cannot be read, with the reasons.
    pub unknown: Vec<UnknownValue>,
}

/// One power rail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RailStatus {
    /// Name of the rail.
    pub name: String,
    /// Voltage in volts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volts: Option<f64>,
    /// Current in amperes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub amperes: Option<f64>,
    /// Power in watts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub watts: Option<f64>,
    /// Energy since the start of the run, in joules.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub joules: Option<f64>,
}

/// One temperature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TemperatureStatus {
    /// Name of the thermal zone or sensor.
    pub name: String,
    /// Temperature in degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub celsius: Option<f64>,
    /// Lowest temperature at which the kernel slows the board down or switches it off, in degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit_celsius: Option<f64>,
}

/// Clock of one device or group of processor cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockStatus {
    /// Name of the device, or of the group of cores.
    pub name: String,
    /// Present frequency in MHz.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mhz: Option<f64>,
    /// Greatest frequency that is allowed now, in MHz.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_mhz: Option<f64>,
    /// Share of its time that the device was in use, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub load: Option<f64>,
}

/// One fan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FanStatus {
    /// Name of the fan.
    pub name: String,
    /// Speed in revolutions per minute.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rpm: Option<f64>,
    /// Share of its full power, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duty: Option<f64>,
}

/// Value that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnknownValue {
    /// File or name of the value.
    pub value: String,
    /// Reason why it is not known.
    pub why: String,
}

/// Energy of the board.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EnergyStatus {
    /// Names of the rails that are added up; empty where the board measures no power.
    pub rails: Vec<String>,
    /// Part of the board that these rails supply: `input` for the whole board or module, or `named-rails` for these rails
    /// only; absent where the board measures no power.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub covers: Option<String>,
    /// Energy since the start of the run, in joules; absent where the board measures no power.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub joules: Option<f64>,
    /// Time of the run for which no energy was counted, because readings were missing, in seconds.
    pub unmeasured_s: f64,
    /// Power of the board while no lane is busy, in watts; absent where it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idle_watts: Option<f64>,
    /// Reason why the energy, or the idle power, is not measured; absent where both are.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_measured: Option<String>,
}

/// State of the power and thermal governor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GovernorStatus {
    /// `holding`: limits and latencies hold; `limiting`: it lowers the power because of a limit; `slow`: a stream is slower than wanted,
    /// and the limits leave no room; `blind`: a sensor is missing, and it keeps the power low; `exhausted`: a limit is exceeded at the
    /// lowest levels; `unavailable`: the helper does not answer, and nothing is governed.
    pub state: String,
    /// Mean input power over the last second, in watts, as the governor takes it; absent where it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub power_watts: Option<f64>,
    /// Limit of the input power, in watts; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub power_limit_watts: Option<f64>,
    /// Limit of the temperatures, in degrees Celsius; absent where only trip points count.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub temperature_limit_celsius: Option<f64>,
    /// Wanted p99 latency of each stream, in milliseconds; absent where none is held.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99_target_ms: Option<f64>,
    /// Settings that it may change; empty while the helper does not answer.
    pub actuators: Vec<ActuatorStatus>,
    /// Steps to more power since the start.
    pub steps_up: u64,
    /// Steps to less power since the start.
    pub steps_down: u64,
    /// Latest step, as a sentence; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_step: Option<String>,
    /// Fault that keeps it from its work; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<Fault>,
}

/// Setting that the governor may change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActuatorStatus {
    /// Name: `power-mode`, or that of a clock, such as `devfreq/17000000.gpu`.
    pub name: String,
    /// Level that is set, such as `15W` or `612 MHz`.
    pub level: String,
    /// All levels, in ascending order of power.
    pub levels: Vec<String>,
}

/// One event, as `/v1/events` sends it and JSON lines hold it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EventJson {
    /// Name and version of this contract.
    #[schemars(extend("const" = EVENT_SCHEMA))]
    pub schema: String,
    /// Number of the event since the start, from 1. A gap means that events were lost.
    pub number: u64,
    /// Time since the start of the run, in seconds.
    pub at_s: f64,
    /// Severity: `info`, `warning` or `error`.
    pub level: String,
    /// Kind of the event, such as `source-state` or `lane-restarted`.
    pub kind: String,
    /// Stream, model or lane that it is about; absent where it is about the board.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub subject: Option<String>,
    /// The event as a sentence.
    pub text: String,
    /// Fault that caused it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<Fault>,
}

/// Schema name of [`Dump`].
pub const DUMP_SCHEMA: &str = "orinoco.dump/1";

/// Post-mortem of a running board: its status, its latest events, and the latest records of its data plane. Written on request,
/// when a lane is stuck, and on a crash. Addresses are without their secrets.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Dump {
    /// Name and version of this contract.
    #[schemars(extend("const" = DUMP_SCHEMA))]
    pub schema: String,
    /// Reason why it was written: `request`, `stuck` or `crash`.
    pub reason: String,
    /// Time of day, in seconds since 1970-01-01 00:00 UTC.
    pub written_unix_s: f64,
    /// Signal that is about to end the daemon, and the thread in which native code crashed, such as `SIGSEGV in thread lane-0`,
    /// or `SIGABRT from another process`; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub crash: Option<String>,
    /// Lanes, streams' sources and sinks that make no progress; empty where all do.
    pub stuck: Vec<StuckPart>,
    /// The status.
    pub status: Status,
    /// All events that are kept, oldest first.
    pub events: Vec<EventJson>,
    /// Latest records of the data plane, oldest first.
    pub trace: Vec<TraceEntry>,
    /// Number of earlier records of the run that the trace no longer holds, because newer ones took their place.
    pub trace_lost: u64,
}

/// Part of a board that makes no progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StuckPart {
    /// Lane or stream.
    pub part: String,
    /// Stage that it is in: `capture`, `preprocess`, `infer`, `postprocess` or `sink`.
    pub stage: String,
    /// Time without progress, in seconds.
    pub since_s: f64,
}

/// One record of the data plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TraceEntry {
    /// Time of the occurrence since the start of the run, in microseconds; of a span, its start.
    pub at_us: f64,
    /// Kind, such as `arrival`, `frame`, `drop`, `batch` or `lane`.
    pub kind: String,
    /// Name of the stream.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stream: Option<String>,
    /// Name of the model.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// Index of the lane.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lane: Option<usize>,
    /// Number of the frame in its stream.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seq: Option<u64>,
    /// Stage, step, state or cause.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub what: Option<String>,
    /// Duration of a span, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub took_us: Option<f64>,
    /// Number of frames, images or occurrences.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub count: Option<u64>,
}
