//! One executing thread: takes batches, executes bound models, forwards results.

mod batch;
mod batches;
mod entry;
mod execute;
mod models;
mod order;
mod progress;
mod step;

use std::collections::BTreeMap;
use std::sync::Arc;

use orinoco_core::{Clock, Diagnosis, Nanos, StreamId, TimeSpan};
use orinoco_telemetry::{DropCause, Event, EventSink, LaneTelemetry, LaneWork, Stage, StreamTelemetry};

use crate::mux::Next;
use crate::request::{RequestRefusal, Unserved};
use crate::sync::Mutex;
use crate::{Frame, FrameResult, ModelResult, Mux, ResultSender, Stop, Ticket};
use batch::Batch;
use entry::{LaneState, facts, lock};
use execute::{BatchInputs, Emitters, Failure, LanePlan};

pub use batches::{
    AfterExecution, AfterFailure, BatchStep, Exchanged, Execution, ExecutionEnd, LaneBatches, Resumed,
    Unfinished,
};
pub use entry::{JoinRequest, LaneEntry, ModelHold, StreamTracker};
pub use execute::not_finite;
pub use models::{ExchangeError, JoinError, LaneModels, PlanFacts, StreamModels};
pub use order::Settled;
pub use step::{BoundPlan, Notice, ObjectSelection, Step};

/// One executing thread. Models on a lane never overlap in time.
pub struct Lane {
    mux: Arc<Mux>,
    books: Arc<Mutex<LaneState>>,
    batches: LaneBatches<LanePlan, Batch, (Frame, Vec<ModelResult>)>,
    streams: BTreeMap<StreamId, LaneStream>,
    inputs: BatchInputs,
    clock: Arc<dyn Clock>,
    events: Arc<dyn EventSink>,
    emitters: Emitters,
}

struct LaneStream {
    steps: Vec<Step>,
    output: StreamOutput,
}

/// Destination of a stream's results.
struct StreamOutput {
    tracker: Option<Box<dyn StreamTracker>>,
    result_sender: ResultSender,
    stop: Stop,
}

impl StreamOutput {
    /// Hands the result of a frame to the tracker and the sinks.
    fn forward(&mut self, frame: Frame, mut found: Vec<ModelResult>, finished: Nanos, lane: &LaneTelemetry) {
        if let Some(tracker) = &mut self.tracker {
            let _busy = lane.works(LaneWork::Track, finished);
            let telemetry = self.result_sender.telemetry();
            let _counted = CountedOnPanic { telemetry, seq: frame.desc.seq, at: finished };
            tracker.track(&frame.desc, &mut found);
        }
        self.result_sender.push(FrameResult { frame, found, finished }, &self.stop);
    }
}

/// Counts a frame as dropped if the code that has it panics.
struct CountedOnPanic<'a> {
    telemetry: &'a StreamTelemetry,
    seq: u64,
    at: Nanos,
}

impl Drop for CountedOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.telemetry.drop_frame(self.seq, DropCause::ExecutionFailed, self.at);
        }
    }
}

impl Lane {
    /// A lane without streams, and where they join it. It must have one before it runs.
    pub fn new(
        clock: Arc<dyn Clock>,
        events: Arc<dyn EventSink>,
        telemetry: LaneTelemetry,
    ) -> (Self, LaneEntry) {
        let mux = Mux::new(Arc::clone(&clock));
        let emitters = Emitters::new(telemetry);
        let books = Arc::<Mutex<LaneState>>::default();
        let entry = LaneEntry::new(&mux, &books);
        let (batches, streams, inputs) = (LaneBatches::default(), BTreeMap::new(), BatchInputs::default());
        (Self { mux, books, batches, streams, inputs, clock, events, emitters }, entry)
    }

    /// Runs on the calling thread until every stream has ended, or the engine fails again and again.
    pub fn run(mut self) -> Result<(), Diagnosis> {
        let mut frames = Vec::new();
        while let Some((next, now)) = self.mux.next(&mut frames) {
            match next {
                Next::Joined => self.change(now, Self::admit_streams),
                Next::Exchanged => self.change(now, Self::exchange_plans),
                Next::Left(stream) => self.change(now, |lane| lane.remove_stream(stream)),
                Next::Request => self.answer_request(),
                Next::Batch(_) => {
                    self.take_batch(frames, now);
                    // Its memory serves the next batch.
                    frames = self.execute()?;
                }
                Next::Resumed(ticket) => {
                    self.resume(ticket, now)?;
                }
            }
        }
        Ok(())
    }

