//! Lanes with real threads: plans that are replaced, requests, and answers that come later.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use orinoco_core::{
    ClassScore, Clock, ComputeUnit, Diagnosis, DropPolicy, ElementType, FrameDesc, InferenceResult, LaneId,
    ModelId, Nanos, PixelFormat, StreamId, Tensor, TimeSpan, codes,
};
use orinoco_pipeline::{
    ANSWER_PARTS_MAX, Answer, AnswerReceiver, BoundPlan, DeviceTimes, ExchangeError, Executed, Executor,
    Frame, FrameResult, FrameSender, JoinRequest, Lane, LaneEntry, LateAnswer, MonotonicClock, NextAnswer,
    NotTaken, Priority, Request, RequestInputs, RequestRefusal, SUSPENSION_MAX, Sink, SinkThread, Slot,
    SlotPool, StageTimes, Step, Stop, StreamQueue, Suspender, Suspension, SuspensionError, answer_channel,
};
use orinoco_telemetry::energy::StreamItems;
use orinoco_telemetry::{DropCause, Event, EventSink, MissCause, Stage, Telemetry, Work};

const MODEL: ModelId = ModelId(0);
const STREAM: StreamId = StreamId(0);
const LANE: LaneId = LaneId(0);

struct Quiet;
impl EventSink for Quiet {
    fn emit(&self, _: Event) {}
}

/// Hands over each frame's number, and the class that was found in it.
struct Seen(Sender<(u64, Option<u32>)>);
impl Sink for Seen {
    fn write(&mut self, frame_result: &FrameResult) -> Result<(), Diagnosis> {
        let class = frame_result.found.iter().flat_map(|found| &found.inference.classes).next();
        // The test may have seen enough.
        let _ = self.0.send((frame_result.frame.desc.seq, class.map(|class| class.class_id)));
        Ok(())
    }
    fn finish(&mut self) -> Result<Option<std::path::PathBuf>, Diagnosis> {
        Ok(None)
    }
}

/// A running lane with one stream of one model.
struct Running {
    entry: LaneEntry,
    frame_sender: FrameSender,
    seen: Receiver<(u64, Option<u32>)>,
    lane: JoinHandle<Result<(), Diagnosis>>,
    sinks: JoinHandle<()>,
    telemetry: Telemetry,
}

fn start(executor: impl Executor + 'static) -> Running {
    start_with(executor, None)
}

fn start_with(executor: impl Executor + 'static, latency_max: Option<Duration>) -> Running {
    start_plans(vec![plan(executor)], latency_max)
}

/// One stream whose frames run through these plans, one after the other.
fn start_plans(plans: Vec<BoundPlan>, latency_max: Option<Duration>) -> Running {
    start_on(plans, latency_max, Arc::default())
}

fn start_on(plans: Vec<BoundPlan>, latency_max: Option<Duration>, clock: Arc<MonotonicClock>) -> Running {
    let events = Arc::new(Quiet);
    let telemetry = Telemetry::new(1);
    for _ in &plans {
        telemetry.add_model();
    }
    let (lane, entry) = Lane::new(clock.clone(), events.clone(), telemetry.lane(LANE));
    let (sender, seen) = channel();
    let policy = DropPolicy::Block;
    let of_stream = telemetry.stream(STREAM);
    let (sinks, result_sender) =
        SinkThread::new(of_stream, vec![Box::new(Seen(sender))], policy, latency_max, clock, events);
    // Batches are full, but for the last one.
    let batch_wait = Duration::from_secs(60);
    let joining = JoinRequest {
        stream: STREAM,
        queue: StreamQueue { group: 0, frames_max: 4, policy, batch_wait },
        steps: plans.iter().map(|plan| Step { model: plan.model, on: None }).collect(),
        plans,
        tracker: None,
        in_video_memory: false,
        result_sender,
        stop: Stop::default(),
    };
    let frame_sender = entry.join(joining).expect("it is open");
    let lane = thread::spawn(move || lane.run());
    let sinks = thread::spawn(move || drop(sinks.run()));
    Running { entry, frame_sender, seen, lane, sinks, telemetry }
}

