//! One executing thread: takes batches, replays plans, hands outcomes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use orinoco_core::{Clock, Diagnosis, Findings, FrameDesc, StreamId};
use orinoco_telemetry::{DropCause, Event, EventSink, Stage, Stats};

use crate::{Executor, Frame, Mux, Outcome, Outlet, StageTimes};

/// After this many failed batches in a row the engine is taken to be broken and the lane ends.
const FAILURES_MAX: u32 = 8;

/// Follows what a stream's models find, from frame to frame: a tracker. Called for every frame, in order.
pub trait Follow: Send {
    /// Adds what it knows to the findings of one frame.
    fn follow(&mut self, frame: &FrameDesc, findings: &mut [(usize, Findings)]);
}

/// A plan with the model it belongs to.
pub struct BoundPlan {
    /// Index into the board's models.
    pub model: usize,
    /// The model's name, for events.
    pub name: String,
    /// The plan.
    pub executor: Box<dyn Executor>,
}

/// One executing thread. Models on a lane never overlap in time.
pub struct Lane {
    /// Where its batches come from.
    pub mux: Arc<Mux>,
    /// The plans of each group of streams, in the order in which they run.
    pub groups: Vec<Vec<BoundPlan>>,
    /// Who follows objects, for the streams where that is wanted.
    pub followers: BTreeMap<StreamId, Box<dyn Follow>>,
    /// Where its outcomes go.
    pub outlets: BTreeMap<StreamId, Outlet>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where failures go.
    pub events: Arc<dyn EventSink>,
    /// Counters.
    pub stats: Stats,
}

impl Lane {
    /// Runs on the calling thread until every stream has ended, or the engine fails again and again.
    pub fn run(mut self) -> Result<(), Diagnosis> {
        let result = self.batches();
        // Sources that wait for room must not wait for a lane that is gone.
        self.mux.close();
        result
    }

    fn batches(&mut self) -> Result<(), Diagnosis> {
        let mut batch = Vec::new();
        let mut scratch: Vec<Vec<Vec<Findings>>> =
            self.groups.iter().map(|plans| findings_for(plans)).collect();
        let mut failures = 0;
        while let Some(group) = self.mux.next_batch(&mut batch) {
            self.record_queue(&batch);
            match self.replay(group, &batch, &mut scratch[group]) {
                Ok(()) => {
                    failures = 0;
                    self.hand_on(group, &mut batch, &scratch[group]);
                }
                Err(why) => {
                    failures += 1;
                    self.drop_all(&mut batch);
                    if failures >= FAILURES_MAX {
                        return Err(why);
                    }
                }
            }
        }
        Ok(())
    }

    fn replay(
        &mut self,
        group: usize,
        batch: &[Frame],
        scratch: &mut [Vec<Findings>],
    ) -> Result<(), Diagnosis> {
        for (plan, findings) in self.groups[group].iter_mut().zip(scratch) {
            match plan.executor.replay(batch, &mut findings[..batch.len()]) {
                Ok(times) => record_times(&self.stats, batch, times),
                Err(why) => {
                    self.events.emit(Event::ReplayFailed { model: plan.name.clone(), why: why.clone() });
                    return Err(why);
                }
            }
        }
        Ok(())
    }

    fn hand_on(&mut self, group: usize, batch: &mut Vec<Frame>, scratch: &[Vec<Findings>]) {
        let finished = self.clock.now();
        for (index, frame) in batch.drain(..).enumerate() {
            let plans = self.groups[group].iter().zip(scratch);
            let mut findings: Vec<(usize, Findings)> =
                plans.map(|(plan, found)| (plan.model, found[index].clone())).collect();
            if let Some(follower) = self.followers.get_mut(&frame.desc.stream) {
                follower.follow(&frame.desc, &mut findings);
            }
            let outlet = &self.outlets[&frame.desc.stream];
            outlet.push(Outcome { frame, findings, finished }, &self.stats);
        }
    }

    fn drop_all(&self, batch: &mut Vec<Frame>) {
        for frame in batch.drain(..) {
            self.stats.stream(frame.desc.stream).drop_frame(DropCause::ReplayFailed);
        }
    }

    fn record_queue(&self, batch: &[Frame]) {
        let now = self.clock.now();
        for frame in batch {
            self.stats.stream(frame.desc.stream).record(Stage::Queue, now.since(frame.arrived));
        }
    }
}

fn findings_for(plans: &[BoundPlan]) -> Vec<Vec<Findings>> {
    plans.iter().map(|plan| vec![Findings::default(); plan.executor.batch_max()]).collect()
}

/// Each frame is charged its share of the batch.
fn record_times(stats: &Stats, batch: &[Frame], times: StageTimes) {
    let share = u32::try_from(batch.len()).expect("a batch is small");
    for frame in batch {
        let mut stats = stats.stream(frame.desc.stream);
        stats.record(Stage::Preprocess, times.preprocess / share);
        stats.record(Stage::Infer, times.infer / share);
        stats.record(Stage::Postprocess, times.postprocess / share);
    }
}