    fn change(&mut self, now: Nanos, change: impl FnOnce(&mut Self)) {
        let _busy = self.emitters.lane.works(LaneWork::Change, now);
        change(self);
    }

    fn admit_streams(&mut self) {
        let joining = std::mem::take(&mut lock(&self.books).joining);
        for JoinRequest { stream, steps, plans, tracker, result_sender, stop, .. } in joining {
            for plan in plans {
                // A plan that the lane has already stays.
                if self.batches.facts(plan.model).is_none() {
                    self.batches.add_plan(facts(&plan), LanePlan::new(plan, &self.emitters.lane));
                }
            }
            let models = steps.iter().map(|step| step.model).collect();
            self.batches.add_stream(stream, models);
            self.emitters.streams.insert(stream, result_sender.telemetry().clone());
            let output = StreamOutput { tracker, result_sender, stop };
            self.streams.insert(stream, LaneStream { steps, output });
        }
        self.batches.take_intervals(&lock(&self.books).models);
    }

    /// Takes the plans that are to replace others, and drops those, and the models that were held and are not used. Takes
    /// the inference intervals, too.
    fn exchange_plans(&mut self) {
        let mut books = lock(&self.books);
        let plans = std::mem::take(&mut books.exchanges);
        let lane = &self.emitters.lane;
        let exchanged = self.batches.exchange(plans, &mut books.models, |plan| LanePlan::new(plan, lane));
        drop(books);
        self.mux.set_batches(&exchanged.batches);
        // Plans are dropped without the lock: that may take long, and making one does not.
        drop(exchanged);
    }

    /// Removes a stream that has ended: its sinks complete when its result sender is dropped, and models that no stream uses
    /// are dropped.
    fn remove_stream(&mut self, stream: StreamId) {
        let unused = self.batches.remove_stream(stream, &mut lock(&self.books).models);
        drop(unused);
        self.streams.remove(&stream);
        self.emitters.streams.remove(&stream);
    }

    fn answer_request(&mut self) {
        let Some(request) = self.mux.take_request() else { return };
        match self.batches.plan_mut(request.model) {
            Some(plan) => plan.answer(request, &self.emitters.lane, &*self.clock),
            None => request.refuse(Unserved::Refused(RequestRefusal::NoModel)),
        }
    }

    /// Makes frames of streams with the same steps, which came out of their rings at `now`, the current batch.
    fn take_batch(&mut self, frames: Vec<Frame>, now: Nanos) {
        self.emitters.lane.took(frames.len(), now);
        for frame in &frames {
            let waited = TimeSpan::new(frame.arrived, now);
            self.emitters.stream(frame).emitter().stage(frame.desc.seq, Stage::Queue, waited);
        }
        let stream_of = |batch: &Batch, index: usize| Some(batch.frames.get(index)?.desc.stream);
        self.batches.take(Batch::new(frames, now), stream_of);
    }

    /// Executes what is left of the current batch, and forwards its results or drops its frames; a batch that is suspended is
    /// put aside. Returns the memory of its frames. Fails when an engine counts as broken.
    fn execute(&mut self) -> Result<Vec<Frame>, Diagnosis> {
        while let Some(executed) = self.execute_next() {
            match self.finish(executed)? {
                BatchState::Current => {}
                BatchState::Suspended => return Ok(Vec::new()),
                BatchState::Dropped(frames) => return Ok(frames),
            }
        }
        // Shared slots go back with the batch.
        self.inputs.clear();
        Ok(self.forward_results())
    }