impl Running {
    /// Ends the stream, and with it the lane.
    fn end(self) -> Receiver<(u64, Option<u32>)> {
        drop(self.frame_sender);
        self.lane.join().expect("it does not panic").expect("it does not fail");
        self.sinks.join().expect("it does not panic");
        self.seen
    }
}

fn plan(executor: impl Executor + 'static) -> BoundPlan {
    BoundPlan::new(MODEL, "model", Box::new(executor))
}

fn frame(seq: u64) -> Frame {
    let slot = SlotPool::new(1, 1).try_take().expect("free");
    let desc = FrameDesc { seq, stream: STREAM, ..FrameDesc::packed(PixelFormat::Gray8, 1, 1) };
    Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("it fits")
}

fn class(class_id: u32) -> Vec<ClassScore> {
    vec![ClassScore { class_id, score: 1.0 }]
}

/// A plan that finds one class in everything, and notes its largest batch and the thread that drops it.
struct Finds {
    class_id: u32,
    batch_max: usize,
    largest: Arc<AtomicUsize>,
    dropped_on: Arc<Mutex<Option<ThreadId>>>,
}

impl Finds {
    fn new(class_id: u32, batch_max: usize) -> Self {
        Self { class_id, batch_max, largest: Arc::default(), dropped_on: Arc::default() }
    }
}

impl Executor for Finds {
    fn batch_max(&self) -> usize {
        self.batch_max
    }
    fn execute(
        &mut self,
        frames: &[Frame],
        findings: &mut [InferenceResult],
    ) -> Result<StageTimes, Diagnosis> {
        assert!(frames.len() <= self.batch_max, "{} frames", frames.len());
        self.largest.fetch_max(frames.len(), Ordering::Relaxed);
        findings.iter_mut().for_each(|found| found.classes = class(self.class_id));
        Ok(StageTimes::default())
    }
}

impl Drop for Finds {
    fn drop(&mut self) {
        *self.dropped_on.lock().expect("not poisoned") = Some(thread::current().id());
    }
}

#[test]
fn a_plan_is_replaced_between_two_batches_and_dropped_on_the_lanes_thread() {
    let old = Finds::new(1, 1);
    let dropped_on = Arc::clone(&old.dropped_on);
    let running = start(old);
    running.frame_sender.push(frame(0)).expect("open");
    assert_eq!(running.seen.recv(), Ok((0, Some(1))));
    let new = Finds::new(2, 4);
    let largest = Arc::clone(&new.largest);
    running.entry.replace(plan(new)).expect("the lane has this model");
    let unknown = BoundPlan { model: ModelId(7), ..plan(Finds::new(3, 1)) };
    assert_eq!(running.entry.replace(unknown), Err(ExchangeError::NoModel(ModelId(7))));
    let lane = running.lane.thread().id();
    (1..200).for_each(|seq| running.frame_sender.push(frame(seq)).expect("open"));
    let entry = running.entry.clone();
    let seen = running.end();
    assert_eq!(seen.iter().collect::<Vec<_>>(), (1..200).map(|seq| (seq, Some(2))).collect::<Vec<_>>());
    assert_eq!(*dropped_on.lock().expect("not poisoned"), Some(lane));
    assert_eq!(largest.load(Ordering::Relaxed), 4, "batches are those of the new plan");
    assert_eq!(entry.replace(plan(Finds::new(4, 1))), Err(ExchangeError::NoModel(MODEL)), "it has ended");
}

#[test]
fn an_interval_changes_between_two_batches() {
    let running = start(Finds::new(1, 1));
    let inferred = |frames: std::ops::Range<u64>| -> Vec<u64> {
        let count = frames.end - frames.start;
        frames.for_each(|seq| running.frame_sender.push(frame(seq)).expect("open"));
        let seen = running.seen.iter().take(count as usize);
        seen.filter_map(|(seq, class)| class.map(|_| seq)).collect()
    };
    assert_eq!(inferred(0..2), [0, 1]);
    assert_eq!(running.entry.set_interval(ModelId(7), 2), Err(ExchangeError::NoModel(ModelId(7))));
    running.entry.set_interval(MODEL, 3).expect("the lane has this model");
    assert_eq!(inferred(2..12), [3, 6, 9]);
    let entry = running.entry.clone();
    running.end();
    assert_eq!(entry.set_interval(MODEL, 1), Err(ExchangeError::NoModel(MODEL)), "it has ended");
}

