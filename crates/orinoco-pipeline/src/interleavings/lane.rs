//! A whole lane: streams that join and leave while it runs, engines that fail, requests to end it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use orinoco_core::{Diagnosis, DropPolicy, InferenceResult, LaneId, ModelId, StreamId};
use orinoco_telemetry::StreamTelemetry;

use super::check;
use super::frames::{Held, Quiet, clock, dropped, fault, queue, telemetry};
use super::sink::sinks;
use crate::sync::{join, spawn};
use crate::{BoundPlan, Executor, Frame, JoinError, JoinRequest, Lane, LaneEntry, StageTimes, Step, Stop};

pub(super) const MODEL: ModelId = ModelId(0);
const FRAMES: u64 = 3;
pub(super) const BATCH_MAX: usize = 2;

/// An engine that works so many times, and then fails or panics.
#[derive(Clone, Copy)]
pub(super) struct Engine {
    executions_max: u64,
    panics: bool,
}

pub(super) const SOUND: Engine = Engine { executions_max: u64::MAX, panics: false };

impl Executor for Engine {
    fn batch_max(&self) -> usize {
        BATCH_MAX
    }

    fn execute(&mut self, _: &[Frame], _: &mut [InferenceResult]) -> Result<StageTimes, Diagnosis> {
        match self.executions_max.checked_sub(1) {
            Some(left) => self.executions_max = left,
            // Without the hook, which would print the order of the threads every time.
            None if self.panics => std::panic::resume_unwind(Box::new("this test wants it")),
            None => return Err(fault()),
        }
        Ok(StageTimes::default())
    }
}

/// Joins a stream, runs it to its end, and checks that each of its frames was written or counted as dropped. Returns the
/// count of those that are still held.
pub(super) fn live(
    entry: &LaneEntry,
    telemetry: &StreamTelemetry,
    policy: DropPolicy,
    engine: impl Executor + 'static,
    stop: &Stop,
) -> Held {
    let (held, stream) = (Held::default(), telemetry.id());
    let (thread, result_sender, written) = sinks(telemetry, policy, Duration::ZERO, u64::MAX);
    let plan = BoundPlan::new(MODEL, "m", Box::new(engine));
    let joining = JoinRequest {
        stream,
        queue: queue(policy, 2, 5),
        steps: vec![Step { model: MODEL, on: None }],
        plans: vec![plan],
        tracker: None,
        in_video_memory: false,
        result_sender,
        stop: stop.of(stream),
    };
    let thread = spawn(move || thread.run());
    let joined = entry.join(joining);
    let mut offered = 0;
    match joined {
        Ok(frame_sender) => {
            while offered < FRAMES && !stop.requested() {
                offered += 1;
                if frame_sender.push(held.frame(stream, offered)).is_err() {
                    break;
                }
            }
        }
        Err(error) => assert_eq!(error, JoinError::Ended),
    }
    // Its sinks complete when the lane has let it go.
    join(thread);
    let (written, dropped) = (written.load(Ordering::Relaxed), dropped(telemetry));
    assert_eq!(offered, written + dropped, "{stream}: {written} written, {dropped} dropped");
    held
}

/// Runs two streams that join at any moment, or find the lane ended, with a close or a stop at any moment where asked for.
fn run(policy: DropPolicy, engine: Engine, closes: bool, stops: bool) {
    let (telemetry, stop) = (telemetry(2), Stop::default());
    telemetry.add_model();
    let (lane, entry) = Lane::new(clock(), Arc::new(Quiet), telemetry.lane(LaneId(0)));
    // A lane must have a stream before it runs: else it ends at once, which is one more order.
    let streams = [StreamId(0), StreamId(1)].map(|stream| {
        let (entry, stop, stream) = (entry.clone(), stop.clone(), telemetry.stream(stream));
        spawn(move || live(&entry, &stream, policy, engine, &stop))
    });
    let lane = spawn(move || {
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lane.run()));
        matches!(ran, Ok(Ok(())))
    });
    let closer = closes.then(|| {
        let entry = entry.clone();
        spawn(move || entry.close())
    });
    let stopper = stops.then(|| spawn(move || stop.request()));
    let held = streams.map(join);
    let is_sound = join(lane);
    assert!(held.iter().all(|held| held.count() == 0));
    assert!(is_sound || engine.executions_max < u64::MAX);
    closer.into_iter().chain(stopper).for_each(join);
    assert!(entry.hold(MODEL).is_none() || closes || !is_sound, "a model that nobody uses is given up");
}

#[test]
fn streams_join_and_leave_while_it_runs() {
    for policy in [DropPolicy::Block, DropPolicy::DropOldest] {
        check(move || run(policy, SOUND, false, false));
    }
}

#[test]
fn it_may_be_closed_at_any_moment() {
    check(|| run(DropPolicy::Block, SOUND, true, false));
}

#[test]
fn everything_may_be_stopped_at_any_moment() {
    check(|| run(DropPolicy::Block, SOUND, false, true));
}

#[test]
fn an_engine_that_fails_frees_sources_and_sinks() {
    check(|| run(DropPolicy::Block, Engine { executions_max: 1, panics: false }, false, false));
}

#[test]
fn a_panic_frees_sources_and_sinks() {
    check(|| run(DropPolicy::Block, Engine { executions_max: 1, panics: true }, false, false));
}

#[test]
fn a_model_that_is_held_stays() {
    check(|| {
        let telemetry = telemetry(1);
        telemetry.add_model();
        let (lane, entry) = Lane::new(clock(), Arc::new(Quiet), telemetry.lane(LaneId(0)));
        let stream = spawn({
            let (entry, stream) = (entry.clone(), telemetry.stream(StreamId(0)));
            move || live(&entry, &stream, DropPolicy::Block, SOUND, &Stop::default())
        });
        let lane = spawn(move || lane.run());
        let holder = spawn({
            let entry = entry.clone();
            move || {
                let Some(hold) = entry.hold(MODEL) else { return };
                assert!(entry.hold(MODEL).is_some(), "it is held");
                drop(hold);
            }
        });
        let held = join(stream);
        join(holder);
        join(lane).expect("it is sound");
        assert_eq!(held.count(), 0);
    });
}
