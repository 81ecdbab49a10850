//! Events of the exporter that an operator should know.

use std::fmt;

use orinoco_core::text::count;

/// Part of OpenTelemetry's data, which has a path of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OtlpSignal {
    /// Metrics of the run.
    Metrics,
    /// Spans of frames.
    Traces,
}

impl OtlpSignal {
    /// All signals.
    pub const ALL: [Self; 2] = [Self::Metrics, Self::Traces];

    /// Returns the name in addresses, labels and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Traces => "traces",
        }
    }
}

/// Severity of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Nothing is wrong.
    Info,
    /// Data is late or lost.
    Warning,
}

/// Event of the exporter. Each is reported when it begins, and not again until it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The part of the data.
    pub signal: OtlpSignal,
    /// Kind of event.
    pub kind: NoticeKind,
}

/// Kind of a [`Notice`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoticeKind {
    /// A request failed and will be repeated.
    Failing {
        /// Cause of the failure.
        why: String,
    },
    /// The collector accepts requests again.
    Recovered,
    /// The collector refused a request for good; its data is lost.
    Refused {
        /// Answer of the collector.
        why: String,
    },
    /// The collector accepted a request and rejected some of its data. It is reported once.
    PartlyRejected {
        /// Number of data points or spans that it rejected; 0 for a warning only.
        rejected: u64,
        /// Message of the collector.
        message: String,
    },
    /// Requests were not sent before the end of the run.
    Unsent {
        /// Number of requests.
        requests: u64,
    },
}

impl Notice {
    /// Returns the severity.
    pub fn severity(&self) -> Severity {
        match self.kind {
            NoticeKind::Recovered => Severity::Info,
            _ => Severity::Warning,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signal = self.signal.name();
        match &self.kind {
            NoticeKind::Failing { why } => write!(f, "otlp={signal} not sent, will be repeated: {why}"),
            NoticeKind::Recovered => write!(f, "otlp={signal} the collector accepts requests again"),
            NoticeKind::Refused { why } => {
                write!(f, "otlp={signal} the collector refused the request; its data is lost: {why}")
            }
            NoticeKind::PartlyRejected { rejected: 0, message } => {
                write!(f, "otlp={signal} accepted with a warning: {message}")
            }
            NoticeKind::PartlyRejected { rejected, message } => {
                write!(
                    f,
                    "otlp={signal} rejected={rejected} the collector rejected some of the data: {message}"
                )
            }
            NoticeKind::Unsent { requests } => {
                write!(f, "otlp={signal} {} not sent before the end", count(*requests, "request"))
            }
        }
    }
}
