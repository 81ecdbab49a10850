//! Lane: one executing thread. It takes batches, executes plans, and forwards results.

mod batch;
mod core;
mod entry;
mod execute;
mod order;
mod step;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{Clock, Diagnosis, ModelId, Nanos, StreamId, TimeSpan, codes};
use orinoco_telemetry::{DropCause, Event, EventSink, LaneTelemetry, Stage};

use crate::mux::Next;
use crate::request::{RequestRefusal, Unserved};
use crate::sync::Mutex;
use crate::{Frame, FrameResult, ModelResult, Mux, ResultSender, SUSPENSION_MAX, Stop, Ticket};
use batch::{Batch, Suspended};
use entry::{LaneState, lock};
use execute::{BatchInputs, Emitters, LanePlan, StepEnd};

pub use self::core::{AfterBatch, ExchangeError, JoinError, LaneCore, PlanFacts, StreamModels};
pub use entry::{JoinRequest, LaneEntry, ModelHold, StreamTracker};
pub use execute::not_finite;
pub use order::FrameOrder;
pub use step::{BoundPlan, ObjectSelection, Step};

/// One executing thread. Models on a lane never overlap in time.
pub struct Lane {
    mux: Arc<Mux>,
    books: Arc<Mutex<LaneState>>,
    plans: BTreeMap<ModelId, LanePlan>,
    streams: BTreeMap<StreamId, LaneStream>,
    inputs: BatchInputs,
    /// Batches that wait for an answer.
    suspended: BTreeMap<Ticket, Batch>,
    clock: Arc<dyn Clock>,
    events: Arc<dyn EventSink>,
    emitters: Emitters,
}

struct LaneStream {
    group: usize,
    steps: Vec<Step>,
    tracker: Option<Box<dyn StreamTracker>>,
    result_sender: ResultSender,
    stop: Stop,
    /// Frames that came.
    frames: u64,
    /// Frames that wait for an answer, and those behind them.
    order: FrameOrder<(Frame, Vec<ModelResult>)>,
}

impl LaneStream {
    /// Hands the result of a frame to the tracker and the sinks.
    fn forward(&mut self, frame: Frame, mut found: Vec<ModelResult>, finished: Nanos) {
        if let Some(tracker) = &mut self.tracker {
            tracker.track(&frame.desc, &mut found);
        }
        self.result_sender.push(FrameResult { frame, found, finished }, &self.stop);
    }

    /// Forwards the results that wait for no frame before them, and returns how many frames have left.
    fn forward_ready(&mut self, finished: Nanos) -> usize {
        let before = self.order.len();
        while let Some((frame, found)) = self.order.pop() {
            self.forward(frame, found, finished);
        }
        before - self.order.len()
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
        let (plans, streams, inputs) = (BTreeMap::new(), BTreeMap::new(), BatchInputs::default());
        let suspended = BTreeMap::new();
        (Self { mux, books, plans, streams, inputs, suspended, clock, events, emitters }, entry)
    }

    /// Runs on the calling thread until every stream has ended, or the engine fails again and again.
    pub fn run(mut self) -> Result<(), Diagnosis> {
        let mut batch = Vec::new();
        while let Some((next, now)) = self.mux.next(&mut batch) {
            match next {
                Next::Joined => self.admit_streams(),
                Next::Exchanged => self.exchange_plans(),
                Next::Left(stream) => self.remove_stream(stream),
                Next::Request => self.answer_request(),
                Next::Batch(group) => {
                    self.emitters.lane.took(batch.len(), now);
                    let admitted = self.admit_batch(group, batch, now);
                    // Its memory serves the next batch.
                    batch = self.execute(admitted)?;
                }
                Next::Resumed(ticket) => self.resume(ticket, now)?,
            }
        }
        Ok(())
    }

