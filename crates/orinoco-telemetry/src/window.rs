//! Windows: durations and counts over the latest minute.

use std::fmt;
use std::time::Duration;

use orinoco_core::Nanos;
use parking_lot::Mutex;

use crate::Histogram;

/// Longest time that a window covers. A window is made of four intervals of 15 s, which start at multiples of 15 s of the
/// run's clock. At a time it has the interval that contains this time and the three before it, so it covers between 45 and
/// 60 s. A span counts in the interval of its end, and a record that comes late counts in its own time.
pub const WINDOW: Duration = Duration::from_secs(60);

/// Number of intervals of a window. More of them would make its length steadier, and need more memory.
const INTERVALS: usize = 4;
/// Length of an interval in nanoseconds.
const INTERVAL_NANOS: u64 = 15_000_000_000;

const _: () = assert!(INTERVAL_NANOS as u128 * INTERVALS as u128 == WINDOW.as_nanos());

/// Value that starts again when its interval does.
pub(crate) trait Reset {
    /// Makes the value empty. It allocates nothing.
    fn reset(&mut self);
}

/// Values by interval. The time of a record chooses its interval, so records may come late and in any order, and nothing has
/// to happen when nothing is recorded: an interval is reset when the first record of a later one takes its place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window<T> {
    intervals: [Interval<T>; INTERVALS],
}

#[derive(Clone, Debug, Default)]
struct Interval<T> {
    /// Its start, in intervals since the clock's origin.
    number: u64,
    value: T,
}

impl<T: Reset> Window<T> {
    /// Returns the value of the interval that contains `at`; `None` if that interval is older than the window, and a later one
    /// has its place.
    pub(crate) fn at_mut(&mut self, at: Nanos) -> Option<&mut T> {
        let number = number(at);
        let interval = &mut self.intervals[(number % INTERVALS as u64) as usize];
        if interval.number < number {
            interval.value.reset();
            interval.number = number;
        }
        (interval.number == number).then_some(&mut interval.value)
    }

    /// Returns the values of the intervals that are in the window at `now`. Later ones are among them: their records came after
    /// the reader had asked its clock.
    pub(crate) fn values(&self, now: Nanos) -> impl Iterator<Item = &T> {
        (0..INTERVALS).filter_map(move |index| self.value(index, now))
    }

    /// Returns the value of the interval at place `index`; `None` if it is older than the window at `now`.
    fn value(&self, index: usize, now: Nanos) -> Option<&T> {
        let interval = &self.intervals[index];
        (interval.number >= first_number(now)).then_some(&interval.value)
    }
}

/// Returns the start of the window at `now`.
pub(crate) fn window_start(now: Nanos) -> Nanos {
    Nanos(first_number(now) * INTERVAL_NANOS)
}

fn first_number(now: Nanos) -> u64 {
    number(now).saturating_sub(INTERVALS as u64 - 1)
}

fn number(at: Nanos) -> u64 {
    at.0 / INTERVAL_NANOS
}

/// Width of the shortest step in nanoseconds, as a power of two: that of [`Histogram`].
const UNIT_BITS: u32 = 6;
/// Steps of the same width, as a power of two: 64 for each power of two of the duration.
const STEPS_BITS: u32 = 6;
/// Longest duration that a window tells apart, 600 s in nanoseconds. Longer ones count as this one.
const NANOS_MAX: u64 = 600_000_000_000;
const STEPS: usize = step(NANOS_MAX) + 1;

/// Numbers of durations by step. Steps are those of an HDR histogram (one mantissa of 7 bits and an exponent), half as many
/// as [`Histogram`] has: with the middle of a step, a percentile is right to 0.8 %, and a copy needs 7 KB.
#[derive(Clone)]
pub(crate) struct DurationCounts {
    counts: Box<[u32; STEPS]>,
    total: u64,
}

impl Default for DurationCounts {
    fn default() -> Self {
        let counts = vec![0; STEPS].into_boxed_slice();
        Self { counts: counts.try_into().expect("as long as the array"), total: 0 }
    }
}

impl Reset for DurationCounts {
    fn reset(&mut self) {
        self.counts.fill(0);
        self.total = 0;
    }
}

