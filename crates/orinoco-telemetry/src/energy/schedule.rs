use std::time::Duration;

use orinoco_core::{Nanos, Rng};

/// Times at which the sensors are to be read: one time in each period, drawn uniformly from it.
///
/// The mean rate is exact, and no frame rate can stay in step with the readings: at a fixed interval, a model whose period is
/// a multiple of the interval would be read in the same part of its inference every time (aliasing). This is stratified, or
/// jittered, sampling (Bilinskis and Mikelsons, "Randomized Signal Processing", 1992).
#[derive(Clone, Debug)]
pub struct SampleSchedule {
    start: Nanos,
    period_nanos: u64,
    next_slot: u64,
}

impl SampleSchedule {
    /// Creates a schedule from `start` on, with one reading in each `period`. A period of 0 becomes one nanosecond.
    pub fn new(start: Nanos, period: Duration) -> Self {
        let period_nanos = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self { start, period_nanos, next_slot: 0 }
    }

    /// Returns the time of the next reading, which is not before `now`. Periods that have passed get none: a reader that was
    /// held up does not catch up, because readings at one time tell the same.
    pub fn next_sample(&mut self, now: Nanos, rng: &mut Rng) -> Nanos {
        let passed = now.0.saturating_sub(self.start.0) / self.period_nanos;
        let slot = self.next_slot.max(passed);
        self.next_slot = slot + 1;
        let offset = slot.saturating_mul(self.period_nanos).saturating_add(rng.u64(0..self.period_nanos));
        Nanos(self.start.0.saturating_add(offset)).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_period_has_one_reading_anywhere_in_it() {
        let (mut rng, period) = (Rng::with_seed(7), 1_000_000);
        let mut schedule = SampleSchedule::new(Nanos(500), Duration::from_nanos(period));
        let mut phases = [0_u32; 4];
        let mut now = Nanos(0);
        for slot in 0..4_000 {
            now = schedule.next_sample(now, &mut rng);
            assert_eq!((now.0 - 500) / period, slot);
            phases[((now.0 - 500) % period / 250_000) as usize] += 1;
        }
        assert!(phases.iter().all(|&count| (850..1150).contains(&count)), "{phases:?}");
    }

    #[test]
    fn a_reader_that_was_held_up_skips_what_passed() {
        let mut rng = Rng::with_seed(1);
        let mut schedule = SampleSchedule::new(Nanos(0), Duration::from_nanos(100));
        let first = schedule.next_sample(Nanos(0), &mut rng);
        assert!(first < Nanos(100));
        let late = schedule.next_sample(Nanos(1_050), &mut rng);
        assert!((1_050..1_100).contains(&late.0), "{late:?}");
        assert!((1_100..1_200).contains(&schedule.next_sample(late, &mut rng).0));
    }
}