    /// Executes the next inputs of the current batch; `None` if there are no more.
    fn execute_next(&mut self) -> Option<Result<ExecutionEnd, Failure>> {
        let Self { batches, mux, streams, inputs, emitters, events, .. } = self;
        let collect = |at: BatchStep<'_>, batch: &mut Batch| {
            inputs.collect(&steps_of(streams, batch)[at.step], at, batch);
            inputs.len()
        };
        let Execution { plan, batch, inputs: range, wait_end, .. } = batches.next(collect)?;
        let executed = plan.execute(inputs, range, batch, wait_end, mux, emitters, &**events);
        Some(executed.map_err(|why| plan.failure(why)))
    }

    /// Goes on at `now` with a batch that has its answer, or drops its frames if that is a fault or did not come in time.
    fn resume(&mut self, ticket: Ticket, now: Nanos) -> Result<Vec<Frame>, Diagnosis> {
        let Self { batches, mux, streams, inputs, emitters, events, .. } = self;
        let answer = mux.take_late_answer();
        let Resumed { execution, since, answer } = batches.resume(ticket, answer, now);
        let Execution { step, plan, batch, inputs: range, .. } = execution;
        emitters.lane.resumed(batch.frames.len(), now);
        inputs.collect(&steps_of(streams, batch)[step.step], step, batch);
        let executed = match answer {
            Ok(inference) => {
                let waited = TimeSpan::new(since, now);
                plan.add_late(inputs, range, inference, waited, batch, emitters, &**events);
                Ok(ExecutionEnd::Passed)
            }
            Err(why) => match plan.fall_back(&why, inputs, range, batch, emitters, &**events) {
                Some(executed) => executed.map_err(|why| plan.failure(why)),
                None => Err(Failure {
                    end: ExecutionEnd::Unanswered,
                    ..plan.failure(why.diagnosis(&plan.plan.name))
                }),
            },
        };
        match self.finish(executed)? {
            BatchState::Current => self.execute(),
            BatchState::Suspended => Ok(Vec::new()),
            BatchState::Dropped(frames) => Ok(frames),
        }
    }

    /// Takes the end of an execution of the current batch.
    fn finish(&mut self, executed: Result<ExecutionEnd, Failure>) -> Result<BatchState, Diagnosis> {
        let now = self.clock.now();
        let (end, why) = match executed {
            Ok(end) => (end, None),
            Err(Failure { end, model, why }) => {
                self.events.emit(Event::ExecutionFailed { model, why: why.clone() });
                (end, Some(why))
            }
        };
        let after = match self.batches.finished(end, now) {
            AfterExecution::Next => return Ok(BatchState::Current),
            AfterExecution::Suspended { ticket, batch, until, is_first } => {
                self.emitters.lane.suspended(batch.frames.len(), now);
                self.mux.suspend(ticket, until, if is_first { &batch.frames } else { &[] });
                self.inputs.clear();
                return Ok(BatchState::Suspended);
            }
            AfterExecution::Failed(after) => after,
        };
        self.inputs.clear();
        let frames = self.drop_failed();
        match (after, why) {
            (AfterFailure::End, Some(why)) => Err(why),
            _ => Ok(BatchState::Dropped(frames)),
        }
    }

    /// Forwards the results of the current batch, frame by frame, so that a panic on the way leaves the rest in it. Returns the
    /// memory of its frames.
    fn forward_results(&mut self) -> Vec<Frame> {
        self.settle(|frame, found, _, _| Some((frame, found)))
    }

    /// Drops the frames of the current batch, which has failed, and forwards results that have waited for them. Returns the
    /// memory of its frames.
    fn drop_failed(&mut self) -> Vec<Frame> {
        self.settle(|frame, _, emitters, now| {
            let telemetry = emitters.stream(&frame);
            telemetry.drop_frame(frame.desc.seq, DropCause::ExecutionFailed, now);
            None
        })
    }

    /// Settles the frames of the current batch: `result` makes the result of each, or drops it.
    fn settle(
        &mut self,
        result: impl Fn(Frame, Vec<ModelResult>, &Emitters, Nanos) -> Option<(Frame, Vec<ModelResult>)>,
    ) -> Vec<Frame> {
        let now = self.clock.now();
        let Self { mux, batches, streams, emitters, .. } = self;
        let batch = batches.current_mut().expect("a batch is settled while it is the current one");
        emitters.lane.finished(batch.frames.len(), now);
        batch.reverse();
        let take = |batch: &mut Batch| {
            let (frame, found) = batch.pop()?;
            result(frame, found, emitters, now)
        };
        let mut forward = |(frame, found): (Frame, _)| {
            let stream = streams.get_mut(&frame.desc.stream).expect("a stream joins before its frames");
            stream.output.forward(frame, found, now, &emitters.lane);
        };
        while let Some((stream, settled)) = batches.settle_next(take, &mut forward) {
            match settled {
                Settled::Unchanged => {}
                Settled::Held => mux.hold(stream),
                Settled::Released(count) => mux.release(stream, count),
            }
        }
        batches.end_batch().frames
    }

    /// Drops the frames of a lane that has ended: those of the batch in which a panic ended it, those that wait for answers,
    /// and those behind them.
    fn drop_unfinished(&mut self) {
        let now = self.clock.now();
        let unfinished = self.batches.take_unfinished();
        if let Some(failed) = unfinished.current.filter(|batch| !batch.frames.is_empty()) {
            self.emitters.lane.finished(failed.frames.len(), now);
            for frame in &failed.frames {
                self.emitters.stream(frame).drop_frame(frame.desc.seq, DropCause::ExecutionFailed, now);
            }
        }
        let waiting = unfinished.suspended.into_iter().flat_map(|batch| batch.frames);
        for frame in waiting.chain(unfinished.held.into_iter().map(|(frame, _)| frame)) {
            self.emitters.stream(&frame).drop_frame(frame.desc.seq, DropCause::Shutdown, now);
        }
    }
}