#[test]
fn a_suspended_step_keeps_the_interval_with_which_it_began() {
    let (frames, to_answer) = channel();
    let running = start(Remote { frames, wait: Duration::from_secs(60) });
    (0..2).for_each(|seq| running.frame_sender.push(frame(seq)).expect("open"));
    assert_eq!(running.seen.recv(), Ok((0, Some(0))));
    let (seq, suspension) = to_answer.recv().expect("frame 1 is sent");
    // With this interval, frame 1 has no inference.
    running.entry.set_interval(MODEL, 2).expect("the lane has this model");
    running.frame_sender.push(frame(2)).expect("open");
    let (next, other) = to_answer.recv().expect("frame 2 is sent");
    assert!(suspension.resume(late(5)) && other.resume(late(6)));
    assert_eq!([running.seen.recv(), running.seen.recv()], [Ok((seq, Some(5))), Ok((next, Some(6)))]);
    running.frame_sender.push(frame(3)).expect("open");
    assert_eq!(running.seen.recv(), Ok((3, None)));
    running.end();
}

/// A plan that claims to have preprocessed for an hour, on a GPU too.
struct Slow;
impl Executor for Slow {
    fn batch_max(&self) -> usize {
        2
    }
    fn execute(&mut self, _: &[Frame], _: &mut [InferenceResult]) -> Result<StageTimes, Diagnosis> {
        let preprocess = TimeSpan::ending(Nanos(0), Duration::from_secs(3600));
        let device = DeviceTimes { unit: ComputeUnit::Gpu, preprocess, ..DeviceTimes::default() };
        Ok(StageTimes { preprocess, device: Some(device), ..StageTimes::default() })
    }
}

#[test]
fn late_frames_have_the_stage_of_their_batch_as_cause_and_work_is_fed() {
    let running = start_with(Slow, Some(Duration::ZERO));
    let telemetry = running.telemetry.clone();
    let mut feed = telemetry.subscribe_work().expect("nobody else reads it");
    (0..6).for_each(|seq| running.frame_sender.push(frame(seq)).expect("open"));
    assert_eq!(running.end().iter().count(), 6);
    telemetry.stream(STREAM).read(|fold| {
        assert_eq!((fold.late, fold.late_in(Stage::Preprocess)), (6, 6));
    });
    let (mut images, mut frames) = ([0; ComputeUnit::ALL.len()], 0);
    let lost = feed.take(|work| match work {
        Work::Batch { record, streams } => {
            assert_eq!(streams.as_slice(), [StreamItems { stream: STREAM, items: record.items }]);
            if record.stage == Stage::Infer {
                images[record.unit as usize] += record.items;
            }
        }
        Work::Frame(record) => {
            assert_eq!(record.late_in, Some(Stage::Preprocess));
            frames += 1;
        }
    });
    assert_eq!((images, frames, lost), ([6, 6], 6, 0));
}

/// Counts down from the byte of a request, one part for each number. From 100 on it waits until the client is gone.
struct CountsDown;

impl Executor for CountsDown {
    fn batch_max(&self) -> usize {
        1
    }
    fn execute(&mut self, _: &[Frame], _: &mut [InferenceResult]) -> Result<StageTimes, Diagnosis> {
        Ok(StageTimes::default())
    }
    fn answer(&mut self, request: Request) {
        let Request { inputs, mut answers, .. } = request;
        let RequestInputs::Tensors(inputs) = inputs else { panic!("the test sends tensors") };
        let first = inputs[0].bytes()[0];
        if first >= 100 {
            // Another thread answers: the lane goes on.
            thread::spawn(move || {
                while !answers.has_ended() {
                    thread::yield_now();
                }
                assert_eq!(answers.part(Vec::new()), Err(NotTaken::Cancelled));
                answers.last(Vec::new());
            });
            return;
        }
        for number in (1..=first).rev() {
            if answers.part(vec![number_tensor(number)]).is_err() {
                return;
            }
        }
        answers.last(vec![number_tensor(0)]);
    }
}

fn number_tensor(number: u8) -> Tensor {
    Tensor::new("number", ElementType::U8, vec![1], vec![number]).expect("it has 1 byte")
}

