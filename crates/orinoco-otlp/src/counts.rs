//! Counts of the exporter itself, which are metrics, too.

use std::sync::atomic::{AtomicU64, Ordering};

use orinoco_telemetry::{Metric, MetricKind, MetricValue};

use crate::notice::OtlpSignal;

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RequestOutcome {
    /// The collector accepted it, maybe in part.
    Accepted,
    /// It failed, and is repeated.
    Failed,
    /// The collector refused it for good.
    Refused,
    /// It was dropped unsent: the queue was full, or the run ended.
    Dropped,
}

impl RequestOutcome {
    const ALL: [Self; 4] = [Self::Accepted, Self::Failed, Self::Refused, Self::Dropped];

    fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Dropped => "dropped",
        }
    }
}

/// Counts of one exporter. All numbers only rise.
#[derive(Debug, Default)]
pub struct Counts {
    requests: [[AtomicU64; RequestOutcome::ALL.len()]; OtlpSignal::ALL.len()],
    rejected: [AtomicU64; OtlpSignal::ALL.len()],
    frames_traced: AtomicU64,
    frames_incomplete: AtomicU64,
    records_lost: AtomicU64,
}

impl Counts {
    /// Counts what came of requests.
    pub(crate) fn add_requests(&self, signal: OtlpSignal, outcome: RequestOutcome, requests: u64) {
        self.requests[signal as usize][outcome as usize].fetch_add(requests, Ordering::Relaxed);
    }

    /// Counts data points or spans that the collector rejected.
    pub(crate) fn add_rejected(&self, signal: OtlpSignal, items: u64) {
        self.rejected[signal as usize].fetch_add(items, Ordering::Relaxed);
    }

    /// Counts frames whose spans were made, frames that were not put together, and records that the trace lost.
    pub(crate) fn add_frames(&self, traced: u64, incomplete: u64, records_lost: u64) {
        self.frames_traced.fetch_add(traced, Ordering::Relaxed);
        self.frames_incomplete.fetch_add(incomplete, Ordering::Relaxed);
        self.records_lost.fetch_add(records_lost, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn requests(&self, signal: OtlpSignal, outcome: RequestOutcome) -> u64 {
        self.requests[signal as usize][outcome as usize].load(Ordering::Relaxed)
    }

    /// Returns the counts as metrics.
    pub fn metrics(&self) -> Vec<Metric> {
        let counter = |name, help| Metric::new(name, MetricKind::Counter, help);
        let value = |count: &AtomicU64| MetricValue::Number(count.load(Ordering::Relaxed) as f64);
        let mut requests =
            counter("orinoco_otlp_requests_total", "Requests to the OpenTelemetry collector, by outcome.");
        let mut rejected = counter(
            "orinoco_otlp_items_rejected_total",
            "Data points and spans that the collector rejected in a partial success.",
        );
        for signal in OtlpSignal::ALL {
            for outcome in RequestOutcome::ALL {
                let labels = [("signal", signal.name()), ("outcome", outcome.name())];
                requests.add(&labels, value(&self.requests[signal as usize][outcome as usize]));
            }
            rejected.add(&[("signal", signal.name())], value(&self.rejected[signal as usize]));
        }
        let mut frames =
            counter("orinoco_otlp_frames_total", "Sampled frames, by outcome (traced, incomplete).");
        frames.add(&[("outcome", "traced")], value(&self.frames_traced));
        frames.add(&[("outcome", "incomplete")], value(&self.frames_incomplete));
        let mut lost = counter(
            "orinoco_otlp_records_lost_total",
            "Records that were overwritten in Orinoco's internal trace buffer before they were exported.",
        );
        lost.add(&[], value(&self.records_lost));
        vec![requests, rejected, frames, lost]
    }
}
