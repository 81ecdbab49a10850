//! Readings of the chosen rails over time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orinoco_board::readers::{Sensors, Snapshot};
use orinoco_core::{Clock, Nanos, Rng, Signal, Watts};
use orinoco_telemetry::energy::SampleSchedule;

use super::rails::ChosenRails;

/// Powers of the chosen rails at one time; `None` for a rail without a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RailSample {
    /// Time at which reading began.
    pub(super) at: Nanos,
    /// Powers, in the order of the settings.
    pub(super) powers: Vec<Option<Watts>>,
}

/// Times at which rails are read.
enum Timing {
    /// A random time in each period: a sensor sees only what happens while it converts.
    Random(SampleSchedule, Rng),
    /// Every period: a counter misses nothing, and its readings average over the time between them.
    Regular { next: Nanos, period: Duration },
}

/// Reader of the chosen rails.
pub(super) struct Sampler<'a> {
    sensors: &'a mut Sensors,
    snapshot: Snapshot,
    rails: Vec<usize>,
    timing: Timing,
    samples: Vec<RailSample>,
}

impl<'a> Sampler<'a> {
    pub(super) fn new(sensors: &'a mut Sensors, chosen: &ChosenRails, start: Nanos, rng: Rng) -> Self {
        let period = chosen.settings.sample_period;
        let timing = match chosen.is_counter {
            true => Timing::Regular { next: start, period },
            false => Timing::Random(SampleSchedule::new(start, period), rng),
        };
        Self {
            sensors,
            snapshot: Snapshot::default(),
            rails: chosen.indices.clone(),
            timing,
            samples: Vec::new(),
        }
    }

    /// Returns the time of the next reading.
    pub(super) fn next(&mut self, now: Nanos) -> Nanos {
        match &mut self.timing {
            Timing::Random(schedule, rng) => schedule.next_sample(now, rng),
            Timing::Regular { next, period } => {
                let at = (*next).max(now);
                *next = at + *period;
                at
            }
        }
    }

    /// Reads the rails at the time `now`.
    pub(super) fn read(&mut self, now: Nanos) {
        self.sensors.read_rails(now, &mut self.snapshot);
        let power = |rail: &usize| self.snapshot.rails[*rail].watts.as_ref().ok().copied();
        let powers: Vec<Option<Watts>> = self.rails.iter().map(power).collect();
        self.samples.push(RailSample { at: now, powers });
    }

    /// Reads the rails until `is_over`, and returns the samples.
    pub(super) fn run(
        mut self,
        clock: &dyn Clock,
        signal: &dyn Signal,
        is_over: &AtomicBool,
    ) -> Vec<RailSample> {
        loop {
            let at = self.next(clock.now());
            while clock.now() < at && !is_over.load(Ordering::Acquire) {
                signal.wait(Some(at));
            }
            if is_over.load(Ordering::Acquire) {
                return self.samples;
            }
            self.read(clock.now());
        }
    }

    /// Returns the samples.
    #[cfg(test)]
    pub(super) fn into_samples(self) -> Vec<RailSample> {
        self.samples
    }
}
