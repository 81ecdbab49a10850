//! One executing thread: takes batches, replays plans, hands outcomes on.

mod core;
mod execute;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError};

use orinoco_core::{Clock, Diagnosis, FrameDesc, ModelId, Nanos, StreamId, TimeSpan};
use orinoco_telemetry::{DropCause, Event, EventSink, LaneTelemetry, Stage};

use crate::mux::Next;
use crate::sync::{Mutex, MutexGuard};
use crate::{Closed, Frame, FrameResult, FrameSender, ModelResult, Mux, ResultSender, Stop, StreamQueue};
use execute::{BatchInputs, Emitters, LanePlan};

pub use self::core::{AfterBatch, JoinError, LaneCore, PlanFacts};
pub use execute::{BoundPlan, ObjectSelection, not_finite};

/// Follows what a stream's models find, from frame to frame: a tracker. Called for every frame, in order.
pub trait StreamTracker: Send {
    /// Adds what it knows to the findings of one frame.
    fn track(&mut self, frame: &FrameDesc, found: &mut Vec<ModelResult>);
}

/// One model of those that a stream's frames run through.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The model.
    pub model: ModelId,
    /// It looks at every so many frames of a stream, beginning with the first.
    pub interval: u32,
    /// It looks at objects in place of whole frames.
    pub on: Option<ObjectSelection>,
}

/// A stream that joins a lane.
pub struct JoinRequest {
    /// Which.
    pub stream: StreamId,
    /// How its frames wait. Streams of one group have the same steps.
    pub queue: StreamQueue,
    /// What its frames run through.
    pub steps: Vec<Step>,
    /// Plans of those models that the lane does not hold yet.
    pub plans: Vec<BoundPlan>,
    /// Who follows its objects, where that is wanted.
    pub tracker: Option<Box<dyn StreamTracker>>,
    /// Where its outcomes go.
    pub result_sender: ResultSender,
    /// The wish to end it.
    pub stop: Stop,
}

/// What a lane's thread shares with those who let streams join it.
#[derive(Default)]
struct LaneState {
    core: LaneCore,
    /// Streams that the lane has not admitted yet.
    joining: Vec<JoinRequest>,
}

/// Where streams join a lane, also while it runs. They leave it when their source ends.
#[derive(Clone)]
pub struct LaneEntry {
    mux: Arc<Mux>,
    books: Arc<Mutex<LaneState>>,
}

impl LaneEntry {
    /// Adds a stream; its source pushes into the inlet.
    pub fn join(&self, joining: JoinRequest) -> Result<FrameSender, JoinError> {
        let models: Vec<ModelId> = joining.steps.iter().map(|step| step.model).collect();
        let brought = joining.plans.iter().map(|plan| PlanFacts {
            model: plan.model,
            reads_video_memory: plan.executor.reads_video_memory(),
        });
        let brought: Vec<PlanFacts> = brought.collect();
        let mut books = lock(&self.books);
        books.core.check_join(&models, &brought)?;
        let frame_sender = self
            .mux
            .add(joining.result_sender.telemetry().clone(), joining.queue)
            .map_err(|Closed| JoinError::Ended)?;
        // The lane may know of the stream by now, and waits for the books to admit it.
        books.core.join(joining.stream, models, &brought);
        books.joining.push(joining);
        Ok(frame_sender)
    }

    /// Whether the lane's plan of a model reads frames where the video hardware left them.
    pub fn reads_video_memory(&self, model: ModelId) -> bool {
        lock(&self.books).core.reads_video_memory(model)
    }

    /// Ends the lane after the batch at work. Frames that wait are dropped, and further ones refused.
    pub fn close(&self) {
        self.mux.close();
    }

    /// Keeps a model on the lane until this is dropped, if the lane has it.
    pub fn hold(&self, model: ModelId) -> Option<ModelHold> {
        lock(&self.books).core.hold(model).then(|| ModelHold { books: Arc::clone(&self.books), model })
    }
}

/// A use of a lane's model by somebody who prepares a stream for it.
pub struct ModelHold {
    books: Arc<Mutex<LaneState>>,
    model: ModelId,
}

impl Drop for ModelHold {
    fn drop(&mut self) {
        lock(&self.books).core.release(self.model);
    }
}

impl fmt::Debug for ModelHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hold(model {})", self.model)
    }
}

