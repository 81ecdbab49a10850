use std::time::Duration;

use orinoco_core::{Joules, Nanos, Watts};

/// Femtojoules by two in a microjoule: the sum of two powers in microwatts, times nanoseconds, has this unit.
const DOUBLED_PER_MICROJOULE: u128 = 2_000_000_000;

/// Counter of energy: the integral of power over time, by the trapezoidal rule for readings of a moment, and exactly for readings that
/// are the mean power since the reading before. It computes in integers and never goes back.
#[derive(Clone, Debug)]
pub struct EnergyCounter {
    gap_max: Duration,
    is_of_means: bool,
    last: Option<(Nanos, u64)>,
    microjoules: u64,
    /// Part of a microjoule, in units of [`DOUBLED_PER_MICROJOULE`].
    remainder: u64,
    measured: Duration,
    unmeasured: Duration,
}

impl EnergyCounter {
    /// Creates a counter for readings of a moment. Times between two readings that are longer than `gap_max` are counted as unmeasured, and no energy
    /// is assumed for them.
    pub fn new(gap_max: Duration) -> Self {
        Self {
            gap_max,
            is_of_means: false,
            last: None,
            microjoules: 0,
            remainder: 0,
            measured: Duration::ZERO,
            unmeasured: Duration::ZERO,
        }
    }

    /// Creates a counter for readings that are the mean power since the reading before, as a sensor that counts energy gives them.
    pub fn of_means(gap_max: Duration) -> Self {
        Self { is_of_means: true, ..Self::new(gap_max) }
    }

    /// Adds a reading; `None` if the sensor gave none. A power below zero, which a sensor reports around zero by its offset,
    /// counts as zero. A reading that is not later than the one before is ignored.
    pub fn add(&mut self, at: Nanos, power: Option<Watts>) {
        let Some(power) = power else { return };
        let power = power.micro().max(0).unsigned_abs();
        if let Some((before, power_before)) = self.last {
            if at <= before {
                return;
            }
            match at.since(before) {
                gap if gap > self.gap_max => self.unmeasured += gap,
                time => {
                    let from = if self.is_of_means { power } else { power_before };
                    self.integrate(from, power, time);
                }
            }
        }
        self.last = Some((at, power));
    }

    fn integrate(&mut self, from: u64, to: u64, time: Duration) {
        self.measured += time;
        let doubled = (u128::from(from) + u128::from(to)) * time.as_nanos() + u128::from(self.remainder);
        let microjoules = u64::try_from(doubled / DOUBLED_PER_MICROJOULE).unwrap_or(u64::MAX);
        self.microjoules = self.microjoules.saturating_add(microjoules);
        self.remainder = (doubled % DOUBLED_PER_MICROJOULE) as u64;
    }

    /// Returns the energy so far, rounded down to microjoules. What is rounded off stays in the counter.
    pub fn energy(&self) -> Joules {
        Joules::from_micro(i64::try_from(self.microjoules).unwrap_or(i64::MAX))
    }

    /// Returns the time over which energy was counted.
    pub fn measured(&self) -> Duration {
        self.measured
    }

    /// Returns the time between the first reading and the latest one in which no energy was counted, because readings were
    /// missing.
    pub fn unmeasured(&self) -> Duration {
        self.unmeasured
    }

    /// Returns the power of the latest reading.
    pub fn power(&self) -> Option<Watts> {
        self.last.map(|(_, micro)| Watts::from_micro(i64::try_from(micro).unwrap_or(i64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_keeps_what_is_less_than_a_microjoule() {
        let mut counter = EnergyCounter::new(Duration::from_secs(1));
        // 3 W for 7 ns are 0.021 uJ; 1,000,000 such steps are 21,000 uJ.
        for step in 0..=1_000_000 {
            counter.add(Nanos(step * 7), Some(Watts::from_units(3)));
        }
        assert_eq!(counter.energy(), Joules::from_micro(21_000));
    }

    #[test]
    fn means_are_counted_for_the_time_before_them() {
        let mut counter = EnergyCounter::of_means(Duration::from_secs(1));
        let at = |ms: u64| Nanos(ms * 1_000_000);
        // A step from 2 W to 10 W at 300 ms, as a sensor that counts energy tells it at uneven times.
        for (ms, watts) in [(0, 2), (200, 2), (400, 6), (500, 10), (1_000, 10)] {
            counter.add(at(ms), Some(Watts::from_units(watts)));
        }
        assert_eq!(counter.energy(), Joules::from_milli(600 + 7_000));
        counter.add(at(3_000), Some(Watts::from_units(10)));
        assert_eq!(
            (counter.measured(), counter.unmeasured()),
            (Duration::from_secs(1), Duration::from_secs(2))
        );
    }

    #[test]
    fn a_ramp_is_integrated_and_a_gap_is_not() {
        let mut counter = EnergyCounter::new(Duration::from_secs(1));
        let at = |ms: u64| Nanos(ms * 1_000_000);
        counter.add(at(0), Some(Watts::from_units(2)));
        counter.add(at(500), Some(Watts::from_units(4)));
        assert_eq!(counter.energy(), Joules::from_milli(1_500));
        counter.add(at(400), Some(Watts::from_units(400)));
        counter.add(at(1_000), None);
        counter.add(at(1_600), Some(Watts::from_units(4)));
        assert_eq!(
            (counter.energy(), counter.unmeasured()),
            (Joules::from_milli(1_500), Duration::from_millis(1_100))
        );
        counter.add(at(1_700), Some(Watts::from_units(-4)));
        assert_eq!((counter.energy(), counter.power()), (Joules::from_milli(1_700), Some(Watts::ZERO)));
    }
}
