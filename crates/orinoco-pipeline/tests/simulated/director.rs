//! Changes and faults, at times that the seed decides.

use std::time::Duration;

use orinoco_core::{ModelId, Nanos};
use orinoco_pipeline::PlanFacts;

use crate::board::{BATCH_MAX, Board, MODELS};
use crate::camera::Mode;

/// Time until the board is stopped.
pub(crate) const RUN: Duration = Duration::from_secs(60);
/// Streams of one board, with those that have left.
const STREAMS_MAX: usize = 9;
/// Attempts at the first change. Of a board whose lanes work, less than half of them do nothing; once its lanes have ended, all do.
const FIRST_TRIES: u32 = 30;

/// Decides what happens to a board from outside.
#[derive(Default)]
pub(crate) struct Director {
    changes: u64,
    faults: u64,
    has_stopped: bool,
    /// Generation of the plan that came last.
    generation: u32,
    /// A model that is held for a stream that may come: the lane and the model.
    held: Option<(usize, ModelId)>,
}

impl Director {
    /// Number of changes and of faults so far, without those that did nothing.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.changes, self.faults)
    }
}

impl Board<'_> {
    /// One act of the director; `None` after the last one, else when the next comes.
    pub(crate) fn direct(&mut self) -> Option<Nanos> {
        let now = self.simulator.now();
        if self.director.has_stopped {
            return None;
        }
        let end = Nanos(0) + RUN;
        if now >= end {
            self.director.has_stopped = true;
            self.stop_all();
            return None;
        }
        // The first two acts are one of each kind.
        let is_change = match (self.director.changes, self.director.faults) {
            (0, _) => true,
            (_, 0) => false,
            _ => self.simulator.rng().u32(..3) == 0,
        };
        if is_change {
            let tries = if self.director.changes == 0 { FIRST_TRIES } else { 1 };
            self.director.changes += u64::from((0..tries).any(|_| self.change()));
        } else {
            self.director.faults += u64::from(self.fault());
        }
        let pause = Duration::from_millis(self.simulator.rng().u64(50..6000));
        Some((now + pause).min(end))
    }

    /// Tries to change something. Returns whether it did.
    fn change(&mut self) -> bool {
        let rng = self.simulator.rng();
        let (act, stream, lane) =
            (rng.u32(..12), rng.usize(..self.streams.len()), rng.usize(..self.lanes.len()));
        let (model, is_rare) = (ModelId(rng.u32(..MODELS)), rng.u32(..8) == 0);
        match act {
            0..=3 if self.streams.len() < STREAMS_MAX => self.join(lane),
            4 => match self.director.held.take() {
                Some((lane, model)) => {
                    let lane = &mut self.lanes[lane];
                    if lane.models.release(model) {
                        // A lane that has ended has no models left.
                        let _ = lane.mux.exchange();
                        self.simulator.notify(lane.task);
                    }
                    true
                }
                None if self.lanes[lane].models.hold(model) => {
                    self.director.held = Some((lane, model));
                    true
                }
                None => false,
            },
            6 | 7 => {
                let rng = self.simulator.rng();
                let (batch_max, reads_video_memory) = (rng.usize(1..=BATCH_MAX), rng.u32(..3) > 0);
                let interval = rng.u32(1..4);
                self.director.generation += 1;
                let generation = self.director.generation;
                let plan = PlanFacts { model, generation, batch_max, reads_video_memory, interval };
                let replaced = self.lanes[lane].replace(plan);
                self.simulator.note(|| format!("replace {plan:?} of lane {lane}: {replaced:?}"));
                self.simulator.notify(self.lanes[lane].task);
                replaced.is_ok()
            }
            11 => {
                let interval = self.simulator.rng().u32(1..4);
                let is_set = self.lanes[lane].set_interval(model, interval).is_ok();
                self.simulator.note(|| format!("interval {interval} of {model} on lane {lane}: {is_set}"));
                self.simulator.notify(self.lanes[lane].task);
                is_set
            }
            5 if is_rare => self.close_lane(lane),
            // Not all of them too soon: a board without streams has nothing to do.
            _ if self.streams.iter().filter(|stream| !stream.is_stopping).count() > 1 => self.stop(stream),
            _ => self.join(lane),
        }
    }

    /// Tries to make something fail, or work again. Returns whether anything is different now.
    fn fault(&mut self) -> bool {
        let now = self.simulator.now();
        let rng = self.simulator.rng();
        let (act, stream, lane) =
            (rng.u32(..18), rng.usize(..self.streams.len()), rng.usize(..self.lanes.len()));
        let until = now + Duration::from_millis(rng.u64(100..8000));
        let (burst, is_rare, comes_back) = (rng.u32(5..60), rng.u32(..8) == 0, rng.u32(..4) > 0);
        let (stream, lane) = (&mut self.streams[stream], &mut self.lanes[lane]);
        let mut camera_is = |mode| {
            let is_other = stream.camera.mode != mode && stream.camera.mode != Mode::Damaged;
            if is_other {
                (stream.camera.mode, stream.camera.since) = (mode, now);
                stream.camera.back_at = (mode != Mode::Damaged && comes_back).then_some(until);
            }
            is_other
        };
        let is_other = match act {
            0 | 1 => camera_is(Mode::Silent),
            2 | 3 => camera_is(Mode::Away),
            4 if is_rare => camera_is(Mode::Damaged),
            4..=9 => camera_is(Mode::Delivers),
            10 => replace(&mut stream.camera.burst, burst),
            11 | 12 => replace(&mut lane.engine.slow_until, until),
            13 => {
                let fails = replace(&mut lane.engine.fails_until, until);
                replace(&mut lane.engine.fails_always, is_rare) || fails
            }
            14 if is_rare => replace(&mut stream.outputs.has_failed, true),
            _ => replace(&mut stream.outputs.blocked_until, until),
        };
        self.simulator.note(|| format!("fault {act}"));
        is_other
    }
}

/// Replaces a value. Returns whether it is another one.
fn replace<T: PartialEq>(value: &mut T, by: T) -> bool {
    let is_other = *value != by;
    *value = by;
    is_other
}