/// State of a batch after an execution.
enum BatchState {
    /// It is the current one, and goes on.
    Current,
    /// It waits for an answer.
    Suspended,
    /// Its frames were dropped. This is their memory.
    Dropped(Vec<Frame>),
}

/// Steps of a batch.
fn steps_of<'a>(streams: &'a BTreeMap<StreamId, LaneStream>, batch: &Batch) -> &'a [Step] {
    let frame = batch.frames.first().expect("a batch has frames");
    &streams.get(&frame.desc.stream).expect("a stream leaves after its last frame").steps
}

impl Drop for Lane {
    /// Sources that wait for room must not wait for a lane that is gone, be it by a panic, nor sinks for its results.
    fn drop(&mut self) {
        self.mux.close();
        self.drop_unfinished();
        self.emitters.lane.ended();
        let mut books = lock(&self.books);
        let left = (std::mem::take(&mut books.joining), std::mem::take(&mut books.exchanges));
        drop(books);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Executor, MonotonicClock, SinkThread, Slot, SlotPool, StageTimes, StreamQueue};
    use orinoco_core::{DropPolicy, FrameDesc, InferenceResult, LaneId, ModelId, PixelFormat, codes};
    use orinoco_telemetry::Telemetry;

    struct Quiet;
    impl EventSink for Quiet {
        fn emit(&self, _: Event) {}
    }

    /// An engine that is broken.
    enum Broken {
        Fails,
        Panics,
    }
    impl Executor for Broken {
        fn batch_max(&self) -> usize {
            1
        }
        fn execute(&mut self, _: &[Frame], _: &mut [InferenceResult]) -> Result<StageTimes, Diagnosis> {
            match self {
                Self::Fails => Err(Diagnosis::new(&codes::ENGINE_RUN, "test", "it fails", "nothing")),
                Self::Panics => panic!("this test wants it"),
            }
        }
    }

    fn frame() -> Frame {
        let slot = SlotPool::new(1, 1).try_take().expect("free");
        let desc = FrameDesc::packed(PixelFormat::Gray8, 1, 1);
        Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("fits")
    }

    /// Starts a lane with one stream, and sends frames until the lane is gone or `frames_max` are sent. Returns the lane's end.
    fn run(
        telemetry: &Telemetry,
        executor: Box<dyn Executor>,
        tracker: Option<Box<dyn StreamTracker>>,
        frames_max: usize,
    ) -> std::thread::Result<Result<(), Diagnosis>> {
        let clock = Arc::new(MonotonicClock::default());
        telemetry.add_model();
        let (lane, entry) = Lane::new(clock.clone(), Arc::new(Quiet), telemetry.lane(LaneId(0)));
        let (stream, policy) = (StreamId(0), DropPolicy::Block);
        let telemetry = telemetry.stream(stream);
        let (sinks, result_sender) =
            SinkThread::new(telemetry, Vec::new(), policy, None, clock, Arc::new(Quiet));
        let queue = StreamQueue { group: 0, frames_max: 1, policy, batch_wait: Duration::ZERO };
        let plan = BoundPlan::new(ModelId(0), "test", executor);
        let steps = vec![Step { model: ModelId(0), on: None }];
        let joining = JoinRequest {
            stream,
            queue,
            steps,
            plans: vec![plan],
            tracker,
            in_video_memory: false,
            result_sender,
            stop: Stop::default(),
        };
        let frame_sender = entry.join(joining).expect("it runs");
        let source = std::thread::spawn(move || {
            let _sent = (0..frames_max).take_while(|_| frame_sender.push(frame()).is_ok()).count();
        });
        let lane = std::thread::spawn(move || lane.run());
        source.join().expect("it is told that the lane is gone");
        let end = lane.join();
        assert!(sinks.run().faults.is_empty());
        end
    }

