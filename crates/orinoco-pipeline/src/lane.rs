//! One executing thread: takes batches, replays plans, hands outcomes on.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orinoco_core::{Clock, Diagnosis, Findings, FrameDesc, ModelId, Region, StreamId, codes};
use orinoco_telemetry::{DropCause, Event, EventSink, Stage, Stats};

use crate::mux::Next;
use crate::{
    Closed, Executor, Found, Frame, Inlet, Mux, Object, Outcome, Outlet, StageTimes, Stop, StreamQueue,
};

/// After this many failed batches in a row the engine is taken to be broken and the lane ends.
const FAILURES_MAX: u32 = 8;

/// Follows what a stream's models find, from frame to frame: a tracker. Called for every frame, in order.
pub trait Follow: Send {
    /// Adds what it knows to the findings of one frame.
    fn follow(&mut self, frame: &FrameDesc, found: &mut Vec<Found>);
}

/// A plan with the model it belongs to.
pub struct BoundPlan {
    /// The model.
    pub model: ModelId,
    /// The model's name, for events.
    pub name: String,
    /// The plan.
    pub executor: Box<dyn Executor>,
}

/// One model of those that a stream's frames run through.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The model.
    pub model: ModelId,
    /// It looks at every so many frames of a stream, beginning with the first.
    pub interval: u32,
    /// It looks at objects in place of whole frames.
    pub on: Option<Objects>,
}

/// Which objects a model looks at: those that a model before it found in the same frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects {
    /// The model that finds them.
    pub of: ModelId,
    /// Their classes; any if empty.
    pub classes: Vec<u32>,
    /// Shortest side, in source pixels: less shows too little.
    pub side_min: u32,
    /// The most of one frame, best first.
    pub count_max: usize,
}

/// A stream that joins a lane.
pub struct Joining {
    /// Which.
    pub stream: StreamId,
    /// How its frames wait. Streams of one group have the same steps.
    pub queue: StreamQueue,
    /// What its frames run through.
    pub steps: Vec<Step>,
    /// Plans of those models that the lane does not hold yet.
    pub plans: Vec<BoundPlan>,
    /// Who follows its objects, where that is wanted.
    pub follower: Option<Box<dyn Follow>>,
    /// Where its outcomes go.
    pub outlet: Outlet,
    /// The wish to end it.
    pub stop: Stop,
}

/// Why a stream cannot join a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// The lane has ended with its last stream.
    Ended,
    /// The lane does not hold this model, and no plan of it came along.
    NoPlan(ModelId),
}

/// The models of a lane. One that no stream uses is given up, and its memory with it.
type Uses = Arc<Mutex<BTreeMap<ModelId, Use>>>;

/// A model of a lane.
#[derive(Clone, Copy, Debug)]
struct Use {
    /// Number of streams that use it.
    streams: usize,
    /// Whether the lane's plan of it reads frames in the video hardware's memory; another lane's may not.
    reads_video_memory: bool,
}

/// Where streams join a lane, also while it runs. They leave it when their source ends.
#[derive(Clone)]
pub struct LaneEntry {
    mux: Arc<Mux>,
    joining: Sender<Joining>,
    uses: Uses,
}

impl LaneEntry {
    /// Adds a stream; its source pushes into the inlet.
    pub fn join(&self, joining: Joining) -> Result<Inlet, JoinError> {
        let mut uses = lock(&self.uses);
        let brought = |model: ModelId| joining.plans.iter().any(|plan| plan.model == model);
        let missing = |step: &&Step| !uses.contains_key(&step.model) && !brought(step.model);
        if let Some(step) = joining.steps.iter().find(missing) {
            return Err(JoinError::NoPlan(step.model));
        }
        let (stream, queue) = (joining.stream, joining.queue);
        let models: Vec<ModelId> = joining.steps.iter().map(|step| step.model).collect();
        let reads = |plan: &BoundPlan| (plan.model, plan.executor.reads_video_memory());
        let reads: BTreeMap<ModelId, bool> = joining.plans.iter().map(reads).collect();
        // The lane reads this before it sees the first frame of the stream.
        self.joining.send(joining).map_err(|_| JoinError::Ended)?;
        let inlet = self.mux.add(stream, queue).map_err(|Closed| JoinError::Ended)?;
        for model in models {
            // A plan that the lane has already stays.
            let reads_video_memory = reads.get(&model).is_some_and(|reads| *reads);
            uses.entry(model).or_insert(Use { streams: 0, reads_video_memory }).streams += 1;
        }
        Ok(inlet)
    }

    /// Whether the lane's plan of a model reads frames where the video hardware left them.
    pub fn reads_video_memory(&self, model: ModelId) -> bool {
        lock(&self.uses).get(&model).is_some_and(|used| used.reads_video_memory)
    }

