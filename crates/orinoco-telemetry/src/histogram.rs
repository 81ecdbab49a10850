use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram as Hdr;

/// Longest duration that is recorded, 30 days in nanoseconds: an outage of a camera lasts longer than any stage. Longer
/// durations are recorded as this one.
const NANOS_MAX: u64 = 30 * 24 * 3_600_000_000_000;
/// Shortest duration that is recorded, in nanoseconds. It is shorter than any timed stage, and keeps the table small.
const NANOS_MIN: u64 = 64;
/// Number of significant digits: with two, percentiles are right to 1 % at 41 KB a histogram.
const DIGITS: u8 = 2;

/// Histogram of durations over their full range. Recording never allocates.
#[derive(Clone)]
pub struct Histogram(Hdr<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Self(Hdr::new_with_bounds(NANOS_MIN, NANOS_MAX, DIGITS).expect("constant bounds are valid"))
    }
}

impl Histogram {
    /// Adds one duration.
    pub fn record(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos.clamp(NANOS_MIN, NANOS_MAX));
    }

    /// Adds a duration of `nanos` nanoseconds `count` times.
    pub(crate) fn record_n(&mut self, nanos: u64, count: u64) {
        self.0.saturating_record_n(nanos.clamp(NANOS_MIN, NANOS_MAX), count);
    }

    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the duration that `percent` % of the recorded durations do not exceed; zero if none was recorded.
    pub fn percentile(&self, percent: f64) -> Duration {
        if self.0.is_empty() {
            Duration::ZERO
        } else {
            Duration::from_nanos(self.0.value_at_percentile(percent))
        }
    }

    /// Returns the longest recorded duration; zero if none was recorded.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }

    /// Returns the mean duration; zero if none was recorded.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.0.mean() as u64)
    }

    /// Replaces the durations by those of another histogram. It allocates nothing, so it may be called under a lock.
    pub fn copy_from(&mut self, other: &Histogram) {
        self.0.set_to(&other.0).expect("all histograms have the same bounds");
    }

    /// Returns the durations that were recorded since `earlier`, a copy of this histogram, was made.
    ///
    /// # Panics
    /// Panics if `earlier` is no copy of it: it has durations that this one has not.
    pub fn since(&self, earlier: &Histogram) -> Self {
        let mut since = self.clone();
        since.0.subtract(&earlier.0).expect("an earlier copy has no more durations");
        since
    }

    /// Adds the durations that `other` recorded.
    pub fn merge(&mut self, other: &Histogram) {
        self.0.add(&other.0).expect("all histograms have the same bounds");
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Histogram(n {}, p50 {:?})", self.count(), self.percentile(50.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_one_percent() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|us| histogram.record(Duration::from_micros(us)));
        for percent in [50.0, 90.0, 99.0] {
            let exact = percent * 10.0;
            let seen = histogram.percentile(percent).as_secs_f64() * 1e6;
            assert!((seen - exact).abs() <= exact * 0.01 + 1.0, "p{percent}: {seen} instead of {exact}");
        }
    }

    #[test]
    fn a_copy_has_nothing_of_before() {
        let (mut copy, mut other) = (Histogram::default(), Histogram::default());
        copy.record(Duration::from_secs(100));
        (1..=10).for_each(|ms| other.record(Duration::from_millis(ms)));
        copy.copy_from(&other);
        assert_eq!((copy.count(), copy.max(), copy.mean()), (10, other.max(), other.mean()));
    }

    #[test]
    fn what_was_recorded_since_a_copy_is_told_apart() {
        let mut histogram = Histogram::default();
        histogram.record(Duration::from_millis(5));
        let earlier = histogram.clone();
        assert_eq!(histogram.since(&earlier).count(), 0);
        histogram.record(Duration::from_millis(50));
        let since = histogram.since(&earlier);
        assert_eq!((since.count(), since.percentile(99.0).as_millis()), (1, 50));
    }

    #[test]
    fn extremes_are_clamped() {
        let mut histogram = Histogram::default();
        histogram.record(Duration::ZERO);
        histogram.record(Duration::from_secs(8 * 3600));
        assert!(histogram.max().abs_diff(Duration::from_secs(8 * 3600)) < Duration::from_secs(300));
        histogram.record(Duration::from_secs(365 * 86_400));
        assert_eq!(histogram.count(), 3);
        assert!(histogram.max() >= Duration::from_secs(29 * 86_400));
    }
}