fn request(model: ModelId, number: u8, deadline: Option<Nanos>) -> (Request, AnswerReceiver) {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
    let (answers, receiver) = answer_channel(&clock);
    let (name, inputs) = ("countdown".into(), RequestInputs::Tensors(vec![number_tensor(number)]));
    (Request { model, name, inputs, deadline, priority: Priority::default(), answers }, receiver)
}

/// All that answers a request, as numbers, and the code of the fault, if there is one.
fn received(receiver: &AnswerReceiver) -> (Vec<u8>, Option<&'static str>) {
    let mut numbers = Vec::new();
    loop {
        match receiver.next(None) {
            NextAnswer::Answer(Answer::Part(tensors) | Answer::Last(tensors)) => {
                numbers.push(tensors[0].bytes()[0])
            }
            NextAnswer::Answer(Answer::Results(_)) => panic!("the test sends no images"),
            NextAnswer::Answer(Answer::Failed(why)) => return (numbers, Some(why.code.id)),
            NextAnswer::Ended | NextAnswer::Pending => return (numbers, None),
        }
    }
}

#[test]
fn a_request_is_answered_in_parts_while_frames_pass() {
    let running = start(CountsDown);
    let source = |seq| running.frame_sender.push(frame(seq)).expect("open");
    (0..4).for_each(source);
    let (countdown, receiver) = request(MODEL, 5, None);
    running.entry.request(countdown).expect("there is room");
    assert_eq!(received(&receiver), (vec![5, 4, 3, 2, 1, 0], None));
    let (endless, kept) = request(MODEL, 200, None);
    running.entry.request(endless).expect("there is room");
    (4..8).for_each(source);
    kept.cancel();
    assert_eq!(received(&kept).1, Some(codes::REQUEST_CANCELLED.id));
    let (longer, receiver) = request(MODEL, 99, None);
    running.entry.request(longer).expect("there is room");
    let (numbers, fault) = received(&receiver);
    // The client may be as fast as the model, or too slow for it. No number is left out either way.
    assert!(numbers.iter().copied().eq((0..=99).rev().take(numbers.len())), "{numbers:?}");
    match fault {
        None => assert_eq!(numbers.len(), 100),
        Some(code) => assert!(code == codes::REQUEST_OVERLOAD.id && numbers.len() >= ANSWER_PARTS_MAX),
    }
    let telemetry = running.telemetry.clone();
    assert_eq!(running.end().iter().count(), 8);
    // The second may have been cancelled before the lane came to it.
    let requests = telemetry.model(MODEL).read(|fold| fold.request.count());
    assert!((2..=3).contains(&requests), "{requests} requests were executed");
}

#[test]
fn requests_that_cannot_be_served_are_answered() {
    let running = start(Finds::new(1, 1));
    let entry = running.entry.clone();
    let check = |model, deadline, accepted: Result<(), RequestRefusal>, code: &orinoco_core::Code| {
        let (request, receiver) = request(model, 1, deadline);
        assert_eq!(entry.request(request), accepted);
        assert_eq!(received(&receiver), (Vec::new(), Some(code.id)));
    };
    check(MODEL, None, Ok(()), &codes::REQUEST_INVALID);
    check(MODEL, Some(Nanos(0)), Ok(()), &codes::REQUEST_EXPIRED);
    check(ModelId(7), None, Err(RequestRefusal::NoModel), &codes::REQUEST_UNANSWERED);
    let _hold = entry.hold(MODEL).expect("it is here");
    running.end();
    check(MODEL, None, Err(RequestRefusal::Ended), &codes::REQUEST_UNANSWERED);
}

/// Sends every frame but each third one to another thread, which answers.
struct Remote {
    frames: Sender<(u64, Suspension)>,
    wait: Duration,
}

impl Executor for Remote {
    fn batch_max(&self) -> usize {
        1
    }
    fn execute(&mut self, _: &[Frame], findings: &mut [InferenceResult]) -> Result<StageTimes, Diagnosis> {
        findings[0].classes = class(0);
        Ok(StageTimes::default())
    }
    fn begin(
        &mut self,
        frames: &[Frame],
        findings: &mut [InferenceResult],
        suspender: &mut Suspender<'_>,
    ) -> Result<Executed, Diagnosis> {
        let seq = frames[0].desc.seq;
        if seq.is_multiple_of(3) {
            return self.execute(frames, findings).map(Executed::Done);
        }
        self.frames.send((seq, suspender.suspend())).expect("somebody answers");
        Ok(Executed::Suspended(self.wait))
    }
}

