//! Percentiles of a stage, as the contracts have them.

use std::time::Duration;

use orinoco_api::StageSummary;
use orinoco_telemetry::Histogram;

/// Returns the percentiles of a stage's durations.
pub(crate) fn summarise_durations(name: &str, histogram: &Histogram) -> StageSummary {
    let us = |duration: Duration| duration.as_nanos() as f64 / 1000.0;
    let percentile = |percent| us(histogram.percentile(percent));
    StageSummary {
        stage: name.to_owned(),
        count: histogram.count(),
        p50_us: percentile(50.0),
        p90_us: percentile(90.0),
        p99_us: percentile(99.0),
        p999_us: percentile(99.9),
        max_us: us(histogram.max()),
    }
}