    fn admit_streams(&mut self) {
        let joining = std::mem::take(&mut lock(&self.books).joining);
        for JoinRequest { stream, queue, steps, plans, tracker, result_sender, stop, .. } in joining {
            for plan in plans {
                let telemetry = self.emitters.lane.run().model(plan.model);
                self.plans.entry(plan.model).or_insert_with(|| LanePlan::new(plan, telemetry));
            }
            self.emitters.streams.insert(stream, result_sender.telemetry().clone());
            let joined = LaneStream {
                group: queue.group,
                steps,
                tracker,
                result_sender,
                stop,
                frames: 0,
                order: FrameOrder::default(),
            };
            self.streams.insert(stream, joined);
        }
    }

    /// Takes the plans that are to replace others, and drops those.
    fn exchange_plans(&mut self) {
        let mut books = lock(&self.books);
        let plans = std::mem::take(&mut books.exchanges);
        let taken = plans.into_iter().map(|(model, plan)| (plan, books.core.take_exchange(model)));
        let taken: Vec<_> = taken.collect();
        drop(books);
        for (plan, batches) in taken {
            // A model that was given up meanwhile takes its new plan with it.
            let Some(batches) = batches else { continue };
            self.mux.set_batches(&batches);
            let telemetry = self.emitters.lane.run().model(plan.model);
            self.plans.insert(plan.model, LanePlan::new(plan, telemetry));
        }
    }

    /// A stream has ended: its sinks complete when its outlet is dropped, and models that nobody uses any more go.
    fn remove_stream(&mut self, stream: StreamId) {
        let mut books = lock(&self.books);
        books.core.leave(stream);
        let unused = self.plans.extract_if(.., |model, _| !books.core.has_model(*model));
        let unused: Vec<_> = unused.collect();
        drop(books);
        drop(unused);
        self.streams.remove(&stream);
        self.emitters.streams.remove(&stream);
    }

    fn answer_request(&mut self) {
        let Some(request) = self.mux.take_request() else { return };
        match self.plans.get_mut(&request.model) {
            Some(plan) => plan.plan.executor.answer(request),
            None => request.refuse(Unserved::Refused(RequestRefusal::NoModel)),
        }
    }

    /// Numbers the frames of a batch, which was taken at `now`.
    fn admit_batch(&mut self, group: usize, frames: Vec<Frame>, now: Nanos) -> Batch {
        let mut numbers = Vec::with_capacity(frames.len());
        for frame in &frames {
            let waited = TimeSpan::new(frame.arrived, now);
            self.emitters.stream(frame).emitter().stage(frame.desc.seq, Stage::Queue, waited);
            let stream = self.streams.get_mut(&frame.desc.stream).expect("a stream joins before its frames");
            numbers.push(stream.frames);
            stream.frames += 1;
        }
        Batch::new(group, frames, numbers)
    }

    /// Runs a batch through the steps that are left, and hands its results on or drops its frames; a batch that is suspended
    /// is put aside. Returns the memory of its frames. Fails when the engine is taken to be broken.
    fn execute(&mut self, mut batch: Batch) -> Result<Vec<Frame>, Diagnosis> {
        let executed = self.run_steps(&mut batch);
        // Shared slots go back with the batch.
        self.inputs.clear();
        match executed {
            Ok(StepEnd::Done) => {
                // What came from elsewhere says nothing about the engines here.
                if batch.suspended.is_none() {
                    lock(&self.books).core.finished(true);
                }
                self.forward_results(&mut batch);
            }
            Ok(StepEnd::Suspended { ticket, wait, inputs }) => {
                self.suspend(batch, ticket, wait, inputs);
                return Ok(Vec::new());
            }
            Err(why) => {
                let after = lock(&self.books).core.finished(false);
                self.drop_failed(&mut batch);
                if after == AfterBatch::End {
                    return Err(why);
                }
            }
        }
        Ok(batch.frames)
    }

