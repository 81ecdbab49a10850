//! One executing thread: takes batches, executes bound models, forwards results.

mod batch;
mod core;
mod entry;
mod execute;
mod order;
mod progress;
mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{Clock, Diagnosis, ModelId, Nanos, StreamId, TimeSpan};
use orinoco_telemetry::{DropCause, Event, EventSink, LaneTelemetry, Stage, StreamTelemetry};

use crate::mux::Next;
use crate::request::{RequestRefusal, Unserved};
use crate::sync::Mutex;
use crate::{Frame, FrameResult, ModelResult, Mux, ResultSender, Stop, Ticket};
use batch::Batch;
use entry::{LaneState, lock};
use execute::{BatchInputs, Emitters, LanePlan, StepEnd};

pub use self::core::{AfterFailure, ExchangeError, JoinError, LaneCore, PlanFacts, StreamModels};
pub use entry::{JoinRequest, LaneEntry, ModelHold, StreamTracker};
pub use execute::not_finite;
pub use order::{FrameOrder, Settled};
pub use progress::BatchProgress;
pub use step::{BoundPlan, Notice, ObjectSelection, Step};

/// One executing thread. Models on a lane never overlap in time.
pub struct Lane {
    mux: Arc<Mux>,
    books: Arc<Mutex<LaneState>>,
    plans: BTreeMap<ModelId, LanePlan>,
    streams: BTreeMap<StreamId, LaneStream>,
    inputs: BatchInputs,
    /// Batch that is being executed or forwarded. One that a panic leaves here has failed.
    current: Option<Batch>,
    /// Batches that wait for an answer.
    suspended: BTreeMap<Ticket, Batch>,
    /// Plans that were replaced while steps that they began were suspended.
    replaced: Vec<ReplacedPlan>,
    clock: Arc<dyn Clock>,
    events: Arc<dyn EventSink>,
    emitters: Emitters,
}

/// Plan that was replaced, and is kept until its suspended steps are over: dropping it might lose the answers, and a step
/// without one is done by the plan that began it.
struct ReplacedPlan {
    plan: LanePlan,
    tickets: BTreeSet<Ticket>,
}

struct LaneStream {
    group: usize,
    steps: Vec<Step>,
    output: StreamOutput,
    /// Frames that came.
    frames: u64,
    /// Frames that wait for an answer, and those behind them.
    order: FrameOrder<(Frame, Vec<ModelResult>)>,
}

/// Destination of a stream's results.
struct StreamOutput {
    tracker: Option<Box<dyn StreamTracker>>,
    result_sender: ResultSender,
    stop: Stop,
}