    /// Ends the lane after the batch at work. Frames that wait are dropped, and further ones refused.
    pub fn close(&self) {
        self.mux.close();
    }

    /// Keeps a model on the lane until this is dropped, if the lane has it.
    pub fn hold(&self, model: ModelId) -> Option<Hold> {
        lock(&self.uses).get_mut(&model)?.streams += 1;
        Some(Hold { uses: Arc::clone(&self.uses), model })
    }
}

/// A use of a lane's model by somebody who prepares a stream for it.
#[derive(Debug)]
pub struct Hold {
    uses: Uses,
    model: ModelId,
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Without any use left, the lane gives it up when the next stream leaves.
        if let Some(used) = lock(&self.uses).get_mut(&self.model) {
            used.streams -= 1;
        }
    }
}

fn lock(uses: &Uses) -> MutexGuard<'_, BTreeMap<ModelId, Use>> {
    // A poisoned lock means a panic between two counts, and those are whole.
    uses.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One executing thread. Models on a lane never overlap in time.
pub struct Lane {
    mux: Arc<Mux>,
    joining: Receiver<Joining>,
    uses: Uses,
    plans: BTreeMap<ModelId, LanePlan>,
    streams: BTreeMap<StreamId, LaneStream>,
    pictures: Pictures,
    clock: Arc<dyn Clock>,
    events: Arc<dyn EventSink>,
    stats: Stats,
}

/// A plan, and what it fills.
struct LanePlan {
    plan: BoundPlan,
    findings: Vec<Findings>,
}

struct LaneStream {
    group: usize,
    steps: Vec<Step>,
    follower: Option<Box<dyn Follow>>,
    outlet: Outlet,
    stop: Stop,
    /// Frames that came.
    frames: u64,
}

/// What one model looks at in a batch: reused from step to step.
#[derive(Default)]
struct Pictures {
    frames: Vec<Frame>,
    places: Vec<Place>,
}

/// Where a picture comes from.
#[derive(Clone, Copy)]
struct Place {
    /// Which frame of the batch.
    frame: usize,
    object: Option<Object>,
    /// Its left top corner in the frame.
    at: (u32, u32),
}

impl Pictures {
    fn clear(&mut self) {
        self.frames.clear();
        self.places.clear();
    }

    fn push(&mut self, picture: Frame, place: Place) {
        self.frames.push(picture);
        self.places.push(place);
    }

    /// All of frame number `index` of the batch.
    fn push_whole(&mut self, index: usize, frame: &Frame) {
        self.push(frame.share(), Place { frame: index, object: None, at: (0, 0) });
    }

    /// Those objects in frame number `index` of the batch that are wanted.
    fn push_objects(&mut self, index: usize, frame: &Frame, wanted: &Objects, found: &[Found]) {
        let Some(found) = found.iter().find(|found| found.model == wanted.of && found.object.is_none())
        else {
            return;
        };
        let detections = found.findings.detections.iter().enumerate();
        let of_class =
            detections.filter(|(_, d)| wanted.classes.is_empty() || wanted.classes.contains(&d.class_id));
        let regions = of_class.filter_map(|(detection, d)| {
            let region = Region::of(&d.bounds, frame.desc.width, frame.desc.height)?;
            (region.width.min(region.height) >= wanted.side_min).then_some((detection, region))
        });
        for (detection, region) in regions.take(wanted.count_max) {
            if let Some((picture, part)) = frame.part(region) {
                let object = Some(Object { model: wanted.of, detection });
                self.push(picture, Place { frame: index, object, at: (part.x, part.y) });
            }
        }
    }
}

impl Lane {
    /// A lane without streams, and where they join it. It must have one before it runs.
    pub fn new(clock: Arc<dyn Clock>, events: Arc<dyn EventSink>, stats: Stats) -> (Self, LaneEntry) {
        let mux = Mux::new(Arc::clone(&clock), stats.clone());
        let (sender, joining) = channel();
        let uses = Uses::default();
        let entry = LaneEntry { mux: Arc::clone(&mux), joining: sender, uses: Arc::clone(&uses) };
        let (plans, streams, pictures) = (BTreeMap::new(), BTreeMap::new(), Pictures::default());
        (Self { mux, joining, uses, plans, streams, pictures, clock, events, stats }, entry)
    }

    /// Runs on the calling thread until every stream has ended, or the engine fails again and again.
    pub fn run(mut self) -> Result<(), Diagnosis> {
        let mut batch = Vec::new();
        let mut failures = 0;
        while let Some(next) = self.mux.next(&mut batch) {
            match next {
                Next::Joined => self.take_in(),
                Next::Left(stream) => self.let_go(stream),
                Next::Batch(group) => match self.replay(group, &batch) {
                    Ok(found) => {
                        failures = 0;
                        self.hand_on(&mut batch, found);
                    }
                    Err(why) => {
                        failures += 1;
                        self.drop_all(&mut batch);
                        if failures >= FAILURES_MAX {
                            return Err(why);
                        }
                    }
                },
            }
        }
        Ok(())
    }

