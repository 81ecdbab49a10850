//! Serialised contracts: every JSON object that a command prints or a file holds. Within a version, fields are only
//! added.
//!
//! Read first: [`ResultLine`], [`Summary`], and the list [`CONTRACTS`].

mod bench;
mod board;
mod camera;
mod cluster;
mod code;
mod contract;
mod doctor;
mod energy;
mod eval;
mod fault;
mod memory;
mod model;
mod model_card;
mod perf;
mod recording;
mod result;
mod status;
mod summary;

pub use bench::{
    BENCH_SCHEMA, BenchReport, GRAPH_BENCH_SCHEMA, GraphBench, GraphRatios, MEMORY_BENCH_SCHEMA, MemoryBench,
    MemoryRatios, ModelScratch, PREPROCESS_BENCH_SCHEMA, PipelineBench, PipelineRatios, PreprocessBench,
    PreprocessRatios, StreamsBench, StreamsRatios,
};
pub use board::{
    BOARD_PROFILE_SCHEMA, BOARD_PROFILES_SCHEMA, BOARD_SCHEMA, BoardProblem, BoardProfileJson,
    BoardProfileList, BoardProfileReport, BoardReport, EnergyCounterJson, ListedBoardProfile, PowerModeJson,
    ProfileDevfreqJson, ProfileModuleJson, ProfilePowerModeJson, ProfileRailJson, ProfileTripJson,
    ProfileZoneJson, RailJson, ThermalZoneJson,
};
pub use camera::{
    CAMERAS_SCHEMA, CameraControlJson, CameraFormatJson, CameraJson, CameraList, CameraSizeJson,
};
pub use cluster::{
    CLUSTER_KEY_SCHEMA, CLUSTER_LIST_SCHEMA, CLUSTER_MODELS_SCHEMA, ClusterKey, ClusterList, ClusterModels,
    ClusterSeat, LINKS_SCHEMA, LinksReport, MODEL_DATA_BYTES_MAX, SeatModels, SharedFile, SharedModel,
};
pub use code::{CODES_SCHEMA, CodeList, CodePage};
pub use contract::{CONTRACTS, Contract};
pub use doctor::{BoardFileVerdict, DOCTOR_SCHEMA, DoctorReport, MachinePart, PartState};
pub use energy::{EnergyFigure, StageEnergyFigure};
pub use eval::{
    ClassFigures, EVAL_SCHEMA, EvalFigures, EvalReport, EvalResult, ImageDifference, SequenceFigures,
    TrackingFigures,
};
pub use fault::{ERROR_SCHEMA, ErrorReport, Fault};
pub use memory::{MEMORY_SCHEMA, MemoryArea, MemoryReport, MemorySpan, MemoryUse, UncountedMemory};
pub use model::{
    CHECKS_SCHEMA, CheckList, DESCRIPTION_SCHEMA, DescriptionReport, EngineCheck, KeyReason, ListedModel,
    MODEL_SCHEMA, MODELS_SCHEMA, ModelDetails, ModelList, PULL_SCHEMA, PullReport, PulledFile,
};
pub use model_card::{
    Accuracy, BatchThroughput, CardBoard, CardEnergy, CardMemory, CardPower, CardRatios, CardVersions,
    Conditions, Latency, MODEL_CARD_SCHEMA, MODEL_COMPARISON_SCHEMA, Measured, ModelCard, ModelComparison,
    NotMeasuredReason, OutputDifferences, ThrottleStatus, Uncertain, WarmUp,
};
pub use perf::{PERF_SCHEMA, PerfCandidate, PerfEnergy, PerfExplanation, PerfReport, PerfRow};
pub use recording::{BOARD_RECORDING_SCHEMA, BoardRecording};
pub use result::{
    ClassJson, ClassMapJson, DetectionJson, LineEventJson, MaskJson, ObjectJson, RESULT_SCHEMA, ResultLine,
    TensorJson, TrackJson, ZoneEventJson,
};
pub use status::{
    ActuatorStatus, ClockStatus, ClusterStatus, DUMP_SCHEMA, Dump, EVENT_SCHEMA, EnergyStatus, EventJson,
    FanStatus, GovernorStatus, HEALTH_SCHEMA, Health, LaneStatus, LateFrames, LinkFigures, LinkStatus,
    MemoryStatus, ModelStatus, RailStatus, STATUS_SCHEMA, SeatAnswers, SeatStatus, SensorsStatus, Status,
    StreamStatus, StuckPart, TemperatureStatus, TraceEntry, UnknownValue,
};
pub use summary::{
    Dropped, EndState, LaneMemory, LineSummary, MemorySummary, MissedImages, ModelMemory, ModelSummary,
    ModelTotals, PlannedMemory, PowerSummary, RefusedJson, RemoteSummary, SUMMARY_SCHEMA, StageSummary,
    StreamSummary, StreamTotals, Summary, TrackedSummary, ZoneSummary,
};