fn lock(books: &Mutex<LaneState>) -> MutexGuard<'_, LaneState> {
    // A poisoned lock means a panic between two counts, and those are whole.
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One executing thread. Models on a lane never overlap in time.
pub struct Lane {
    mux: Arc<Mux>,
    books: Arc<Mutex<LaneState>>,
    plans: BTreeMap<ModelId, LanePlan>,
    streams: BTreeMap<StreamId, LaneStream>,
    pictures: BatchInputs,
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
        let entry = LaneEntry { mux: Arc::clone(&mux), books: Arc::clone(&books) };
        let (plans, streams, pictures) = (BTreeMap::new(), BTreeMap::new(), BatchInputs::default());
        (Self { mux, books, plans, streams, pictures, clock, events, emitters }, entry)
    }

    /// Runs on the calling thread until every stream has ended, or the engine fails again and again.
    pub fn run(mut self) -> Result<(), Diagnosis> {
        let mut batch = Vec::new();
        while let Some((next, now)) = self.mux.next(&mut batch) {
            match next {
                Next::Joined => self.admit_streams(),
                Next::Left(stream) => self.remove_stream(stream),
                Next::Batch(group) => {
                    self.emitters.lane.took(batch.len(), now);
                    let executed = self.execute(group, &batch, now);
                    let after = lock(&self.books).core.finished(executed.is_ok());
                    match executed {
                        Ok(found) => self.forward_results(&mut batch, found),
                        Err(why) => {
                            self.drop_all(&mut batch);
                            if after == AfterBatch::End {
                                return Err(why);
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn admit_streams(&mut self) {
        let joining = std::mem::take(&mut lock(&self.books).joining);
        for JoinRequest { stream, queue, steps, plans, tracker, result_sender, stop } in joining {
            for plan in plans {
                let telemetry = self.emitters.lane.run().model(plan.model);
                self.plans.entry(plan.model).or_insert_with(|| LanePlan::new(plan, telemetry));
            }
            self.emitters.streams.insert(stream, result_sender.telemetry().clone());
            let joined = LaneStream { group: queue.group, steps, tracker, result_sender, stop, frames: 0 };
            self.streams.insert(stream, joined);
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

    /// Runs a batch, which was taken at `now`, through the models of its group, and returns what they found in each frame.
    fn execute(
        &mut self,
        group: usize,
        batch: &[Frame],
        now: Nanos,
    ) -> Result<Vec<Vec<ModelResult>>, Diagnosis> {
        let mut numbers = Vec::with_capacity(batch.len());
        for frame in batch {
            let waited = TimeSpan::new(frame.arrived, now);
            self.emitters.stream(frame).emitter().stage(frame.desc.seq, Stage::Queue, waited);
            let stream = self.streams.get_mut(&frame.desc.stream).expect("a stream joins before its frames");
            numbers.push(stream.frames);
            stream.frames += 1;
        }
        let mut found: Vec<Vec<ModelResult>> = batch.iter().map(|_| Vec::new()).collect();
        let Self { streams, plans, pictures, emitters, .. } = self;
        let steps = streams.values().find(|stream| stream.group == group).map_or(&[][..], |s| &s.steps);
        for step in steps {
            pictures.clear();
            for (index, frame) in batch.iter().enumerate() {
                match &step.on {
                    _ if !numbers[index].is_multiple_of(u64::from(step.interval)) => {}
                    None => pictures.push_whole(index, frame),
                    Some(wanted) => pictures.push_objects(index, frame, wanted, &found[index]),
                }
            }
            let plan = plans.get_mut(&step.model).expect("a stream brings the plans of its models");
            let executed = plan.execute(pictures, &mut found, emitters, &*self.events);
            if let Err(why) = executed {
                pictures.clear();
                self.events.emit(Event::ExecutionFailed { model: plan.plan.name.clone(), why: why.clone() });
                return Err(why);
            }
        }
        // Shared slots go back with the batch.
        pictures.clear();
        Ok(found)
    }

    fn forward_results(&mut self, batch: &mut Vec<Frame>, found: Vec<Vec<ModelResult>>) {
        let finished = self.clock.now();
        self.emitters.lane.finished(batch.len(), finished);
        for (frame, mut found) in batch.drain(..).zip(found) {
            let stream = self.streams.get_mut(&frame.desc.stream).expect("a stream joins before its frames");
            if let Some(tracker) = &mut stream.tracker {
                tracker.track(&frame.desc, &mut found);
            }
            stream.result_sender.push(FrameResult { frame, found, finished }, &stream.stop);
        }
    }

    fn drop_all(&self, batch: &mut Vec<Frame>) {
        let now = self.clock.now();
        self.emitters.lane.finished(batch.len(), now);
        for frame in batch.drain(..) {
            let telemetry = self.emitters.stream(&frame);
            telemetry.drop_frame(frame.desc.seq, DropCause::ExecutionFailed, now);
        }
    }
}

impl Drop for Lane {
    /// Sources that wait for room must not wait for a lane that is gone, be it by a panic, nor sinks for its results.
    fn drop(&mut self) {
        self.mux.close();
        let joining = std::mem::take(&mut lock(&self.books).joining);
        drop(joining);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Executor, MonotonicClock, SinkThread, Slot, SlotPool, StageTimes};
    use orinoco_core::{DropPolicy, InferenceResult, LaneId, Nanos, PixelFormat, codes};
    use orinoco_telemetry::Telemetry;
    use std::time::Duration;

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
                entry.join(JoinRequest { stream, queue, steps, plans, tracker: None, result_sender, stop })
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