    fn take_in(&mut self) {
        for joining in self.joining.try_iter() {
            let Joining { stream, queue, steps, plans, follower, outlet, stop } = joining;
            for plan in plans {
                let findings = vec![Findings::default(); plan.executor.batch_max()];
                self.plans.entry(plan.model).or_insert(LanePlan { plan, findings });
            }
            let joined = LaneStream { group: queue.group, steps, follower, outlet, stop, frames: 0 };
            self.streams.insert(stream, joined);
        }
    }

    /// A stream has ended: its sinks complete when its outlet is dropped, and models that nobody uses any more go.
    fn let_go(&mut self, stream: StreamId) {
        let Some(left) = self.streams.remove(&stream) else { return };
        let mut uses = lock(&self.uses);
        for step in &left.steps {
            if let Some(used) = uses.get_mut(&step.model) {
                used.streams -= 1;
            }
        }
        uses.retain(|_, used| used.streams > 0);
        self.plans.retain(|model, _| uses.contains_key(model));
    }

    /// Runs a batch through the models of its group, and returns what they found in each frame.
    fn replay(&mut self, group: usize, batch: &[Frame]) -> Result<Vec<Vec<Found>>, Diagnosis> {
        let now = self.clock.now();
        let mut numbers = Vec::with_capacity(batch.len());
        for frame in batch {
            self.stats.stream(frame.desc.stream).record(Stage::Queue, now.since(frame.arrived));
            let stream = self.streams.get_mut(&frame.desc.stream).expect("a stream joins before its frames");
            numbers.push(stream.frames);
            stream.frames += 1;
        }
        let mut found: Vec<Vec<Found>> = batch.iter().map(|_| Vec::new()).collect();
        let Self { streams, plans, pictures, .. } = self;
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
            let replayed = plan.replay(pictures, &mut found, &self.stats, &*self.events);
            if let Err(why) = replayed {
                pictures.clear();
                self.events.emit(Event::ReplayFailed { model: plan.plan.name.clone(), why: why.clone() });
                return Err(why);
            }
        }
        // Shared slots go back with the batch.
        pictures.clear();
        Ok(found)
    }

    fn hand_on(&mut self, batch: &mut Vec<Frame>, found: Vec<Vec<Found>>) {
        let finished = self.clock.now();
        for (frame, mut found) in batch.drain(..).zip(found) {
            let stream = self.streams.get_mut(&frame.desc.stream).expect("a stream joins before its frames");
            if let Some(follower) = &mut stream.follower {
                follower.follow(&frame.desc, &mut found);
            }
            stream.outlet.push(Outcome { frame, found, finished }, &stream.stop, &self.stats);
        }
    }

    fn drop_all(&self, batch: &mut Vec<Frame>) {
        for frame in batch.drain(..) {
            self.stats.stream(frame.desc.stream).drop_frame(DropCause::ReplayFailed);
        }
    }
}

impl Drop for Lane {
    /// Sources that wait for room must not wait for a lane that is gone, be it by a panic.
    fn drop(&mut self) {
        self.mux.close();
    }
}

impl LanePlan {
    /// Runs the plan on all pictures, as many at once as it takes, and adds what it found to the frames they are of.
    fn replay(
        &mut self,
        pictures: &Pictures,
        found: &mut [Vec<Found>],
        stats: &Stats,
        events: &dyn EventSink,
    ) -> Result<(), Diagnosis> {
        let batch_max = self.plan.executor.batch_max();
        let chunks = pictures.frames.chunks(batch_max).zip(pictures.places.chunks(batch_max));
        for (frames, places) in chunks {
            let findings = &mut self.findings[..frames.len()];
            let times = self.plan.executor.replay(frames, findings)?;
            record_times(stats, self.plan.model, frames, times);
            self.count_not_finite(&self.findings[..frames.len()], stats, events);
            let findings = &self.findings[..frames.len()];
            for (place, findings) in places.iter().zip(findings) {
                let mut findings = findings.clone();
                findings.shift(place.at.0, place.at.1);
                let Place { frame, object, .. } = *place;
                found[frame].push(Found { model: self.plan.model, object, findings, ..Found::default() });
            }
        }
        Ok(())
    }

