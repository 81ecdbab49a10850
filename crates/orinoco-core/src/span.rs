use core::time::Duration;

use crate::Nanos;

/// The part of a board that computes something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum ComputeUnit {
    /// The host's processor: the thread that works, or waits for another unit.
    #[default]
    Cpu,
    /// The GPU, by its own clock.
    Gpu,
}

impl ComputeUnit {
    /// All units.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Gpu];

    /// The name in exports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        }
    }
}

/// A span of a run's clock. Its end is not before its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpan {
    start: Nanos,
    end: Nanos,
}

impl TimeSpan {
    /// The span from `start` to `end`; empty at `start` where `end` is earlier.
    pub fn new(start: Nanos, end: Nanos) -> Self {
        Self { start, end: end.max(start) }
    }

    /// The span of this duration that ends at `end`. Where the clock had not started yet, it ends later: the duration counts.
    pub fn ending(end: Nanos, duration: Duration) -> Self {
        let start = end - duration;
        Self { start, end: start + duration }
    }

    /// Returns the start.
    pub fn start(self) -> Nanos {
        self.start
    }

    /// Returns the end.
    pub fn end(self) -> Nanos {
        self.end
    }

    /// Returns the duration.
    pub fn duration(self) -> Duration {
        self.end.since(self.start)
    }

    /// Share number `index` of `shares` equal ones that follow one another. Rounded down to nanoseconds, so that a few may be
    /// left at the end.
    pub fn share(self, index: u32, shares: u32) -> Self {
        let each = self.duration() / shares;
        let start = self.start + each * index;
        Self { start, end: start + each }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_one_another_and_are_equal() {
        let span = TimeSpan::new(Nanos(100), Nanos(201));
        let shares = [0, 1, 2].map(|index| span.share(index, 3));
        assert_eq!(shares.map(|share| (share.start.0, share.end.0)), [(100, 133), (133, 166), (166, 199)]);
        assert_eq!(span.share(0, 1), span);
    }

    #[test]
    fn a_duration_counts_also_before_the_clock_started() {
        let span = TimeSpan::ending(Nanos(30), Duration::from_nanos(50));
        assert_eq!((span.start(), span.duration()), (Nanos(0), Duration::from_nanos(50)));
        assert_eq!(TimeSpan::new(Nanos(9), Nanos(3)).duration(), Duration::ZERO);
    }
}
