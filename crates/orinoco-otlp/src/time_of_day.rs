//! Times of the run as Unix times.

use orinoco_core::{Clock, Nanos};

/// Difference at which the time of day counts as set, in nanoseconds. What is smaller is the time between two readings of a clock
/// on a busy board.
const JUMP_NANOS: u128 = 100_000_000;

/// Offset of the time of day from the run's clock. It stays the same until somebody sets the time of day: the start time of a series
/// must not change by itself, because a receiver would take that for a restart.
#[derive(Debug, Default)]
pub(crate) struct TimeOfDay {
    offset: Option<i128>,
}

impl TimeOfDay {
    /// Returns the conversion of times of the run into Unix times in nanoseconds. It is the same for all times of one request.
    pub(crate) fn unix(&mut self, clock: &dyn Clock) -> impl Fn(Nanos) -> u64 + use<> {
        let measured = i128::from(clock.wall().unix_nanos()) - i128::from(clock.now().0);
        let kept = self.offset.filter(|offset| offset.abs_diff(measured) < JUMP_NANOS);
        let offset = *self.offset.insert(kept.unwrap_or(measured));
        move |at| u64::try_from(i128::from(at.0) + offset).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_core::{Signal, WallTime};
    use std::sync::Arc;

    /// Clock that shows these times.
    struct Shown(Nanos, u64);

    impl Clock for Shown {
        fn now(&self) -> Nanos {
            self.0
        }

        fn wall(&self) -> WallTime {
            WallTime::from_unix_nanos(self.1)
        }

        fn signal(&self) -> Arc<dyn Signal> {
            unreachable!("nobody waits")
        }
    }

    #[test]
    fn the_offset_changes_only_when_the_time_is_set() {
        const DAY: u64 = 86_400_000_000_000;
        let mut times = TimeOfDay::default();
        let mut start = |now, wall| times.unix(&Shown(Nanos(now), wall))(Nanos(5));
        assert_eq!(start(10, 1_000_010), 1_000_005);
        assert_eq!(start(20, 1_000_900), 1_000_005, "a reading that took long");
        assert_eq!(start(30, DAY + 30), DAY + 5, "a board that learned the time");
        assert_eq!(start(40, 40), 5, "and back");
        assert_eq!(start(1_000_000_000, 1), 0, "before 1970");
    }
}