    /// Counts what was left out of `findings`, and reports the first of it.
    fn count_not_finite(&self, findings: &[Findings], stats: &Stats, events: &dyn EventSink) {
        let count: u64 = findings.iter().map(|findings| findings.not_finite).sum();
        if count == 0 {
            return;
        }
        let mut of_model = stats.model(self.plan.model);
        let is_first = of_model.not_finite == 0;
        of_model.not_finite += count;
        drop(of_model);
        if is_first {
            let model = self.plan.name.clone();
            let why = not_finite(&model);
            events.emit(Event::OutputNotFinite { model, why });
        }
    }
}

/// What there is to say when [`Findings::not_finite`] counts something of `model`.
pub fn not_finite(model: &str) -> Diagnosis {
    let subject = format!("outputs of {model}");
    let cause = "some values are NaN or infinite; results made from them are dropped";
    let next = "check mean and scale of its model.toml, or export it with 32-bit floats";
    Diagnosis::new(&codes::OUTPUT_NOT_FINITE, subject, cause, next)
}

/// A model is charged the replay, each picture's stream its share of that.
fn record_times(stats: &Stats, model: ModelId, pictures: &[Frame], times: StageTimes) {
    let mut of_model = stats.model(model);
    of_model.pictures += pictures.len() as u64;
    of_model.replays += 1;
    of_model.preprocess.record(times.preprocess);
    of_model.infer.record(times.infer);
    of_model.postprocess.record(times.postprocess);
    of_model.graph_fallbacks += u64::from(times.graph_fallbacks);
    drop(of_model);
    let share = u32::try_from(pictures.len()).expect("a batch is small");
    for picture in pictures {
        let mut stats = stats.stream(picture.desc.stream);
        stats.record(Stage::Preprocess, times.preprocess / share);
        stats.record(Stage::Infer, times.infer / share);
        stats.record(Stage::Postprocess, times.postprocess / share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MonotonicClock, SinkThread, Slot, SlotPool};
    use orinoco_core::{DropPolicy, Nanos, PixelFormat, codes};
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
        fn replay(&mut self, _: &[Frame], _: &mut [Findings]) -> Result<StageTimes, Diagnosis> {
            match self {
                Self::Fails => Err(Diagnosis::new(&codes::ENGINE_RUN, "test", "it fails", "nothing")),
                Self::Panics => panic!("this test wants it"),
            }
        }
    }

    fn frame() -> Frame {
        let slot = SlotPool::new(1, 1).take(Duration::ZERO).expect("free");
        let desc = FrameDesc::packed(PixelFormat::Gray8, 1, 1);
        Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("fits")
    }

    /// A source that is blocked by its ring goes on when the lane is gone, and its sinks complete.
    fn check(broken: Broken) {
        let (clock, stats) = (Arc::new(MonotonicClock::default()), Stats::new(1));
        stats.add_model();
        let (lane, entry) = Lane::new(clock.clone(), Arc::new(Quiet), stats.clone());
        let (stream, policy) = (StreamId(0), DropPolicy::Block);
        let (sinks, outlet) =
            SinkThread::new(stream, Vec::new(), policy, None, clock, Arc::new(Quiet), stats);
        let queue = StreamQueue { group: 0, batch_max: 1, frames_max: 1, policy, batch_wait: Duration::ZERO };
        let plan = BoundPlan { model: ModelId(0), name: "broken".to_owned(), executor: Box::new(broken) };
        let steps = vec![Step { model: ModelId(0), interval: 1, on: None }];
        let joining = Joining {
            stream,
            queue,
            steps,
            plans: vec![plan],
            follower: None,
            outlet,
            stop: Stop::default(),
        };
        let inlet = entry.join(joining).expect("it runs");
        let source = std::thread::spawn(move || while inlet.push(frame()).is_ok() {});
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
        fn replay(&mut self, _: &[Frame], _: &mut [Findings]) -> Result<StageTimes, Diagnosis> {
            Ok(StageTimes::default())
        }
    }

    #[test]
    fn whether_a_plan_reads_video_memory_is_known_for_each_lane() {
        let (clock, stats) = (Arc::new(MonotonicClock::default()), Stats::new(2));
        let lanes = [true, false].map(|reads| {
            let (lane, entry) = Lane::new(clock.clone(), Arc::new(Quiet), stats.clone());
            let (policy, batch_wait) = (DropPolicy::Block, Duration::ZERO);
            let join = |stream: StreamId, plans: Vec<BoundPlan>| {
                let (_, outlet) = SinkThread::new(
                    stream,
                    Vec::new(),
                    policy,
                    None,
                    clock.clone(),
                    Arc::new(Quiet),
                    stats.clone(),
                );
                let queue = StreamQueue { group: 0, batch_max: 1, frames_max: 1, policy, batch_wait };
                let steps = vec![Step { model: ModelId(0), interval: 1, on: None }];
                let stop = Stop::default();
                entry.join(Joining { stream, queue, steps, plans, follower: None, outlet, stop })
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
