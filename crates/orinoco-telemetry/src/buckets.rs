//! Durations by fixed buckets, as exporters need them.

use std::time::Duration;

use crate::Durations;

/// Upper bounds of the buckets, which are inclusive: frame times of cameras (20 ms is 50 frames per second, 33 ms is 30) and
/// what is far below and above them. They are part of the exported metrics: whoever adds up boards relies on them.
pub const BUCKET_BOUNDS: [Duration; 15] = [
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(33),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// Exact numbers of durations by bucket, and their sum. Plain data, which is cheap to copy under a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    /// Durations of each bucket that are in none before it; at the end those that exceed all bounds.
    counts: [u64; BUCKET_BOUNDS.len() + 1],
    /// Sum of the durations in nanoseconds. It holds 584 years.
    sum: u64,
}

impl Buckets {
    pub(crate) fn record(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.counts[BOUNDS_NANOS.partition_point(|bound| *bound < nanos)] += 1;
        self.sum = self.sum.saturating_add(nanos);
    }

    /// Returns the durations in the form of a metric, with [`BUCKET_BOUNDS`] in seconds.
    pub fn durations(&self) -> Durations {
        let mut count = 0;
        let cumulative = |(bound, in_bucket): (&Duration, &u64)| {
            count += in_bucket;
            (bound.as_secs_f64(), count)
        };
        let buckets = BUCKET_BOUNDS.iter().zip(&self.counts).map(cumulative).collect();
        Durations { buckets, count: self.counts.iter().sum(), sum: self.sum as f64 * 1e-9 }
    }
}

const BOUNDS_NANOS: [u64; BUCKET_BOUNDS.len()] = {
    let mut nanos = [0; BUCKET_BOUNDS.len()];
    let mut index = 0;
    while index < nanos.len() {
        nanos[index] = BUCKET_BOUNDS[index].as_nanos() as u64;
        index += 1;
    }
    nanos
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_in_its_bucket_and_counts_are_cumulative() {
        let mut buckets = Buckets::default();
        let nanosecond = Duration::from_nanos(1);
        for bound in BUCKET_BOUNDS {
            buckets.record(bound);
            buckets.record(bound + nanosecond);
        }
        let Durations { buckets, count, sum } = buckets.durations();
        let bounds =
            [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.033, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
        // Of the two next to a bound one is below it; all before it are, too.
        assert_eq!(buckets, bounds.iter().copied().zip((1..).step_by(2)).collect::<Vec<_>>());
        assert_eq!(count, 30);
        let exact = 2.0 * bounds.iter().sum::<f64>() + 15e-9;
        assert!((sum - exact).abs() < 1e-12, "{sum} instead of {exact}");
    }

    #[test]
    fn extremes_are_counted() {
        let mut buckets = Buckets::default();
        buckets.record(Duration::ZERO);
        buckets.record(Duration::MAX);
        let Durations { buckets, count, .. } = buckets.durations();
        assert_eq!((buckets.first(), buckets.last(), count), (Some(&(0.0005, 1)), Some(&(10.0, 1)), 2));
    }
}