/// Answer of another board that failed.
fn failed() -> LateAnswer {
    let why = Diagnosis::new(&codes::ENGINE_RUN, "a", "b", "c");
    Err(SuspensionError::Remote { cause: MissCause::Failed, why })
}

/// Late answer for one frame: that class.
fn late(class_id: u32) -> LateAnswer {
    Ok(vec![InferenceResult { classes: class(class_id), ..InferenceResult::default() }])
}

#[test]
fn answers_that_come_later_are_put_in_order() {
    let (frames, to_answer) = channel();
    let running = start(Remote { frames, wait: Duration::from_secs(60) });
    let telemetry = running.telemetry.clone();
    let answers = thread::spawn(move || {
        let mut waiting = Vec::new();
        while let Ok((seq, suspension)) = to_answer.recv() {
            waiting.push((seq, suspension));
            if waiting.len() < 4 && seq < 100 {
                continue;
            }
            // The latest first.
            for (seq, suspension) in waiting.drain(..).rev() {
                match seq % 10 {
                    // Too few, a fault, and nothing at all.
                    1 => assert!(suspension.resume(Ok(Vec::new()))),
                    2 => assert!(suspension.resume(failed())),
                    3 => drop(suspension),
                    _ => assert!(suspension.resume(late(1))),
                }
            }
        }
    });
    (0..=100).for_each(|seq| running.frame_sender.push(frame(seq)).expect("open"));
    let seen: Vec<_> = running.end().iter().collect();
    answers.join().expect("it does not panic");
    let expected = (0..=100).filter(|seq| seq % 3 == 0 || ![1, 2, 3].contains(&(seq % 10)));
    let class = |seq: u64| Some(u32::from(!seq.is_multiple_of(3)));
    assert_eq!(seen, expected.map(|seq| (seq, class(seq))).collect::<Vec<_>>());
    let local = seen.iter().filter(|(seq, _)| seq.is_multiple_of(3)).count();
    check_counts(&telemetry, 101, seen.len() as u64, local as u64);
}

/// Each frame that came was taken; those with results have an inference, and the others were dropped as failed. `local`
/// frames were inferred by the lane itself: the steps of others are not its own.
fn check_counts(telemetry: &Telemetry, frames: u64, results: u64, local: u64) {
    telemetry.stream(STREAM).read(|fold| {
        let stages = [Stage::Queue, Stage::Preprocess, Stage::Infer, Stage::Postprocess];
        assert_eq!(stages.map(|stage| fold.stage(stage).count()), [frames, local, results, local]);
        let dropped = fold.dropped(DropCause::ExecutionFailed);
        assert_eq!((fold.frames_out, dropped), (results, frames - results));
    });
    telemetry.model(MODEL).read(|fold| assert_eq!((fold.inferences, fold.items), (results, results)));
    telemetry.lane(LANE).read(|fold| {
        assert_eq!((fold.batches, fold.frames, fold.executing_since), (frames, frames, None));
        assert_eq!(
            fold.busy(ComputeUnit::Cpu),
            Duration::ZERO,
            "it computed elsewhere, and waited for nothing"
        );
    });
}

#[test]
fn a_replaced_plan_stays_until_its_suspended_steps_are_answered() {
    let (frames, to_answer) = channel();
    let running = start(Remote { frames, wait: Duration::from_secs(60) });
    (1..3).for_each(|seq| running.frame_sender.push(frame(seq)).expect("open"));
    let waiting: Vec<_> = to_answer.iter().take(2).collect();
    let new = Finds::new(2, 1);
    running.entry.replace(BoundPlan { generation: 1, ..plan(new) }).expect("the lane has this model");
    assert_eq!(running.entry.generation(MODEL), Some(1), "also before the lane has taken it");
    running.frame_sender.push(frame(3)).expect("open");
    let is_kept = || matches!(to_answer.try_recv(), Err(TryRecvError::Empty));
    for (seq, suspension) in waiting {
        assert!(is_kept(), "the old plan has frame {seq} to answer");
        assert!(suspension.resume(late(1)));
        assert_eq!(running.seen.recv(), Ok((seq, Some(1))));
    }
    assert_eq!(running.seen.recv(), Ok((3, Some(2))), "of the new plan");
    assert!(!is_kept(), "the old plan is gone before its lane is");
    running.end();
}

