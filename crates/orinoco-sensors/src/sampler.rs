use embedded_hal::i2c::ErrorKind;
use heapless::{HistoryBuf, Vec};
use orinoco_core::{Amperes, Joules, Volts, Watts};

use crate::reading::{RailMeter, RailReading};

/// Settings of a [`RailSampler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerConfig {
    /// Time between samples, in microseconds. 0 is taken as 1.
    pub period_us: u64,
    /// Longest time between two readings of a rail across which energy is integrated, in microseconds. A longer gap
    /// counts as unmeasured.
    pub gap_us_max: u64,
}

/// Reading of a rail, with its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailSample {
    /// Time that the caller gave, in microseconds.
    pub at_us: u64,
    /// Voltage of the rail.
    pub voltage: Volts,
    /// Current into the load.
    pub current: Amperes,
}

impl RailSample {
    /// Returns the power.
    pub fn power(&self) -> Watts {
        RailReading { voltage: self.voltage, current: self.current }.power()
    }
}

/// Outcome of [`RailSampler::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// The next samples are not due yet.
    Wait {
        /// Time of the next samples, in microseconds.
        until_us: u64,
    },
    /// Each rail was read.
    Sampled {
        /// Samples that were due before, and were missed because the sampler was polled late.
        missed: u64,
        /// Rails whose reading failed.
        failed: usize,
        /// Time of the next samples, in microseconds.
        until_us: u64,
    },
}

/// Rail of a [`RailSampler`]: its last `N` samples and its totals.
#[derive(Debug)]
pub struct Rail<const N: usize> {
    samples: HistoryBuf<RailSample, N>,
    energy: EnergyCounter,
    unmeasured_us: u64,
    bus_errors: u32,
    bus_errors_in_row: u32,
    last_error: Option<ErrorKind>,
}

impl<const N: usize> Rail<N> {
    const fn new() -> Self {
        Self {
            samples: HistoryBuf::new(),
            energy: EnergyCounter::new(),
            unmeasured_us: 0,
            bus_errors: 0,
            bus_errors_in_row: 0,
            last_error: None,
        }
    }

    /// Returns the last samples, oldest first.
    pub fn samples(&self) -> impl Iterator<Item = &RailSample> {
        self.samples.oldest_ordered()
    }

    /// Returns the latest sample; `None` before the first one.
    pub fn latest(&self) -> Option<&RailSample> {
        self.samples.recent()
    }

    /// Returns the energy since the first sample, by the trapezoid rule, rounded down to a microjoule.
    pub fn energy(&self) -> Joules {
        self.energy.total()
    }

    /// Returns the total of the gaps too long to be integrated, in microseconds. Their energy is not in
    /// [`energy`](Self::energy).
    pub fn unmeasured_us(&self) -> u64 {
        self.unmeasured_us
    }

    /// Returns the number of readings that failed.
    pub fn bus_errors(&self) -> u32 {
        self.bus_errors
    }

    /// Returns the number of readings that have failed since the latest sample.
    pub fn bus_errors_in_row(&self) -> u32 {
        self.bus_errors_in_row
    }

    /// Returns the kind of the latest reading's fault that failed.
    pub fn last_error(&self) -> Option<ErrorKind> {
        self.last_error
    }

    fn record(&mut self, now_us: u64, reading: RailReading, gap_us_max: u64) {
        let sample = RailSample { at_us: now_us, voltage: reading.voltage, current: reading.current };
        if let Some(last) = self.samples.recent() {
            match now_us - last.at_us {
                gap if gap > gap_us_max => self.unmeasured_us += gap,
                gap => self.energy.add(last.power(), sample.power(), gap),
            }
        }
        self.samples.write(sample);
        self.bus_errors_in_row = 0;
    }

    fn record_error(&mut self, kind: ErrorKind) {
        self.bus_errors = self.bus_errors.saturating_add(1);
        self.bus_errors_in_row = self.bus_errors_in_row.saturating_add(1);
        self.last_error = Some(kind);
    }
}

