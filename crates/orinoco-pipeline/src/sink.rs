//! Sinks of a stream, their queue and their thread.

mod frame_result;
mod sink_core;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use orinoco_core::{Clock, Diagnosis, DropPolicy, Nanos, Signal, TimeSpan};
use orinoco_telemetry::{DropCause, Event, EventSink, Queue, QueueStep, SourceState, Stage, StreamTelemetry};

use crate::Stop;
use crate::sync::{Mutex, MutexGuard};

pub use frame_result::{Crossing, CrossingKind, FrameResult, ModelResult, Object};
pub use sink_core::{ResultOffer, SinkCore, SinkNext, SinkResult};

/// Takes outcomes: a file, a screen, a wire. Runs on its stream's sink thread.
pub trait Sink: Send {
    /// Takes one outcome.
    fn write(&mut self, frame_result: &FrameResult) -> Result<(), Diagnosis>;

    /// The source is away and has delivered nothing for `silence`. Called once a second until it is back, if it was there
    /// before; outputs that have nothing to say about it do nothing.
    fn offline(&mut self, silence: Duration) -> Result<(), Diagnosis> {
        let _ = silence;
        Ok(())
    }

    /// Makes visible to readers what was written so far. Called every 400 ms while something is written, and twice after
    /// the last write; outputs that hold nothing back do nothing.
    fn flush(&mut self) -> Result<(), Diagnosis> {
        Ok(())
    }

    /// The file that it writes; `None` where it writes none.
    fn file(&self) -> Option<&Path> {
        None
    }

    /// Completes the output; returns the file it wrote, if any. Called once: after the last frame, or when a call above has
    /// failed.
    fn finish(&mut self) -> Result<Option<PathBuf>, Diagnosis>;
}

/// State that a lane shares with the thread of a stream's sinks.
struct SinkQueue {
    core: Mutex<SinkCore>,
    /// Wakes the sinks.
    outcome_came: Arc<dyn Signal>,
    /// Wakes the lane.
    room_came: Arc<dyn Signal>,
    clock: Arc<dyn Clock>,
}

impl SinkQueue {
    fn lock(&self) -> MutexGuard<'_, SinkCore> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers an outcome; returns what became of it, and when.
    fn offer(&self, frame_result: FrameResult, stopping: bool) -> (ResultOffer, Nanos) {
        let mut core = self.lock();
        let now = self.clock.now();
        (core.offer(frame_result, stopping, now), now)
    }

    /// Asks what comes next; returns it with the time.
    fn next(&self) -> (SinkNext, Nanos) {
        let mut core = self.lock();
        let now = self.clock.now();
        (core.next(now), now)
    }
}

/// The lane's end of a stream's sinks.
pub struct ResultSender {
    exchange: Arc<SinkQueue>,
    /// Requests to stop wake the lane while it waits for room.
    watches_stop: bool,
    telemetry: StreamTelemetry,
}

impl ResultSender {
    /// Hands an outcome over. A stream that may drop frames never waits here, so that slow sinks cannot hold a lane. Others
    /// wait, but not without end once `stop` is requested.
    pub fn push(&mut self, mut frame_result: FrameResult, stop: &Stop) {
        let Self { exchange, watches_stop, telemetry } = self;
        let seq = frame_result.frame.desc.seq;
        // Looked at only where there is no room.
        let mut stopping = false;
        let mut has_waited = false;
        loop {
            let (offer, now) = exchange.offer(frame_result, stopping);
            match offer {
                ResultOffer::Accepted => {
                    exchange.outcome_came.notify();
                    return telemetry.queue(seq, Queue::Sinks, QueueStep::Accepted, now);
                }
                ResultOffer::Refused(_, cause) => {
                    telemetry.queue(seq, Queue::Sinks, QueueStep::Refused, now);
                    return telemetry.drop_frame(seq, cause, now);
                }
                ResultOffer::Full(refused, until) => {
                    frame_result = refused;
                    if !std::mem::replace(&mut has_waited, true) {
                        telemetry.queue(seq, Queue::Sinks, QueueStep::Waited, now);
                    }
                    if !std::mem::replace(watches_stop, true) {
                        stop.watch(&exchange.room_came);
                    }
                    if stopping || !stop.requested() {
                        exchange.room_came.wait(until);
                    }
                    stopping = stop.requested();
                }
            }
        }
    }
}