impl StreamOutput {
    /// Hands the result of a frame to the tracker and the sinks.
    fn forward(&mut self, frame: Frame, mut found: Vec<ModelResult>, finished: Nanos) {
        if let Some(tracker) = &mut self.tracker {
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
        let (plans, streams, inputs) = (BTreeMap::new(), BTreeMap::new(), BatchInputs::default());
        let (current, suspended, replaced) = (None, BTreeMap::new(), Vec::new());
        let lane = Self {
            mux,
            books,
            plans,
            streams,
            inputs,
            current,
            suspended,
            replaced,
            clock,
            events,
            emitters,
        };
        (lane, entry)
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
                    self.current = Some(self.admit_batch(group, batch, now));
                    // Its memory serves the next batch.
                    batch = self.execute()?;
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
                self.plans
                    .entry(plan.model)
                    .or_insert_with(|| LanePlan::new(plan, telemetry, &self.emitters.lane));
            }
            self.emitters.streams.insert(stream, result_sender.telemetry().clone());
            let joined = LaneStream {
                group: queue.group,
                steps,
                output: StreamOutput { tracker, result_sender, stop },
                frames: 0,
                order: FrameOrder::default(),
            };
            self.streams.insert(stream, joined);
        }
        take_intervals(&mut self.plans, &lock(&self.books).core);
    }

    /// Takes the plans that are to replace others, and drops those, and the models that were held and are not used. Takes
    /// the inference intervals, too.
    fn exchange_plans(&mut self) {
        let mut books = lock(&self.books);
        // A model that nobody uses any more takes no plan.
        books.core.drop_unused();
        let plans = std::mem::take(&mut books.exchanges);
        let taken = plans.into_iter().map(|(model, plan)| (plan, books.core.take_exchange(model)));
        let taken: Vec<_> = taken.collect();
        let unused = extract_unused(&mut self.plans, &books.core);
        drop(books);
        drop(unused);
        for (plan, batches) in taken {
            // A model that was dropped meanwhile takes its new plan with it.
            let Some(batches) = batches else { continue };
            self.mux.set_batches(&batches);
            let telemetry = self.emitters.lane.run().model(plan.model);
            let (model, plan) = (plan.model, LanePlan::new(plan, telemetry, &self.emitters.lane));
            if let Some(replaced) = self.plans.insert(model, plan) {
                self.keep_for_answers(replaced);
            }
        }
        take_intervals(&mut self.plans, &lock(&self.books).core);
    }

    /// Drops a plan that was replaced, or keeps it until its suspended steps are over.
    fn keep_for_answers(&mut self, mut plan: LanePlan) {
        let waits_for_it = |batch: &Batch| {
            let steps = steps_of(&self.streams, batch.group);
            steps.get(batch.progress.step()).is_some_and(|step| step.model == plan.plan.model)
        };
        let of_earlier = |ticket: &Ticket| self.replaced.iter().any(|plan| plan.tickets.contains(ticket));
        let waiting = self.suspended.iter().filter(|(_, batch)| waits_for_it(batch));
        let tickets = waiting.map(|(ticket, _)| *ticket).filter(|ticket| !of_earlier(ticket));
        let tickets: BTreeSet<Ticket> = tickets.collect();
        if !tickets.is_empty() {
            plan.is_replaced = true;
            for ticket in &tickets {
                let batch = self.suspended.get_mut(ticket).expect("it is one of them");
                batch.progress.replaced();
            }
            self.replaced.push(ReplacedPlan { plan, tickets });
        }
    }

    /// Drops the replaced plan whose last suspended step was this one.
    fn drop_unneeded(&mut self, ticket: Ticket) {
        self.replaced.retain_mut(|replaced| {
            replaced.tickets.remove(&ticket);
            !replaced.tickets.is_empty()
        });
    }

    /// Removes a stream that has ended: its sinks complete when its result sender is dropped, and models that no stream uses
    /// are dropped.
    fn remove_stream(&mut self, stream: StreamId) {
        let mut books = lock(&self.books);
        books.core.leave(stream);
        let unused = extract_unused(&mut self.plans, &books.core);
        drop(books);
        drop(unused);
        self.streams.remove(&stream);
        self.emitters.streams.remove(&stream);
    }

    fn answer_request(&mut self) {
        let Some(request) = self.mux.take_request() else { return };
        match self.plans.get_mut(&request.model) {
            Some(plan) => plan.answer(request, &self.emitters.lane, &*self.clock),
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
        Batch::new(group, frames, numbers, now)
    }

    /// Executes the steps of the current batch that are left, and forwards its results or drops its frames; a batch that is
    /// suspended is put aside. Returns the memory of its frames. Fails when an engine counts as broken.
    fn execute(&mut self) -> Result<Vec<Frame>, Diagnosis> {
        let executed = self.run_steps();
        // Shared slots go back with the batch.
        self.inputs.clear();
        match executed {
            Ok(StepEnd::Done) => self.forward_results(),
            Ok(StepEnd::Suspended { ticket, wait, inputs }) => {
                self.suspend(ticket, wait, inputs);
                return Ok(Vec::new());
            }
            Err((model, why)) => {
                self.drop_failed();
                if lock(&self.books).core.failed(model) == AfterFailure::End {
                    return Err(why);
                }
            }
        }
        Ok(self.current.take().expect("only a panic leaves a batch behind").frames)
    }

    /// Executes the steps of the current batch until it is done, is suspended, or a model fails.
    fn run_steps(&mut self) -> Result<StepEnd, (ModelId, Diagnosis)> {
        let Self { books, mux, streams, plans, inputs, emitters, current, .. } = self;
        let batch = current.as_mut().expect("a batch is executed while it is the current one");
        let steps = steps_of(streams, batch.group);
        while let Some(step) = steps.get(batch.progress.step()) {
            let plan = plans.get_mut(&step.model).expect("a stream brings the plans of its models");
            batch.progress.begin_step(plan.plan.interval);
            inputs.collect(step, batch);
            match plan.execute(inputs, batch, mux, emitters, &*self.events) {
                Ok(StepEnd::Done) => {
                    if batch.progress.end_step() {
                        lock(books).core.executed(step.model);
                    }
                }
                Ok(suspended) => return Ok(suspended),
                Err(why) => {
                    let model = plan.plan.name.clone();
                    self.events.emit(Event::ExecutionFailed { model, why: why.clone() });
                    return Err((step.model, why));
                }
            }
        }
        Ok(StepEnd::Done)
    }

    /// Puts the current batch aside until its answer comes, and keeps results of later frames of its streams behind it.
    fn suspend(&mut self, ticket: Ticket, wait: Duration, inputs: usize) {
        let mut batch = self.current.take().expect("a batch is suspended while it is the current one");
        let now = self.clock.now();
        self.emitters.lane.suspended(batch.frames.len(), now);
        let mut newly_held = &[][..];
        if !batch.progress.was_suspended() {
            newly_held = &batch.frames;
            for (frame, number) in batch.frames.iter().zip(&batch.numbers) {
                stream_of(&mut self.streams, frame).order.suspend(*number);
            }
        }
        let until = batch.progress.suspend(inputs, wait, now);
        self.mux.suspend(ticket, until, newly_held);
        self.suspended.insert(ticket, batch);
    }

    /// Goes on at `now` with a batch that has its answer, or drops its frames if that is a fault or did not come in time.
    fn resume(&mut self, ticket: Ticket, now: Nanos) -> Result<(), Diagnosis> {
        let answer = self.mux.take_late_answer();
        let batch = self.suspended.remove(&ticket).expect("a ticket is resumed once");
        let (_, since) = batch.progress.waiting_inputs();
        let waited = TimeSpan::new(since, now);
        self.emitters.lane.resumed(batch.frames.len(), now);
        let Self { books, streams, plans, replaced, inputs, emitters, current, .. } = self;
        let batch = current.insert(batch);
        let step = &steps_of(streams, batch.group)[batch.progress.step()];
        let began_it = replaced.iter_mut().find(|replaced| replaced.tickets.contains(&ticket));
        let plan = match began_it {
            Some(replaced) => &mut replaced.plan,
            None => plans.get_mut(&step.model).expect("a stream brings the plans of its models"),
        };
        let (model, name) = (step.model, plan.plan.name.clone());
        let results = batch.progress.results(answer, now);
        inputs.collect(step, batch);
        let failed = match results {
            Ok(inference) => {
                plan.add_late(inputs, inference, waited, batch, emitters, &*self.events);
                None
            }
            Err(why) => match plan.fall_back(&why, inputs, batch, emitters, &*self.events) {
                Some(Ok(())) => None,
                Some(Err(of_engine)) if plan.is_replaced => Some((of_engine, AfterFailure::Continue)),
                Some(Err(of_engine)) => Some((of_engine, lock(books).core.failed(model))),
                // What happens elsewhere says nothing about the engine here.
                None => Some((why.diagnosis(&name), AfterFailure::Continue)),
            },
        };
        self.drop_unneeded(ticket);
        let Some((why, after)) = failed else { return self.execute().map(drop) };
        self.inputs.clear();
        self.events.emit(Event::ExecutionFailed { model: name, why: why.clone() });
        self.drop_failed();
        self.current = None;
        if after == AfterFailure::End { Err(why) } else { Ok(()) }
    }

    /// Forwards the results of the current batch, frame by frame, so that a panic on the way leaves the rest in it.
    fn forward_results(&mut self) {
        let finished = self.clock.now();
        let Self { mux, streams, emitters, current, .. } = self;
        let batch = current.as_mut().expect("a batch is forwarded while it is the current one");
        emitters.lane.finished(batch.frames.len(), finished);
        batch.reverse();
        while let Some((frame, found, number)) = batch.pop() {
            let was_suspended = batch.progress.was_suspended();
            let id = frame.desc.stream;
            let LaneStream { order, output, .. } = stream_of(streams, &frame);
            let forward = |(frame, found)| output.forward(frame, found, finished);
            match order.settle(number, was_suspended, Some((frame, found)), forward) {
                Settled::Unchanged => {}
                Settled::Held => mux.hold(id),
                Settled::Released(count) => mux.release(id, count),
            }
        }
    }

    /// Drops the frames of the current batch, which has failed, and forwards results that have waited for them.
    fn drop_failed(&mut self) {
        let finished = self.clock.now();
        let Self { mux, streams, emitters, current, .. } = self;
        let batch = current.as_mut().expect("a batch fails while it is the current one");
        emitters.lane.finished(batch.frames.len(), finished);
        batch.reverse();
        while let Some((frame, _, number)) = batch.pop() {
            let (id, seq) = (frame.desc.stream, frame.desc.seq);
            emitters.stream(&frame).drop_frame(seq, DropCause::ExecutionFailed, finished);
            let LaneStream { order, output, .. } = stream_of(streams, &frame);
            drop(frame);
            let forward = |(frame, found)| output.forward(frame, found, finished);
            if let Settled::Released(count) =
                order.settle(number, batch.progress.was_suspended(), None, forward)
            {
                mux.release(id, count);
            }
        }
    }

    /// Drops the frames of a lane that has ended: those of the batch in which a panic ended it, those that wait for answers,
    /// and those behind them.
    fn drop_unfinished(&mut self) {
        let now = self.clock.now();
        if let Some(failed) = self.current.take().filter(|batch| !batch.frames.is_empty()) {
            self.emitters.lane.finished(failed.frames.len(), now);
            for frame in &failed.frames {
                self.emitters.stream(frame).drop_frame(frame.desc.seq, DropCause::ExecutionFailed, now);
            }
        }
        let waiting = std::mem::take(&mut self.suspended).into_values().flat_map(|batch| batch.frames);
        let behind = self.streams.values_mut().flat_map(|stream| stream.order.drain());
        for frame in waiting.chain(behind.map(|(frame, _)| frame)) {
            self.emitters.stream(&frame).drop_frame(frame.desc.seq, DropCause::Shutdown, now);
        }
    }
}