    /// A source that is blocked by its ring goes on when the lane is gone, and its sinks complete.
    fn check(broken: Broken) {
        let end = run(&Telemetry::new(1), Box::new(broken), None, usize::MAX);
        assert!(!matches!(end, Ok(Ok(()))));
    }

    /// Looks at what a lane says that it does, where it could hang.
    struct Looks {
        lane: LaneTelemetry,
        seen: Arc<std::sync::Mutex<Vec<Option<LaneWork>>>>,
    }
    impl Looks {
        fn look(&self) {
            let work = self.lane.read(|fold| fold.other_work.map(|(work, _)| work));
            self.seen.lock().expect("no test panics here").push(work);
        }
    }
    impl Executor for Looks {
        fn batch_max(&self) -> usize {
            1
        }
        fn execute(&mut self, _: &[Frame], _: &mut [InferenceResult]) -> Result<StageTimes, Diagnosis> {
            self.look();
            Ok(StageTimes::default())
        }
    }
    impl Drop for Looks {
        fn drop(&mut self) {
            self.look();
        }
    }
    struct LookingTracker(Looks);
    impl StreamTracker for LookingTracker {
        fn track(&mut self, _: &FrameDesc, _: &mut Vec<ModelResult>) {
            self.0.look();
        }
    }

    #[test]
    fn a_lane_says_that_it_is_at_work_wherever_it_could_hang() {
        let telemetry = Telemetry::new(1);
        let seen = Arc::default();
        let looks = || Looks { lane: telemetry.lane(LaneId(0)), seen: Arc::clone(&seen) };
        let end = run(&telemetry, Box::new(looks()), Some(Box::new(LookingTracker(looks()))), 2);
        end.expect("no panic").expect("no fault");
        let (track, change) = (Some(LaneWork::Track), Some(LaneWork::Change));
        // Two frames, each executed and tracked; then the stream leaves, and the plan and the tracker are dropped.
        assert_eq!(*seen.lock().expect("no test panics here"), [None, track, None, track, change, change]);
        assert_eq!(telemetry.lane(LaneId(0)).read(|fold| fold.working_since()), None, "it waits");
    }

    /// A plan that reads video memory, or does not.
    struct Reads(bool);
    impl Executor for Reads {
        fn batch_max(&self) -> usize {
            1
        }
        fn reads_video_memory(&self) -> bool {
            self.0
        }
        fn execute(&mut self, _: &[Frame], _: &mut [InferenceResult]) -> Result<StageTimes, Diagnosis> {
            Ok(StageTimes::default())
        }
    }

    #[test]
    fn whether_a_plan_reads_video_memory_is_known_for_each_lane() {
        let (clock, telemetry) = (Arc::new(MonotonicClock::default()), Telemetry::new(2));
        let lanes = [true, false].map(|reads| {
            let (lane, entry) = Lane::new(clock.clone(), Arc::new(Quiet), telemetry.lane(LaneId(0)));
            let (policy, batch_wait) = (DropPolicy::Block, Duration::ZERO);
            let join = |stream: StreamId, plans: Vec<BoundPlan>| {
                let (_, result_sender) = SinkThread::new(
                    telemetry.stream(stream),
                    Vec::new(),
                    policy,
                    None,
                    clock.clone(),
                    Arc::new(Quiet),
                );
                let queue = StreamQueue { group: 0, frames_max: 1, policy, batch_wait };
                let steps = vec![Step { model: ModelId(0), on: None }];
                let stop = Stop::default();
                let in_video_memory = false;
                let tracker = None;
                entry.join(JoinRequest {
                    stream,
                    queue,
                    steps,
                    plans,
                    tracker,
                    in_video_memory,
                    result_sender,
                    stop,
                })
            };
            let plan = |reads| BoundPlan::new(ModelId(0), "m", Box::new(Reads(reads)));
            let first = join(StreamId(0), vec![plan(reads)]).expect("it is open");
            // The lane has a plan already, and keeps it.
            let second = join(StreamId(1), vec![plan(!reads)]).expect("it is open");
            (lane, entry, first, second)
        });
        assert_eq!(
            lanes.each_ref().map(|(_, entry, ..)| entry.reads_video_memory(ModelId(0))),
            [true, false]
        );
        assert!(!lanes[0].1.reads_video_memory(ModelId(1)), "it has no such model");
    }

    #[test]
    fn an_engine_that_fails_again_and_again_frees_its_sources() {
        check(Broken::Fails);
    }

    #[test]
    fn a_panic_frees_the_sources() {
        check(Broken::Panics);
    }
}