impl ResultSender {
    /// The handle of the stream.
    pub(crate) fn telemetry(&self) -> &StreamTelemetry {
        &self.telemetry
    }
}

impl Drop for ResultSender {
    fn drop(&mut self) {
        self.exchange.lock().end();
        self.exchange.outcome_came.notify();
    }
}

impl fmt::Debug for ResultSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResultSender({} results wait)", self.exchange.lock().waiting())
    }
}

/// Files and faults of a stream's sinks.
#[derive(Debug, Default)]
pub struct SinkOutputs {
    /// Files that are complete.
    pub files: Vec<PathBuf>,
    /// Files of sinks that failed: frames are missing at their end.
    pub incomplete: Vec<PathBuf>,
    /// Faults of the sinks that failed.
    pub faults: Vec<Diagnosis>,
}

/// Runs one stream's sinks on the calling thread.
pub struct SinkThread {
    sinks: Vec<Box<dyn Sink>>,
    /// A stream without sinks delivers its frames to nobody, and none of them is dropped.
    has_sinks: bool,
    exchange: Arc<SinkQueue>,
    outputs: SinkOutputs,
    /// Number of sinks that have failed.
    failed: Arc<AtomicUsize>,
    /// Number of the frame that is being written. One that a panic leaves here was not written.
    writing: Option<u64>,
    latency_max: Option<Duration>,
    clock: Arc<dyn Clock>,
    events: Arc<dyn EventSink>,
    telemetry: StreamTelemetry,
}

impl SinkThread {
    /// Creates the sinks of a stream and the sender through which its results come.
    pub fn new(
        telemetry: StreamTelemetry,
        sinks: Vec<Box<dyn Sink>>,
        policy: DropPolicy,
        latency_max: Option<Duration>,
        clock: Arc<dyn Clock>,
        events: Arc<dyn EventSink>,
    ) -> (Self, ResultSender) {
        let exchange = Arc::new(SinkQueue {
            core: Mutex::new(SinkCore::new(policy, clock.now())),
            outcome_came: clock.signal(),
            room_came: clock.signal(),
            clock: Arc::clone(&clock),
        });
        let result_sender = ResultSender {
            exchange: Arc::clone(&exchange),
            watches_stop: false,
            telemetry: telemetry.clone(),
        };
        let (outputs, has_sinks) = (SinkOutputs::default(), !sinks.is_empty());
        let failed = Arc::default();
        let thread = Self {
            sinks,
            has_sinks,
            exchange,
            outputs,
            failed,
            writing: None,
            latency_max,
            clock,
            events,
            telemetry,
        };
        (thread, result_sender)
    }

