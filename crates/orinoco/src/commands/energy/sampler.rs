//! Readings of the rails over time.

use std::sync::atomic::{AtomicBool, Ordering};

use orinoco_board::readers::{Sensors, Snapshot};
use orinoco_core::{Clock, Nanos, Signal, Watts};
use orinoco_runtime::ReadingTimes;

/// Powers of the rails at one time; `None` for a rail without a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RailSample {
    /// Time at which reading began.
    pub(crate) at: Nanos,
    /// Powers, in the order of the sensors.
    pub(crate) powers: Vec<Option<Watts>>,
}

/// Reader of the rails.
pub(crate) struct Sampler<'a> {
    sensors: &'a mut Sensors,
    snapshot: Snapshot,
    times: ReadingTimes,
    samples: Vec<RailSample>,
}

impl<'a> Sampler<'a> {
    pub(crate) fn new(sensors: &'a mut Sensors, times: ReadingTimes) -> Self {
        Self { sensors, snapshot: Snapshot::default(), times, samples: Vec::new() }
    }

    /// Returns the time of the next reading.
    pub(crate) fn next(&mut self, now: Nanos) -> Nanos {
        self.times.next(now)
    }

    /// Reads the rails at the time `now`.
    pub(crate) fn read(&mut self, now: Nanos) {
        self.sensors.read_rails(now, &mut self.snapshot);
        let rails = self.snapshot.rails.iter();
        let powers: Vec<Option<Watts>> = rails.map(|rail| rail.watts.as_ref().ok().copied()).collect();
        self.samples.push(RailSample { at: now, powers });
    }

    /// Reads the rails until `is_over`, and returns the samples.
    pub(crate) fn run(
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
    pub(crate) fn into_samples(self) -> Vec<RailSample> {
        self.samples
    }
}
