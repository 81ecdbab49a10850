//! Load by which energy is measured: bursts of work, and pauses.

use std::time::Duration;

use orinoco_core::{Nanos, Rng};
use orinoco_telemetry::energy::{Averaging, Sensor};

/// Mean length of a burst, in times over which the sensor averages: shorter ones cannot be told from pauses.
const BURST_WIDTHS: u32 = 10;
/// Shortest mean length of a burst.
const BURST_MIN: Duration = Duration::from_millis(400);

/// Length of a burst or pause, as a part of the mean length: drawn uniformly from this range, so that no other periodic load
/// can be in step with it.
const LENGTH_RANGE: (f64, f64) = (0.5, 1.5);

/// Returns the mean length of a burst that the sensor can tell from a pause.
pub(crate) fn burst_length(sensor: &Sensor) -> Duration {
    let Sensor { update_period, averaging, .. } = *sensor;
    let width = match averaging {
        Averaging::Window(window) => update_period + window,
        Averaging::Exponential { samples, .. } => update_period * u32::from(samples.max(1)),
    };
    (width * BURST_WIDTHS).max(BURST_MIN)
}

/// Step of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Do nothing until this time.
    Pause(Nanos),
    /// Run this subject without pauses until this time.
    Work {
        /// Index of the subject.
        subject: usize,
        /// End of the burst.
        until: Nanos,
    },
    /// The measurement is over.
    End,
}

/// Plan of a measurement: an idle time as long as the work of one subject, then bursts of the subjects in turns (first to
/// last, then last to first, and so on), with a pause after each. It reads no clock.
#[derive(Clone, Debug)]
pub(crate) struct LoadPlan {
    /// End of the idle time at the start.
    idle_until: Nanos,
    burst: Duration,
    /// Time for which each subject is still to work.
    left: Vec<Duration>,
    /// Subjects of the present round, the next one last.
    round: Vec<usize>,
    rounds: usize,
    is_pause_next: bool,
    rng: Rng,
}

impl LoadPlan {
    /// Plans bursts of the mean length `burst`, until each of `subjects` has worked for `busy`.
    pub(crate) fn new(start: Nanos, burst: Duration, busy: Duration, subjects: usize, rng: Rng) -> Self {
        Self {
            idle_until: start + busy,
            burst,
            left: vec![busy; subjects],
            round: Vec::new(),
            rounds: 0,
            is_pause_next: false,
            rng,
        }
    }

    /// Returns what to do at `now`, when the step before is over.
    pub(crate) fn next(&mut self, now: Nanos) -> Step {
        if now < self.idle_until {
            return Step::Pause(self.idle_until);
        }
        if std::mem::take(&mut self.is_pause_next) {
            return Step::Pause(now + self.length());
        }
        if self.left.iter().all(Duration::is_zero) {
            return Step::End;
        }
        let subject = self.next_subject();
        let length = self.length().min(self.left[subject]);
        self.left[subject] -= length;
        self.is_pause_next = true;
        Step::Work { subject, until: now + length }
    }

    /// Returns the next subject that has work left.
    fn next_subject(&mut self) -> usize {
        loop {
            while let Some(subject) = self.round.pop() {
                if !self.left[subject].is_zero() {
                    return subject;
                }
            }
            self.round = (0..self.left.len()).collect();
            if self.rounds.is_multiple_of(2) {
                self.round.reverse();
            }
            self.rounds += 1;
        }
    }

    fn length(&mut self) -> Duration {
        let (least, most) = LENGTH_RANGE;
        self.burst.mul_f64(least + (most - least) * self.rng.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_works_its_time_in_turns() {
        let (busy, burst) = (Duration::from_secs(4), Duration::from_millis(500));
        let mut plan = LoadPlan::new(Nanos(7), burst, busy, 2, Rng::with_seed(1));
        let mut now = Nanos(7);
        assert_eq!(plan.next(now), Step::Pause(now + busy), "the idle board is measured first");
        now = now + busy;
        let (mut worked, mut order) = ([Duration::ZERO; 2], Vec::new());
        loop {
            match plan.next(now) {
                Step::Work { subject, until } => {
                    worked[subject] += until.since(now);
                    order.push(subject);
                    now = until;
                }
                Step::Pause(until) => {
                    let pause = until.since(now);
                    assert!(burst / 2 <= pause && pause <= burst * 3 / 2, "{pause:?}");
                    now = until;
                }
                Step::End => break,
            }
        }
        assert_eq!(worked, [busy; 2]);
        assert_eq!(order[..8], [0, 1, 1, 0, 0, 1, 1, 0]);
    }
}