    /// The number of sinks that have failed, for others to look at while it runs.
    pub fn failed(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.failed)
    }

    /// Writes until the result sender is dropped, then completes every sink. Returns the files written and the faults.
    pub fn run(mut self) -> SinkOutputs {
        loop {
            let (next, now) = self.exchange.next();
            let result = match next {
                SinkNext::Write(frame_result) => {
                    self.exchange.room_came.notify();
                    let seq = frame_result.frame.desc.seq;
                    self.telemetry.queue(seq, Queue::Sinks, QueueStep::Taken, now);
                    self.writing = Some(seq);
                    self.tell(|sink| sink.write(&frame_result));
                    self.count(&frame_result);
                    self.writing = None;
                    SinkResult::Wrote
                }
                SinkNext::CheckOffline => self.check_offline(),
                SinkNext::Flush => {
                    self.tell(|sink| sink.flush());
                    continue;
                }
                SinkNext::WaitUntil(until) => {
                    self.exchange.outcome_came.wait(Some(until));
                    continue;
                }
                SinkNext::Finish => break,
            };
            self.exchange.lock().finished(result, self.clock.now());
        }
        for sink in std::mem::take(&mut self.sinks) {
            finish(sink, &mut self.outputs);
        }
        std::mem::take(&mut self.outputs)
    }

    /// Tells every sink something. One that fails completes what it has written, and is told nothing any more.
    fn tell(&mut self, mut what: impl FnMut(&mut dyn Sink) -> Result<(), Diagnosis>) {
        let Self { sinks, outputs, failed, events, telemetry, .. } = self;
        sinks.retain_mut(|sink| {
            let Err(why) = what(&mut **sink) else { return true };
            failed.fetch_add(1, Ordering::Relaxed);
            events.emit(Event::SinkFailed { stream: Arc::clone(telemetry.name()), why: why.clone() });
            outputs.faults.push(why);
            let file = sink.file().map(Path::to_owned);
            // If this fails too, the fault above has said why. `None` is a file that was never begun and is gone.
            let kept = sink.finish().unwrap_or_else(|_| file.clone());
            outputs.incomplete.extend(kept.and(file));
            false
        });
    }

    /// Tells the sinks for how long the source has been away, if it is and was there before.
    fn check_offline(&mut self) -> SinkResult {
        let (state, latest) = self.telemetry.read(|fold| (fold.state, fold.last_out));
        let away =
            matches!(state, Some(SourceState::Connecting | SourceState::Stalled | SourceState::BackingOff));
        let (true, Some(latest)) = (away, latest) else { return SinkResult::NotOffline };
        let silence = self.clock.now().since(latest);
        self.tell(|sink| sink.offline(silence));
        SinkResult::WroteOffline
    }

    fn count(&self, frame_result: &FrameResult) {
        let (now, seq) = (self.clock.now(), frame_result.frame.desc.seq);
        let total = TimeSpan::new(frame_result.frame.arrived, now);
        if self.has_sinks && self.sinks.is_empty() {
            return self.telemetry.drop_frame(seq, DropCause::SinkFailed, now);
        }
        let seen = frame_result.reported().filter(|found| !found.predicted);
        let rows = |found: &ModelResult| {
            (0..found.inference.detections.len()).filter(|row| found.reports(*row)).count()
        };
        let detections = seen.map(|found| rows(found) as u64).sum::<u64>();
        let is_late = self.latency_max.is_some_and(|max| total.duration() > max);
        let late_in = is_late.then(|| frame_result.longest_stage(now));
        let mut emitter = self.telemetry.emitter();
        emitter.stage(seq, Stage::Sink, TimeSpan::new(frame_result.finished, now));
        emitter.stage(seq, Stage::Total, total);
        if let Some(captured) = frame_result.frame.captured {
            let since_capture = TimeSpan::ending(now, captured + total.duration());
            emitter.stage(seq, Stage::CaptureToResult, since_capture);
        }
        emitter.result(seq, detections, late_in, now);
    }
}

impl Drop for SinkThread {
    /// Frees a lane that waits for room, and counts the frames that a panic of a sink has left.
    fn drop(&mut self) {
        let waiting = self.exchange.lock().abandon();
        let now = self.clock.now();
        let waiting = waiting.iter().map(|frame_result| frame_result.frame.desc.seq);
        for seq in self.writing.take().into_iter().chain(waiting) {
            self.telemetry.drop_frame(seq, DropCause::SinkFailed, now);
        }
        self.exchange.room_came.notify();
    }
}