#[test]
fn an_answer_that_does_not_come_ends_with_its_time() {
    let (frames, to_answer) = channel();
    let running = start(Remote { frames, wait: Duration::from_millis(5) });
    let telemetry = running.telemetry.clone();
    (0..4).for_each(|seq| running.frame_sender.push(frame(seq)).expect("open"));
    let seen: Vec<_> = running.end().iter().map(|(seq, _)| seq).collect();
    assert_eq!(seen, [0, 3]);
    check_counts(&telemetry, 4, 2, 2);
    // The lane has ended.
    assert!(to_answer.iter().all(|(_, suspension)| !suspension.resume(late(1))));
}

/// Suspends every step, and finds class 7 itself when that fails; frames whose number is a multiple of three go on without results.
struct FallsBack {
    frames: Sender<(u64, Suspension)>,
    wait: Duration,
}

impl Executor for FallsBack {
    fn batch_max(&self) -> usize {
        1
    }
    fn execute(&mut self, _: &[Frame], _: &mut [InferenceResult]) -> Result<StageTimes, Diagnosis> {
        panic!("every step is suspended")
    }
    fn begin(
        &mut self,
        frames: &[Frame],
        _: &mut [InferenceResult],
        suspender: &mut Suspender<'_>,
    ) -> Result<Executed, Diagnosis> {
        self.frames.send((frames[0].desc.seq, suspender.suspend())).expect("somebody answers");
        Ok(Executed::Suspended(self.wait))
    }
    fn fall_back(
        &mut self,
        frames: &[Frame],
        findings: &mut [InferenceResult],
        _: &SuspensionError,
    ) -> Option<Result<Executed, Diagnosis>> {
        Some(match frames[0].desc.seq {
            100.. => Err(Diagnosis::new(&codes::ENGINE_RUN, "the engine", "it broke", "nothing")),
            seq if seq.is_multiple_of(3) => Ok(Executed::Skipped),
            _ => {
                findings[0].classes = class(7);
                Ok(Executed::Done(StageTimes::default()))
            }
        })
    }
}

#[test]
fn a_step_that_failed_elsewhere_is_done_here_or_skipped_and_no_frame_is_lost() {
    let (frames, to_answer) = channel();
    let running = start(FallsBack { frames, wait: Duration::from_millis(50) });
    let telemetry = running.telemetry.clone();
    let answers = thread::spawn(move || {
        let mut kept = Vec::new();
        for (seq, suspension) in to_answer {
            match seq % 4 {
                0 => assert!(suspension.resume(late(1))),
                1 => assert!(suspension.resume(failed())),
                2 => drop(suspension),
                // Never answered.
                _ => kept.push(suspension),
            }
        }
    });
    (0..24).for_each(|seq| running.frame_sender.push(frame(seq)).expect("open"));
    let seen: Vec<_> = running.end().iter().collect();
    answers.join().expect("it does not panic");
    let class = |seq: u64| match (seq % 4, seq % 3) {
        (0, _) => Some(1),
        (_, 0) => None,
        _ => Some(7),
    };
    assert_eq!(seen, (0..24).map(|seq| (seq, class(seq))).collect::<Vec<_>>());
    let inferred = seen.iter().filter(|(_, class)| class.is_some()).count() as u64;
    telemetry.stream(STREAM).read(|fold| {
        assert_eq!((fold.frames_out, fold.dropped(DropCause::ExecutionFailed)), (24, 0));
    });
    telemetry.model(MODEL).read(|fold| assert_eq!((fold.inferences, fold.items), (inferred, inferred)));
}

/// Waits until a plan that was put in the place of another has executed something.
fn wait_until_used(largest: &AtomicUsize) {
    while largest.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
}

