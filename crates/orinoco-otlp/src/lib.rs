//! OTLP exporter: sends the metrics of a run, and the spans of some of its frames, to an OpenTelemetry collector by HTTP with
//! protobuf.
//!
//! The exporter has a thread of its own and stays off the data plane: it reads the trace that the data plane writes anyway. A
//! collector that is slow or absent costs a frame nothing; what does not fit into the bounded queues is dropped, oldest first,
//! and counted. The crate speaks neither gRPC nor TLS, follows no redirect, never shows the values of headers, and neither logs
//! nor prints: what an operator should know is a [`Notice`].
//!
//! Read first: [`Settings`] (board file and environment, checked), [`Exported`] (the run, as the exporter sees it), [`Exporter`]
//! (starts and ends it).

mod answer;
mod attributes;
mod client;
mod counts;
mod exported;
mod exporter;
mod frames;
mod headers;
mod ids;
mod mailbox;
mod metrics;
mod notice;
mod outbox;
mod resource;
mod run_reader;
mod settings;
mod spans;
mod starts;
mod time_of_day;
mod units;
mod variables;

pub use counts::Counts;
pub use exported::{Exported, ModelLabels, Names, Run};
pub use exporter::Exporter;
pub use headers::Headers;
pub use ids::RunId;
pub use notice::{Notice, NoticeKind, OtlpSignal, Severity};
pub use settings::{MetricsSettings, Settings, Target, TraceSettings};