    fn run_steps(&mut self, batch: &mut Batch) -> Result<StepEnd, Diagnosis> {
        let Self { mux, streams, plans, inputs, emitters, .. } = self;
        let steps = steps_of(streams, batch.group);
        while let Some(step) = steps.get(batch.step) {
            inputs.collect(step, batch);
            let plan = plans.get_mut(&step.model).expect("a stream brings the plans of its models");
            match plan.execute(inputs, batch, mux, emitters, &*self.events) {
                Ok(StepEnd::Done) => batch.step += 1,
                Ok(suspended) => return Ok(suspended),
                Err(why) => {
                    let model = plan.plan.name.clone();
                    self.events.emit(Event::ExecutionFailed { model, why: why.clone() });
                    return Err(why);
                }
            }
        }
        Ok(StepEnd::Done)
    }

    /// Puts a batch aside until its answer comes, and keeps results of later frames of its streams behind it.
    fn suspend(&mut self, mut batch: Batch, ticket: Ticket, wait: Duration, inputs: usize) {
        let now = self.clock.now();
        self.emitters.lane.suspended(batch.frames.len(), now);
        let first = batch.suspended.map_or(now, |suspended| suspended.first);
        let mut newly_held = &[][..];
        if batch.suspended.is_none() {
            newly_held = &batch.frames;
            for (frame, number) in batch.frames.iter().zip(&batch.numbers) {
                stream_of(&mut self.streams, frame).order.suspend(*number);
            }
        }
        self.mux.suspend(ticket, (now + wait).min(first + SUSPENSION_MAX), newly_held);
        batch.suspended = Some(Suspended { first, since: now, inputs });
        self.suspended.insert(ticket, batch);
    }

    /// Goes on at `now` with a batch that has its answer, or drops its frames if that is a fault or did not come in time.
    fn resume(&mut self, ticket: Ticket, now: Nanos) -> Result<(), Diagnosis> {
        let answer = self.mux.take_late_answer();
        let mut batch = self.suspended.remove(&ticket).expect("a ticket is resumed once");
        let Suspended { since, inputs: waiting, .. } = batch.suspended.expect("it was suspended");
        let waited = TimeSpan::new(since, now);
        self.emitters.lane.resumed(batch.frames.len(), now);
        let Self { streams, plans, inputs, emitters, .. } = self;
        let step = &steps_of(streams, batch.group)[batch.step];
        let plan = plans.get(&step.model).expect("a stream brings the plans of its models");
        let fault = |cause: String| {
            let next = "check the remote board that runs this model, and the connection to it";
            Err(Diagnosis::new(&codes::ENGINE_RUN, format!("model {}", plan.plan.name), cause, next))
        };
        let answer = match answer {
            Some(Ok(inference)) if inference.len() != waiting => {
                fault(format!("{waiting} inputs were sent, but {} results came back", inference.len()))
            }
            Some(answer) => answer,
            None => fault(format!("no answer came within {} ms", waited.duration().as_millis())),
        };
        match answer {
            Ok(inference) => {
                inputs.collect(step, &batch);
                plan.add_late(inputs, inference, waited, &mut batch, emitters, &*self.events);
                self.execute(batch).map(drop)
            }
            Err(why) => {
                self.events.emit(Event::ExecutionFailed { model: plan.plan.name.clone(), why });
                self.drop_failed(&mut batch);
                Ok(())
            }
        }
    }

    fn forward_results(&mut self, batch: &mut Batch) {
        let finished = self.clock.now();
        self.emitters.lane.finished(batch.frames.len(), finished);
        let was_suspended = batch.suspended.is_some();
        let results = batch.frames.drain(..).zip(batch.found.drain(..)).zip(&batch.numbers);
        for ((frame, found), number) in results {
            let id = frame.desc.stream;
            let stream = stream_of(&mut self.streams, &frame);
            if was_suspended {
                stream.order.finish(*number, Some((frame, found)));
                self.mux.release(id, stream.forward_ready(finished));
            } else if stream.order.is_empty() {
                stream.forward(frame, found, finished);
            } else {
                stream.order.track(*number, (frame, found));
                self.mux.hold(id);
            }
        }
    }

