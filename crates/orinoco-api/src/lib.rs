//! Serialised contracts: every JSON object that a command prints, a file holds, or two programs exchange. Within a
//! version, fields are only added.
//!
//! Programs with few dependencies turn the feature `schemas` off: what is left are the contracts of `orinoco-helper`, of
//! recordings, and of the flight records and explanations of collective operations, as plain types that need serde only.
//!
//! Read first: [`ResultLine`], [`Summary`], and the list [`CONTRACTS`].

mod archive;
#[cfg(feature = "schemas")]
mod bench;
#[cfg(feature = "schemas")]
mod board;
#[cfg(feature = "schemas")]
mod camera;
#[cfg(feature = "schemas")]
mod cluster;
#[cfg(feature = "schemas")]
mod code;
#[cfg(feature = "schemas")]
mod contract;
#[cfg(feature = "schemas")]
mod doctor;
#[cfg(feature = "schemas")]
mod energy;
#[cfg(feature = "schemas")]
mod eval;
mod explanation;
#[cfg(feature = "schemas")]
mod fault;
mod flight_record;
pub mod helper;
#[cfg(feature = "schemas")]
mod memory;
#[cfg(feature = "schemas")]
mod model;
#[cfg(feature = "schemas")]
mod model_card;
#[cfg(feature = "schemas")]
mod perf;
#[cfg(feature = "schemas")]
mod recording;
#[cfg(feature = "schemas")]
mod result;
#[cfg(feature = "schemas")]
mod status;
#[cfg(feature = "schemas")]
mod summary;

pub use archive::{
    RECORDING_INDEX_SCHEMA, RECORDING_SCHEMA, RECORDING_TIMELINE_SCHEMA, RecordingIndexEntry,
    RecordingManifest, RecordingTimelineEntry,
};
#[cfg(feature = "schemas")]
pub use bench::{
    BENCH_SCHEMA, BenchReport, GRAPH_BENCH_SCHEMA, GraphBench, GraphRatios, MEMORY_BENCH_SCHEMA, MemoryBench,
    MemoryRatios, ModelScratch, PREPROCESS_BENCH_SCHEMA, PipelineBench, PipelineRatios, PreprocessBench,
    PreprocessRatios, StreamsBench, StreamsRatios,
};
#[cfg(feature = "schemas")]
pub use board::{
    BOARD_PROFILE_SCHEMA, BOARD_PROFILES_SCHEMA, BOARD_SCHEMA, BoardProblem, BoardProfileJson,
    BoardProfileList, BoardProfileReport, BoardReport, EnergyCounterJson, ListedBoardProfile, PowerModeJson,
    ProfileDevfreqJson, ProfileModuleJson, ProfilePowerModeJson, ProfileRailJson, ProfileTripJson,
    ProfileZoneJson, RailJson, ThermalZoneJson,
};
#[cfg(feature = "schemas")]
pub use camera::{
    CAMERAS_SCHEMA, CameraControlJson, CameraFormatJson, CameraJson, CameraList, CameraSizeJson,
};
#[cfg(feature = "schemas")]
pub use cluster::{
    CLUSTER_KEY_SCHEMA, CLUSTER_LIST_SCHEMA, CLUSTER_MODELS_SCHEMA, ClusterKey, ClusterList, ClusterModels,
    ClusterSeat, ClusterStatus, LINKS_SCHEMA, LinkFigures, LinkStatus, LinksReport, MODEL_DATA_BYTES_MAX,
    SeatAnswers, SeatModels, SeatStatus, SharedFile, SharedModel,
};
#[cfg(feature = "schemas")]
pub use code::{CODES_SCHEMA, CodeList, CodePage};
#[cfg(feature = "schemas")]
pub use contract::{CONTRACTS, Contract};
#[cfg(feature = "schemas")]
pub use doctor::{BoardFileVerdict, DOCTOR_SCHEMA, DoctorReport, MachinePart, PartState};
#[cfg(feature = "schemas")]
pub use energy::{EnergyFigure, StageEnergyFigure};
#[cfg(feature = "schemas")]
pub use eval::{
    ClassFigures, EVAL_SCHEMA, EvalFigures, EvalReport, EvalResult, ImageDifference, SequenceFigures,
    TrackingFigures,
};
pub use explanation::{AlgorithmCandidateJson, EXPLANATION_SCHEMA, ExplanationJson, MeasuredTimesJson};
#[cfg(feature = "schemas")]
pub use fault::{ERROR_SCHEMA, ErrorReport, Fault};
pub use flight_record::{
    FLIGHT_RECORD_SCHEMA, FlightRecordJson, LongestWaitJson, OperationJson, OperationStateJson, RankWaitsJson,
};
#[cfg(feature = "schemas")]
pub use memory::{MEMORY_SCHEMA, MemoryArea, MemoryReport, MemorySpan, MemoryUse, UncountedMemory};
#[cfg(feature = "schemas")]
pub use model::{
    CHECKS_SCHEMA, CheckList, DESCRIPTION_SCHEMA, DescriptionReport, EngineCheck, KeyReason, ListedModel,
    MODEL_SCHEMA, MODELS_SCHEMA, ModelDetails, ModelList, PULL_SCHEMA, PullReport, PulledFile,
};
#[cfg(feature = "schemas")]
pub use model_card::{
    Accuracy, BatchThroughput, CardBoard, CardEnergy, CardMemory, CardPower, CardRatios, CardVersions,
    Conditions, Latency, MODEL_CARD_SCHEMA, MODEL_COMPARISON_SCHEMA, Measured, ModelCard, ModelComparison,
    NotMeasuredReason, OutputDifferences, ThrottleStatus, Uncertain, WarmUp,
};
#[cfg(feature = "schemas")]
pub use perf::{PERF_SCHEMA, PerfCandidate, PerfEnergy, PerfExplanation, PerfReport, PerfRow};
#[cfg(feature = "schemas")]
pub use recording::{BOARD_RECORDING_SCHEMA, BoardRecording};
#[cfg(feature = "schemas")]
pub use result::{
    ClassJson, ClassMapJson, DetectionJson, LineEventJson, MaskJson, ObjectJson, RESULT_SCHEMA, ResultLine,
    TensorJson, TrackJson, ZoneEventJson,
};
#[cfg(feature = "schemas")]
pub use status::{
    ActuatorStatus, ClockStatus, DUMP_SCHEMA, Dump, EVENT_SCHEMA, EnergyStatus, EventJson, FanStatus,
    GovernorStatus, HEALTH_SCHEMA, Health, LaneStatus, LateFrames, MemoryStatus, ModelStatus, RailStatus,
    STATUS_SCHEMA, SensorsStatus, Status, StreamStatus, StuckPart, TemperatureStatus, TraceEntry,
    UnknownValue,
};
#[cfg(feature = "schemas")]
pub use summary::{
    Dropped, EndState, LaneMemory, LineSummary, MemorySummary, MissedImages, ModelMemory, ModelSummary,
    ModelTotals, PlannedMemory, PowerSummary, RefusedJson, RemoteSummary, SUMMARY_SCHEMA, StageSummary,
    StreamSummary, StreamTotals, Summary, TrackedSummary, ZoneSummary,
};