/// Samples the rails of one chip or several at a set rate: up to `R` rails, with the last `N` samples of each.
///
/// It reads no clock and owns no bus: both are arguments. It keeps its phase, so a late poll does not shift later
/// samples.
#[derive(Debug)]
pub struct RailSampler<const R: usize, const N: usize> {
    config: SamplerConfig,
    rails: Vec<Rail<N>, R>,
    /// Time of the next samples; `None` before the first poll.
    due_us: Option<u64>,
    missed: u64,
}

impl<const R: usize, const N: usize> RailSampler<R, N> {
    /// Creates a sampler without samples.
    pub fn new(config: SamplerConfig) -> Self {
        const { assert!(R > 0 && N > 0, "a sampler has a rail and keeps a sample") };
        let config = SamplerConfig { period_us: config.period_us.max(1), ..config };
        Self { config, rails: Vec::new(), due_us: None, missed: 0 }
    }

    /// Reads every rail of `meters` if that is due at `now_us`, which never goes backwards. The first poll reads them
    /// at once. The samples of all rails have the time `now_us`.
    ///
    /// Rails are numbered through the meters, in order: pass the same ones each time.
    ///
    /// # Panics
    /// Panics if the meters have more than `R` rails.
    pub fn poll(&mut self, now_us: u64, meters: &mut [&mut dyn RailMeter]) -> Poll {
        let due_us = *self.due_us.get_or_insert(now_us);
        if now_us < due_us {
            return Poll::Wait { until_us: due_us };
        }
        let missed = (now_us - due_us) / self.config.period_us;
        let until_us = due_us.saturating_add((missed + 1).saturating_mul(self.config.period_us));
        self.due_us = Some(until_us);
        self.missed = self.missed.saturating_add(missed);
        let failed = self.sample(now_us, meters);
        Poll::Sampled { missed, failed, until_us }
    }

    /// Returns a rail, counted from 0; `None` before its first poll.
    pub fn rail(&self, index: usize) -> Option<&Rail<N>> {
        self.rails.get(index)
    }

    /// Returns the rails, in order; none before the first poll.
    pub fn rails(&self) -> &[Rail<N>] {
        &self.rails
    }

    /// Returns the number of samples of each rail that were missed because the sampler was polled late.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Reads each rail, and returns how many readings failed.
    fn sample(&mut self, now_us: u64, meters: &mut [&mut dyn RailMeter]) -> usize {
        let (mut index, mut failed) = (0, 0);
        for meter in meters {
            for own in 0..meter.rails() {
                let gap_us_max = self.config.gap_us_max;
                let rail = self.rail_mut(index);
                match meter.read_rail(own) {
                    Ok(reading) => rail.record(now_us, reading, gap_us_max),
                    Err(kind) => {
                        rail.record_error(kind);
                        failed += 1;
                    }
                }
                index += 1;
            }
        }
        failed
    }

    /// Returns a rail, which is added if it is the first one that is not there yet.
    fn rail_mut(&mut self, index: usize) -> &mut Rail<N> {
        if index == self.rails.len() {
            assert!(self.rails.push(Rail::new()).is_ok(), "the meters have more than {R} rails");
        }
        &mut self.rails[index]
    }
}

/// Energy by the trapezoid rule in whole numbers: what a step leaves below half a microjoule is kept for the next one,
/// so the total does not drift.
#[derive(Debug)]
struct EnergyCounter {
    /// Total in halves of a microjoule.
    halves: i64,
    /// Rest in millionths of such a half: 0 to 999,999.
    rest: i64,
}

impl EnergyCounter {
    const fn new() -> Self {
        Self { halves: 0, rest: 0 }
    }

    /// Adds `(start + end) / 2 * time`. A microwatt for a microsecond is a millionth of a microjoule.
    fn add(&mut self, start: Watts, end: Watts, time_us: u64) {
        const SECOND: u64 = 1_000_000;
        let power = start.micro().saturating_add(end.micro());
        let (seconds, micros) = ((time_us / SECOND).min(i64::MAX as u64), time_us % SECOND);
        let below = power.saturating_mul(micros as i64).saturating_add(self.rest);
        self.rest = below.rem_euclid(SECOND as i64);
        self.halves = self
            .halves
            .saturating_add(power.saturating_mul(seconds as i64))
            .saturating_add(below.div_euclid(SECOND as i64));
    }

    fn total(&self) -> Joules {
        Joules::from_micro(self.halves.div_euclid(2))
    }
}