    /// Drops the frames of a batch that failed, and forwards results that have waited for them.
    fn drop_failed(&mut self, batch: &mut Batch) {
        let finished = self.clock.now();
        self.emitters.lane.finished(batch.frames.len(), finished);
        for (frame, number) in batch.frames.drain(..).zip(&batch.numbers) {
            let (id, seq) = (frame.desc.stream, frame.desc.seq);
            self.emitters.stream(&frame).drop_frame(seq, DropCause::ExecutionFailed, finished);
            let stream = stream_of(&mut self.streams, &frame);
            drop(frame);
            if batch.suspended.is_some() {
                stream.order.finish(*number, None);
                self.mux.release(id, stream.forward_ready(finished));
            }
        }
    }

    /// Drops the frames that wait for answers, and those behind them.
    fn drop_suspended(&mut self) {
        let now = self.clock.now();
        let waiting = std::mem::take(&mut self.suspended).into_values().flat_map(|batch| batch.frames);
        let behind = self.streams.values_mut().flat_map(|stream| stream.order.drain());
        for frame in waiting.chain(behind.map(|(frame, _)| frame)) {
            self.emitters.stream(&frame).drop_frame(frame.desc.seq, DropCause::Shutdown, now);
        }
    }
}

/// Steps of a group's streams.
fn steps_of(streams: &BTreeMap<StreamId, LaneStream>, group: usize) -> &[Step] {
    streams.values().find(|stream| stream.group == group).map_or(&[], |stream| &stream.steps)
}

fn stream_of<'a>(streams: &'a mut BTreeMap<StreamId, LaneStream>, frame: &Frame) -> &'a mut LaneStream {
    streams.get_mut(&frame.desc.stream).expect("a stream joins before its frames")
}

impl Drop for Lane {
    /// Sources that wait for room must not wait for a lane that is gone, be it by a panic, nor sinks for its results.
    fn drop(&mut self) {
        self.mux.close();
        self.drop_suspended();
        let mut books = lock(&self.books);
        let left = (std::mem::take(&mut books.joining), std::mem::take(&mut books.exchanges));
        drop(books);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Executor, MonotonicClock, SinkThread, Slot, SlotPool, StageTimes, StreamQueue};
    use orinoco_core::{DropPolicy, FrameDesc, InferenceResult, LaneId, PixelFormat};
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

    /// A source that is blocked by its ring goes on when the lane is gone, and its sinks complete.
    fn check(broken: Broken) {
        let (clock, telemetry) = (Arc::new(MonotonicClock::default()), Telemetry::new(1));
        telemetry.add_model();
        let (lane, entry) = Lane::new(clock.clone(), Arc::new(Quiet), telemetry.lane(LaneId(0)));
        let (stream, policy) = (StreamId(0), DropPolicy::Block);
        let telemetry = telemetry.stream(stream);
        let (sinks, result_sender) =
            SinkThread::new(telemetry, Vec::new(), policy, None, clock, Arc::new(Quiet));
        let queue = StreamQueue { group: 0, batch_max: 1, frames_max: 1, policy, batch_wait: Duration::ZERO };
        let plan = BoundPlan { model: ModelId(0), name: "broken".to_owned(), executor: Box::new(broken) };
        let steps = vec![Step { model: ModelId(0), interval: 1, on: None }];
        let joining = JoinRequest {
            stream,
            queue,
            steps,
            plans: vec![plan],
            tracker: None,
            in_video_memory: false,
            result_sender,
            stop: Stop::default(),
        };
        let frame_sender = entry.join(joining).expect("it runs");
        let source = std::thread::spawn(move || while frame_sender.push(frame()).is_ok() {});
        let lane = std::thread::spawn(move || lane.run());
        source.join().expect("it is told that the lane is gone");
        assert!(!matches!(lane.join(), Ok(Ok(()))));
        assert!(sinks.run().faults.is_empty());
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
                let queue = StreamQueue { group: 0, batch_max: 1, frames_max: 1, policy, batch_wait };
                let steps = vec![Step { model: ModelId(0), interval: 1, on: None }];
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
            let plan = |reads| BoundPlan {
                model: ModelId(0),
                name: "m".to_owned(),
                executor: Box::new(Reads(reads)),
            };
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