#[test]
fn a_step_that_failed_is_done_by_the_plan_that_began_it() {
    let (frames, to_answer) = channel();
    let running = start(FallsBack { frames, wait: Duration::from_secs(60) });
    running.frame_sender.push(frame(1)).expect("open");
    let (_, first) = to_answer.recv().expect("it is suspended");
    let new = Finds::new(2, 1);
    let largest = Arc::clone(&new.largest);
    running.entry.replace(BoundPlan { generation: 1, ..plan(new) }).expect("the lane has this model");
    running.frame_sender.push(frame(2)).expect("open");
    wait_until_used(&largest);
    assert!(first.resume(failed()));
    assert_eq!(running.seen.recv(), Ok((1, Some(7))));
    assert_eq!(running.seen.recv(), Ok((2, Some(2))));
    let is_gone = matches!(to_answer.try_recv(), Err(TryRecvError::Disconnected));
    assert!(is_gone, "the old plan is gone before its lane is");
    running.end();
}

#[test]
fn a_plan_that_was_replaced_does_not_break_the_lane() {
    let (frames, to_answer) = channel();
    let running = start(FallsBack { frames, wait: Duration::from_secs(60) });
    // As many as a stream may have suspended, and as many failures in a row as end a lane.
    (100..108).for_each(|seq| running.frame_sender.push(frame(seq)).expect("open"));
    let waiting: Vec<_> = to_answer.iter().take(8).collect();
    running.entry.replace(BoundPlan { generation: 1, ..plan(Finds::new(2, 1)) }).expect("it has this model");
    waiting.into_iter().for_each(|(_, suspension)| assert!(suspension.resume(failed())));
    // The lane goes on with what was answered first.
    running.frame_sender.push(frame(108)).expect("open");
    assert_eq!(running.end().iter().collect::<Vec<_>>(), [(108, Some(2))]);
}

/// Suspends every step, and tells how long that can wait.
struct TellsTime(Sender<(Duration, Suspension)>, Arc<MonotonicClock>);

impl Executor for TellsTime {
    fn batch_max(&self) -> usize {
        1
    }
    fn execute(&mut self, _: &[Frame], _: &mut [InferenceResult]) -> Result<StageTimes, Diagnosis> {
        panic!("every step is suspended")
    }
    fn begin(
        &mut self,
        _: &[Frame],
        _: &mut [InferenceResult],
        suspender: &mut Suspender<'_>,
    ) -> Result<Executed, Diagnosis> {
        let time_left = suspender.time_left(self.1.now());
        self.0.send((time_left, suspender.suspend())).expect("somebody answers");
        Ok(Executed::Suspended(Duration::from_secs(60)))
    }
}

#[test]
fn a_plan_knows_how_long_its_frames_can_still_wait() {
    let (steps, to_answer) = channel();
    let clock = Arc::new(MonotonicClock::default());
    let second = TellsTime(steps.clone(), Arc::clone(&clock));
    let plans = vec![
        plan(TellsTime(steps, Arc::clone(&clock))),
        BoundPlan::new(ModelId(1), "second", Box::new(second)),
    ];
    let running = start_on(plans, None, clock);
    running.frame_sender.push(frame(1)).expect("open");
    let (time_left, suspension) = to_answer.recv().expect("the first step waits");
    assert_eq!(time_left, SUSPENSION_MAX);
    assert!(suspension.resume(late(1)));
    let (time_left, suspension) = to_answer.recv().expect("the second step waits");
    assert!(time_left < SUSPENSION_MAX, "{time_left:?}: it has waited for the first");
    assert!(suspension.resume(late(2)));
    running.end();
}

#[test]
fn a_lane_that_is_closed_drops_what_waits_for_answers() {
    let (frames, to_answer) = channel();
    let running = start(Remote { frames, wait: Duration::from_secs(60) });
    let telemetry = running.telemetry.clone();
    (1..4).for_each(|seq| running.frame_sender.push(frame(seq)).expect("open"));
    let waiting: Vec<_> = to_answer.iter().take(2).collect();
    running.entry.close();
    assert_eq!(running.end().iter().count(), 0);
    assert_eq!(telemetry.stream(STREAM).read(|fold| fold.dropped(DropCause::Shutdown)), 3);
    assert!(waiting.into_iter().all(|(_, suspension)| !suspension.resume(late(1))));
}

/// Fails for every other frame. The others go to another thread or are skipped, in turn.
struct FailsHere(Sender<Suspension>);

impl Executor for FailsHere {
    fn batch_max(&self) -> usize {
        1
    }