impl DurationCounts {
    pub(crate) fn record(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let count = &mut self.counts[step(nanos.min(NANOS_MAX))];
        *count = count.saturating_add(1);
        self.total += 1;
    }

    fn copy_from(&mut self, other: &Self) {
        self.counts.copy_from_slice(&*other.counts);
        self.total = other.total;
    }

    fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(&*other.counts) {
            *sum = sum.saturating_add(*count);
        }
        self.total += other.total;
    }

    fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::default();
        for (step, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            // The histogram's steps are half as wide. It returns the end of the lower one, which is the middle of this step.
            histogram.record_n(step_start(step), u64::from(count));
        }
        histogram
    }
}

impl fmt::Debug for DurationCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DurationCounts(n {})", self.total)
    }
}

const fn step(nanos: u64) -> usize {
    let units = nanos >> UNIT_BITS;
    let shift = (units | 1 << STEPS_BITS).ilog2() - STEPS_BITS;
    ((shift as usize) << STEPS_BITS) + (units >> shift) as usize
}

/// Returns the shortest duration of a step, in nanoseconds.
const fn step_start(step: usize) -> u64 {
    let shift = (step >> STEPS_BITS).saturating_sub(1);
    ((step - (shift << STEPS_BITS)) as u64) << shift << UNIT_BITS
}

/// Memory for reading windows, 14 KB, which one reader uses again and again.
#[derive(Debug, Default)]
pub struct WindowReader {
    interval: DurationCounts,
    sum: DurationCounts,
}

impl WindowReader {
    /// Returns the durations of a stage in the window at `now`. The fold is locked for one copy of 7 KB at a time, and the
    /// copies are added up in between: a record that is emitted meanwhile may be in the result or not.
    pub(crate) fn read<F>(
        &mut self,
        fold: &Mutex<F>,
        now: Nanos,
        window: impl Fn(&F) -> &Window<DurationCounts>,
    ) -> Histogram {
        self.sum.reset();
        for index in 0..INTERVALS {
            if self.copy(index, now, window(&fold.lock())) {
                self.sum.add(&self.interval);
            }
        }
        self.sum.histogram()
    }

    /// Copies an interval. Returns false if it is too old, or empty.
    fn copy(&mut self, index: usize, now: Nanos, window: &Window<DurationCounts>) -> bool {
        let Some(counts) = window.value(index, now).filter(|counts| counts.total > 0) else { return false };
        self.interval.copy_from(counts);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_one_another_and_are_narrow() {
        for index in 0..STEPS {
            let (start, end) = (step_start(index), step_start(index + 1));
            assert_eq!((step(start), step(end - 1)), (index, index), "{start} to {end} ns");
            let width = end - start;
            assert!(width == 64 || width * 64 <= start, "{width} ns wide from {start} ns on");
        }
    }

    #[test]
    fn percentiles_are_within_one_percent() {
        let (mut counts, mut whole) = (DurationCounts::default(), Histogram::default());
        // From 0.1 us to 500 s, evenly by ratio.
        let durations: Vec<_> =
            (0..2000).map(|i| Duration::from_nanos((100.0 * 1.011f64.powi(i)) as u64)).collect();
        durations.iter().for_each(|duration| {
            counts.record(*duration);
            whole.record(*duration);
        });
        let histogram = counts.histogram();
        assert_eq!(histogram.count(), 2000);
        for (index, exact) in durations.iter().enumerate() {
            let percent = (index as f64 + 0.5) / 20.0;
            let seen = histogram.percentile(percent);
            let bound = exact.mul_f64(0.01) + Duration::from_nanos(64);
            assert!(seen.abs_diff(*exact) <= bound, "p{percent}: {seen:?} instead of {exact:?}");
        }
        assert!(histogram.max().abs_diff(whole.max()) <= whole.max().mul_f64(0.02));
    }

    #[test]
    fn extremes_are_clamped() {
        let mut counts = DurationCounts::default();
        counts.record(Duration::ZERO);
        counts.record(Duration::MAX);
        let histogram = counts.histogram();
        assert_eq!(histogram.count(), 2);
        assert!(histogram.max().abs_diff(Duration::from_secs(600)) <= Duration::from_secs(6));
        assert!(histogram.percentile(50.0) <= Duration::from_nanos(128));
    }
}