/// Gives the plans the inference intervals that are set for their models.
fn take_intervals(plans: &mut BTreeMap<ModelId, LanePlan>, core: &LaneCore) {
    for (model, plan) in plans {
        plan.plan.interval = core.interval(*model).unwrap_or(plan.plan.interval);
    }
}

/// Removes the plans of models that the lane has dropped, and returns them: dropping one takes its time, and the caller
/// unlocks the books first.
fn extract_unused(plans: &mut BTreeMap<ModelId, LanePlan>, core: &LaneCore) -> Vec<(ModelId, LanePlan)> {
    plans.extract_if(.., |model, _| !core.has_model(*model)).collect()
}

/// Steps of a group's streams.
fn steps_of(streams: &BTreeMap<StreamId, LaneStream>, group: usize) -> &[Step] {
    let of_group = streams.values().find(|stream| stream.group == group);
    &of_group.expect("a stream leaves after its last frame").steps
}

fn stream_of<'a>(streams: &'a mut BTreeMap<StreamId, LaneStream>, frame: &Frame) -> &'a mut LaneStream {
    streams.get_mut(&frame.desc.stream).expect("a stream joins before its frames")
}

impl Drop for Lane {
    /// Sources that wait for room must not wait for a lane that is gone, be it by a panic, nor sinks for its results.
    fn drop(&mut self) {
        self.mux.close();
        self.drop_unfinished();
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
    use orinoco_core::{DropPolicy, FrameDesc, InferenceResult, LaneId, PixelFormat, codes};
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
        let queue = StreamQueue { group: 0, frames_max: 1, policy, batch_wait: Duration::ZERO };
        let plan = BoundPlan::new(ModelId(0), "broken", Box::new(broken));
        let steps = vec![Step { model: ModelId(0), on: None }];
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