    fn execute(&mut self, _: &[Frame], _: &mut [InferenceResult]) -> Result<StageTimes, Diagnosis> {
        Err(Diagnosis::new(&codes::ENGINE_RUN, "the engine", "it broke", "nothing"))
    }

    fn begin(
        &mut self,
        frames: &[Frame],
        findings: &mut [InferenceResult],
        suspender: &mut Suspender<'_>,
    ) -> Result<Executed, Diagnosis> {
        match frames[0].desc.seq % 4 {
            1 => {
                self.0.send(suspender.suspend()).expect("somebody answers");
                Ok(Executed::Suspended(Duration::from_secs(60)))
            }
            3 => Ok(Executed::Skipped),
            _ => self.execute(frames, findings).map(Executed::Done),
        }
    }
}

/// Ends the stream of a lane whose engine is broken.
fn end_broken(running: Running) {
    let Running { frame_sender, lane, sinks, .. } = running;
    drop(frame_sender);
    assert!(lane.join().expect("it does not panic").is_err(), "its engine has failed 8 times in a row");
    sinks.join().expect("it does not panic");
}

#[test]
fn answers_of_others_and_skipped_frames_do_not_hide_a_broken_engine() {
    let (suspensions, to_answer) = channel();
    let running = start(FailsHere(suspensions));
    for seq in 0..14 {
        running.frame_sender.push(frame(seq)).expect("open");
        match seq % 4 {
            1 => {
                assert!(to_answer.recv().expect("it is sent").resume(late(1)));
                assert_eq!(running.seen.recv(), Ok((seq, Some(1))));
            }
            3 => assert_eq!(running.seen.recv(), Ok((seq, None))),
            _ => {}
        }
    }
    // The eighth failure.
    running.frame_sender.push(frame(14)).expect("open");
    end_broken(running);
}

#[test]
fn an_engine_that_fails_when_it_falls_back_counts_as_broken() {
    let (frames, to_answer) = channel();
    let running = start(FallsBack { frames, wait: Duration::from_millis(50) });
    let telemetry = running.telemetry.clone();
    let answers = thread::spawn(move || to_answer.into_iter().for_each(drop));
    (100..108).for_each(|seq| running.frame_sender.push(frame(seq)).expect("open"));
    end_broken(running);
    answers.join().expect("it does not panic");
    assert_eq!(telemetry.stream(STREAM).read(|fold| fold.dropped(DropCause::ExecutionFailed)), 8);
}

#[test]
fn what_fails_elsewhere_again_and_again_does_not_end_a_lane() {
    let (frames, to_answer) = channel();
    let running = start(Remote { frames, wait: Duration::from_secs(60) });
    let telemetry = running.telemetry.clone();
    let answers = thread::spawn(move || to_answer.into_iter().for_each(drop));
    let sent = (1..31_u64).filter(|seq| !seq.is_multiple_of(3));
    sent.for_each(|seq| running.frame_sender.push(frame(seq)).expect("open"));
    assert_eq!(running.end().iter().count(), 0);
    answers.join().expect("it does not panic");
    assert_eq!(telemetry.stream(STREAM).read(|fold| fold.dropped(DropCause::ExecutionFailed)), 20);
}

#[test]
fn a_batch_may_be_suspended_for_one_part_of_its_inputs_after_the_other() {
    let (frames, to_answer) = channel();
    let remote = Remote { frames, wait: Duration::from_secs(60) };
    // The first finds nothing, two frames at a time; the second takes them one by one.
    let plans = vec![plan(Slow), BoundPlan::new(ModelId(1), "remote", Box::new(remote))];
    let running = start_plans(plans, None);
    let telemetry = running.telemetry.clone();
    (1..3).for_each(|seq| running.frame_sender.push(frame(seq)).expect("open"));
    for (seq, class_id) in [(1, 11), (2, 12)] {
        let (sent, suspension) = to_answer.recv().expect("each frame is sent");
        assert_eq!(sent, seq);
        assert!(suspension.resume(late(class_id)));
    }
    let seen: Vec<_> = running.end().iter().collect();
    assert_eq!(seen, [(1, Some(11)), (2, Some(12))], "each frame has its own result");
    telemetry.model(ModelId(1)).read(|fold| assert_eq!((fold.inferences, fold.items), (2, 2)));
}
