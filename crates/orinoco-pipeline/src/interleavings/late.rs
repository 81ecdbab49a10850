//! Answers that come from another thread, requests, and plans that are replaced, while a lane runs.

use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{Diagnosis, DropPolicy, InferenceResult, LaneId, StreamId};

use super::check;
use super::frames::{Quiet, clock, telemetry};
use super::lane::{BATCH_MAX, MODEL, SOUND, live};
use crate::sync::{join, spawn};
use crate::{
    Answer, BoundPlan, Executed, Executor, Frame, Lane, LaneEntry, NextAnswer, Priority, Request,
    RequestInputs, StageTimes, Stop, Suspender, answer_channel,
};

/// An engine that computes elsewhere: other threads answer, and lose the answer to every third batch.
#[derive(Default)]
struct Remote {
    batches: u64,
}

impl Executor for Remote {
    fn batch_max(&self) -> usize {
        BATCH_MAX
    }

    fn execute(&mut self, _: &[Frame], _: &mut [InferenceResult]) -> Result<StageTimes, Diagnosis> {
        unreachable!("every step is suspended")
    }

    fn begin(
        &mut self,
        frames: &[Frame],
        _: &mut [InferenceResult],
        suspender: &mut Suspender<'_>,
    ) -> Result<Executed, Diagnosis> {
        let (images, suspension) = (frames.len(), suspender.suspend());
        self.batches += 1;
        let is_lost = self.batches.is_multiple_of(3);
        spawn(move || match is_lost {
            true => drop(suspension),
            // It may be too late.
            false => _ = suspension.resume(Ok(vec![InferenceResult::default(); images])),
        });
        Ok(Executed::Suspended(Duration::from_millis(20)))
    }
}

/// Runs one stream of suspended steps, with a close at any moment where asked for. [`live`] finds frames that are lost.
fn run_late(policy: DropPolicy, closes: bool) {
    let telemetry = telemetry(1);
    let model = telemetry.add_model();
    let (lane, entry) = Lane::new(clock(), Arc::new(Quiet), telemetry.lane(LaneId(0)));
    let stream = spawn({
        let (entry, stream) = (entry.clone(), telemetry.stream(StreamId(0)));
        move || live(&entry, &stream, policy, Remote::default(), &Stop::default())
    });
    let lane = spawn(move || lane.run());
    let closer = closes.then(|| spawn(move || entry.close()));
    let held = join(stream);
    join(lane).expect("what fails elsewhere does not end it");
    closer.into_iter().for_each(join);
    assert_eq!(held.count(), 0);
    let busy = telemetry.lane(LaneId(0)).read(|fold| (fold.executing_since, fold.batches));
    let answered = telemetry.model(model).read(|fold| fold.inferences);
    assert!(busy.0.is_none() && answered <= busy.1, "{busy:?}, {answered} answers");
}

#[test]
fn an_answer_may_come_at_any_moment_or_be_lost() {
    for policy in [DropPolicy::Block, DropPolicy::DropOldest] {
        check(move || run_late(policy, false));
    }
}

#[test]
fn a_lane_may_be_closed_while_it_waits_for_answers() {
    check(|| run_late(DropPolicy::Block, true));
}

/// Sends a request and waits for its end, which comes in any case.
fn ask(entry: &LaneEntry) {
    let (answers, receiver) = answer_channel(&clock());
    let (name, inputs) = ("m".into(), RequestInputs::Tensors(Vec::new()));
    let request = Request { model: MODEL, name, inputs, deadline: None, priority: Priority(0), answers };
    // Refused or not, it is answered.
    let _ = entry.request(request);
    assert!(matches!(receiver.next(None), NextAnswer::Answer(Answer::Failed(_))), "it takes frames only");
    assert!(matches!(receiver.poll(), NextAnswer::Ended));
}

/// Runs one stream with a request and a new plan at any moment, and a close where asked for.
fn run_asked(closes: bool) {
    let telemetry = telemetry(1);
    telemetry.add_model();
    let (lane, entry) = Lane::new(clock(), Arc::new(Quiet), telemetry.lane(LaneId(0)));
    let stream = spawn({
        let (entry, stream) = (entry.clone(), telemetry.stream(StreamId(0)));
        move || live(&entry, &stream, DropPolicy::Block, SOUND, &Stop::default())
    });
    let lane = spawn(move || lane.run());
    let client = spawn({
        let entry = entry.clone();
        move || ask(&entry)
    });
    let replacer = spawn({
        let entry = entry.clone();
        // The lane may not have the model yet, or not any more.
        move || _ = entry.replace(BoundPlan::new(MODEL, "m", Box::new(SOUND)))
    });
    let closer = closes.then(|| spawn(move || entry.close()));
    let held = join(stream);
    join(lane).expect("it is sound");
    [client, replacer].into_iter().chain(closer).for_each(join);
    assert_eq!(held.count(), 0);
}

#[test]
fn requests_and_new_plans_may_come_at_any_moment() {
    for closes in [false, true] {
        check(move || run_asked(closes));
    }
}
