use orinoco_core::TimeSpan;

use crate::Histogram;
use crate::buckets::Buckets;
use crate::window::{DurationCounts, Window};

/// Durations of one stage: over the whole run, over the window, and by fixed buckets. It takes 70 KB; recording never
/// allocates.
#[derive(Clone, Debug, Default)]
pub struct StageFold {
    total: Histogram,
    pub(crate) window: Window<DurationCounts>,
    buckets: Buckets,
}

impl StageFold {
    /// Adds a duration, which counts at its end.
    pub(crate) fn record(&mut self, span: TimeSpan) {
        let duration = span.duration();
        self.total.record(duration);
        self.buckets.record(duration);
        if let Some(counts) = self.window.at_mut(span.end()) {
            counts.record(duration);
        }
    }

    /// Returns the durations of the whole run.
    pub fn total(&self) -> &Histogram {
        &self.total
    }

    /// Returns the number of durations of the whole run.
    pub fn count(&self) -> u64 {
        self.total.count()
    }

    /// Returns the durations of the whole run by fixed buckets.
    pub fn buckets(&self) -> Buckets {
        self.buckets
    }
}
