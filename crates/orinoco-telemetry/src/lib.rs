//! Records of the data plane, the figures that are folded from them, typed events, and energy by model, stage and stream.
//! The crate does no I/O: binaries export its data, and pass it readings of power sensors.
//!
//! Counters are exact: a figure is raised under the lock of its fold, where the record is emitted. Only the trace, the ring
//! of the latest records, loses records, and it counts the lost ones.
//!
//! Read first: [`Telemetry`] (creates the handles that emit), [`Record`] (emitted for frames and batches), [`StreamFold`]
//! (counters and percentiles of one stream) and [`Event`] (reported to an operator at once).

pub mod energy;
mod event;
mod fold;
mod histogram;
mod metrics;
mod record;
mod registry;
mod telemetry;
mod trace;

pub use event::{Event, EventSink, Shown, SourceState};
pub use fold::{LaneFold, ModelFold, StreamFold};
pub use histogram::Histogram;
pub use metrics::{Durations, Metric, MetricKind, MetricValue, Series};
pub use record::{
    ArrivalRecord, BatchRecord, CountRecord, DecoderCpuRecord, DropCause, DropRecord, FrameRecord,
    LaneRecord, LaneStep, ModelCounter, Queue, QueueRecord, QueueStep, Record, RequestRecord, ResultRecord,
    Stage, StateRecord,
};
pub use telemetry::{LaneTelemetry, ModelTelemetry, StreamEmitter, StreamTelemetry, Telemetry};
pub use trace::{TRACE_RECORDS_MAX, Trace};