fn finish(mut sink: Box<dyn Sink>, outputs: &mut SinkOutputs) {
    match sink.finish() {
        Ok(file) => outputs.files.extend(file),
        Err(fault) => {
            outputs.incomplete.extend(sink.file().map(Path::to_owned));
            outputs.faults.push(fault);
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
mod tests {
    use super::sink_core::{FLUSH_EVERY, FLUSHES_MAX, OUTCOMES_MAX};
    use super::*;
    use crate::{Frame, MonotonicClock, Slot, SlotPool};
    use orinoco_core::{FrameDesc, PixelFormat, StreamId, codes};
    use orinoco_telemetry::Telemetry;
    use std::sync::Mutex;

    struct Quiet;
    impl EventSink for Quiet {
        fn emit(&self, _: Event) {}
    }

    fn frame_result() -> FrameResult {
        let slot = SlotPool::new(1, 1).try_take().expect("free");
        let desc = FrameDesc::packed(PixelFormat::Gray8, 1, 1);
        let frame = Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("fits");
        FrameResult { frame, found: Vec::new(), finished: Nanos(0) }
    }

    /// A sink that writes so many results, and then panics.
    struct Panics(u32);
    impl Sink for Panics {
        fn write(&mut self, _: &FrameResult) -> Result<(), Diagnosis> {
            match self.0.checked_sub(1) {
                Some(left) => self.0 = left,
                // Without the hook, which would print a message.
                None => std::panic::resume_unwind(Box::new("this test wants it")),
            }
            Ok(())
        }
        fn finish(&mut self) -> Result<Option<PathBuf>, Diagnosis> {
            Ok(None)
        }
    }

    #[test]
    fn frames_of_sinks_that_panic_are_counted() {
        let (thread, mut result_sender, stream) = thread(Panics(3), DropPolicy::Block);
        let sinks = std::thread::spawn(move || thread.run());
        (0..20).for_each(|_| result_sender.push(frame_result(), &Stop::default()));
        assert!(sinks.join().is_err());
        let (written, failed, behind) = stream.read(|fold| {
            (fold.frames_out, fold.dropped(DropCause::SinkFailed), fold.dropped(DropCause::SinkBehind))
        });
        assert_eq!((written, failed, behind), (3, 17, 0));
    }

    fn thread(sink: impl Sink + 'static, policy: DropPolicy) -> (SinkThread, ResultSender, StreamTelemetry) {
        let (stream, clock) = (Telemetry::new(1).stream(StreamId(0)), Arc::new(MonotonicClock::default()));
        let sinks: Vec<Box<dyn Sink>> = vec![Box::new(sink)];
        let (thread, result_sender) =
            SinkThread::new(stream.clone(), sinks, policy, None, clock, Arc::new(Quiet));
        (thread, result_sender, stream)
    }

    #[test]
    fn late_frames_have_a_cause_and_captured_ones_a_time_since_then() {
        let (stream, clock) = (Telemetry::new(1).stream(StreamId(0)), Arc::new(MonotonicClock::default()));
        let (policy, max) = (DropPolicy::Block, Some(Duration::ZERO));
        let (thread, mut result_sender) =
            SinkThread::new(stream.clone(), Vec::new(), policy, max, clock, Arc::new(Quiet));
        let captured = Duration::from_secs(100);
        for captured in [None, Some(captured), None] {
            let mut frame_result = frame_result();
            frame_result.frame.captured = captured;
            result_sender.push(frame_result, &Stop::default());
        }
        drop(result_sender);
        // Their time is more than none, and nearly all of it is spent here.
        std::thread::sleep(Duration::from_millis(5));
        thread.run();
        stream.read(|fold| {
            assert_eq!((fold.frames_out, fold.late, fold.late_in(Stage::Sink)), (3, 3, 3));
            let since_capture = fold.stage(Stage::CaptureToResult);
            assert_eq!((since_capture.count(), fold.stage(Stage::Total).count()), (1, 3));
            let longest = since_capture.max();
            let bound = captured + fold.stage(Stage::Total).max() + Duration::from_secs(2);
            assert!(captured < longest && longest < bound, "{longest:?}");
        });
    }

    /// Takes so many outcomes, and notes what it is asked.
    struct Short(usize, Arc<Mutex<Vec<&'static str>>>);
    impl Sink for Short {
        fn write(&mut self, _: &FrameResult) -> Result<(), Diagnosis> {
            self.1.lock().expect("not poisoned").push("write");
            let fault = || Diagnosis::new(&codes::SINK_WRITE, "short", "it has had enough", "nothing");
            self.0.checked_sub(1).map(|left| self.0 = left).ok_or_else(fault)
        }
        fn flush(&mut self) -> Result<(), Diagnosis> {
            self.1.lock().expect("not poisoned").push("flush");
            Ok(())
        }
        fn file(&self) -> Option<&Path> {
            Some(Path::new("short"))
        }
        fn finish(&mut self) -> Result<Option<PathBuf>, Diagnosis> {
            self.1.lock().expect("not poisoned").push("finish");
            Ok(Some(PathBuf::from("short")))
        }
    }

    #[test]
    fn a_sink_that_fails_completes_what_it_has() {
        let asked = Arc::default();
        let (thread, mut result_sender, _) = thread(Short(2, Arc::clone(&asked)), DropPolicy::DropNewest);
        (0..4).for_each(|_| result_sender.push(frame_result(), &Stop::default()));
        drop(result_sender);
        let SinkOutputs { files, incomplete, faults } = thread.run();
        assert_eq!((files, incomplete, faults.len()), (Vec::new(), vec![PathBuf::from("short")], 1));
        assert_eq!(*asked.lock().expect("not poisoned"), ["write", "write", "write", "finish"]);
    }

    #[test]
    fn sinks_that_block_get_every_outcome() {
        let asked = Arc::default();
        let (thread, mut result_sender, stream) = thread(Short(100, Arc::clone(&asked)), DropPolicy::Block);
        let sinks = std::thread::spawn(move || thread.run());
        (0..100).for_each(|_| result_sender.push(frame_result(), &Stop::default()));
        drop(result_sender);
        assert!(sinks.join().expect("it does not panic").faults.is_empty());
        let asked = asked.lock().expect("not poisoned");
        assert_eq!(asked.iter().filter(|what| **what != "flush").count(), 101);
        assert_eq!(stream.read(|fold| fold.dropped(DropCause::SinkBehind)), 0);
    }

    /// Frames out, and frames dropped because sinks had failed, of 10 frames to `sinks`.
    fn counts(sinks: Vec<Box<dyn Sink>>) -> (u64, u64) {
        let (stream, clock) = (Telemetry::new(1).stream(StreamId(0)), Arc::new(MonotonicClock::default()));
        let (policy, events) = (DropPolicy::Block, Arc::new(Quiet));
        let (thread, mut result_sender) = SinkThread::new(stream.clone(), sinks, policy, None, clock, events);
        let sinks = std::thread::spawn(move || thread.run());
        (0..10).for_each(|_| result_sender.push(frame_result(), &Stop::default()));
        drop(result_sender);
        sinks.join().expect("it does not panic");
        stream.read(|fold| (fold.frames_out, fold.dropped(DropCause::SinkFailed)))
    }

    #[test]
    fn frames_that_no_sink_took_are_dropped_and_counted() {
        let short = |frames| Box::new(Short(frames, Arc::default())) as Box<dyn Sink>;
        assert_eq!(counts(vec![short(4)]), (4, 6));
        assert_eq!(counts(vec![short(4), short(7)]), (7, 3), "one sink goes on");
        assert_eq!(counts(vec![short(4), short(10)]), (10, 0));
        assert_eq!(counts(Vec::new()), (10, 0), "nobody wanted them");
    }

    #[test]
    fn sinks_flush_within_a_second_although_no_frame_comes_and_not_for_each_frame() {
        let asked: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let (thread, mut result_sender, _) = thread(Short(1000, Arc::clone(&asked)), DropPolicy::Block);
        let sinks = std::thread::spawn(move || thread.run());
        let flushes = || asked.lock().expect("not poisoned").iter().filter(|what| **what == "flush").count();
        let begin = std::time::Instant::now();
        (0..500).for_each(|_| result_sender.push(frame_result(), &Stop::default()));
        let writing = begin.elapsed();
        assert!(flushes() <= 1 + (writing.as_millis() / FLUSH_EVERY.as_millis()) as usize);
        std::thread::sleep(Duration::from_secs(1));
        let seen = flushes();
        assert!(seen >= 1, "none within a second");
        std::thread::sleep(Duration::from_millis(1500));
        let quiet = flushes();
        assert!(quiet <= seen + FLUSHES_MAX as usize, "an idle stream is left alone: {seen}, then {quiet}");
        drop(result_sender);
        sinks.join().expect("it does not panic");
    }

    #[test]
    fn a_file_that_could_not_be_completed_is_incomplete() {
        struct Torn;
        impl Sink for Torn {
            fn write(&mut self, _: &FrameResult) -> Result<(), Diagnosis> {
                Ok(())
            }
            fn file(&self) -> Option<&Path> {
                Some(Path::new("torn"))
            }
            fn finish(&mut self) -> Result<Option<PathBuf>, Diagnosis> {
                Err(Diagnosis::new(&codes::SINK_WRITE, "torn", "the disk is full", "free space"))
            }
        }
        let (thread, result_sender, _stream) = thread(Torn, DropPolicy::Block);
        drop(result_sender);
        let SinkOutputs { files, incomplete, faults } = thread.run();
        assert_eq!((files.len(), incomplete, faults.len()), (0, vec![PathBuf::from("torn")], 1));
    }

    #[test]
    fn a_sink_that_is_stuck_does_not_hold_up_the_end() {
        // Nobody runs the thread: nothing is taken.
        let (_thread, mut result_sender, stream) = thread(Short(0, Arc::default()), DropPolicy::Block);
        let stop = Stop::default();
        stop.request();
        (0..OUTCOMES_MAX + 3).for_each(|_| result_sender.push(frame_result(), &stop));
        assert_eq!(stream.read(|fold| fold.dropped(DropCause::SinkBehind)), 3);
    }
}
