//! The life of one source: connecting, live, stalled, backing off, ended.

mod source_supervisor;

use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{Clock, Nanos, PtsClock, TimeSpan, WallTime};
use orinoco_telemetry::{DropCause, Event, EventSink, SourceState, Stage, StreamTelemetry};

use crate::{Closed, Frame, FrameSender, Poll, Source, Stop};

pub use source_supervisor::{Reconnect, SourceEnd, SourceNext, SourceNotice, SourceResult, SourceSupervisor};

/// Runs one source on the calling thread until it ends.
pub struct SourceRunner {
    /// Its source as messages show it, without secrets.
    pub shown: String,
    /// The source.
    pub source: Box<dyn Source>,
    /// Sender of its frames to the mux.
    pub frame_sender: FrameSender,
    /// Rules for reconnecting it.
    pub reconnect: Reconnect,
    /// Maximum number of frames to deliver; frames lost at the source do not count.
    pub frames_max: Option<u64>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Seed of the jitter.
    pub seed: u64,
    /// Receiver of its changes of state.
    pub events: Arc<dyn EventSink>,
    /// The handle of the stream that it feeds.
    pub telemetry: StreamTelemetry,
    /// Stop request for this source.
    pub stop: Stop,
}

impl SourceRunner {
    /// Opens, reads and reopens the source until it ends, is stopped, or has failed for good.
    pub fn run(mut self) -> SourceEnd {
        let mut supervisor =
            SourceSupervisor::new(self.shown.clone(), self.reconnect, self.frames_max, self.seed);
        let signal = self.clock.signal();
        self.stop.watch(&signal);
        let (mut read, mut now) = (None, self.clock.now());
        loop {
            if self.stop.requested() {
                supervisor.stop();
            }
            let next = supervisor.next(now);
            while let Some(notice) = supervisor.notice() {
                self.report(notice, now);
            }
            let result = match next {
                SourceNext::Open => match self.source.open() {
                    Ok(()) if !self.source.has_frames() => SourceResult::OpenedWithoutFrames,
                    Ok(()) => SourceResult::Opened,
                    Err(error) => SourceResult::Failed(error),
                },
                SourceNext::Read(wait) => self.read(wait, &mut read),
                SourceNext::Push { seq } => self.push(read.take().expect("a frame was read"), seq),
                SourceNext::Close => {
                    self.source.close();
                    SourceResult::Closed
                }
                SourceNext::WaitUntil(until) => {
                    signal.wait(Some(until));
                    now = self.clock.now();
                    continue;
                }
                SourceNext::Ended(end) => return end,
            };
            now = self.clock.now();
            supervisor.finished(result, now);
        }
    }

    /// Reads the source, and keeps the frame that it has in `read`.
    fn read(&mut self, wait: Duration, read: &mut Option<Frame>) -> SourceResult {
        match self.source.next(wait) {
            Ok(Poll::Frame(frame)) => SourceResult::Frame { lost: read.insert(frame).lost },
            Ok(Poll::Pending) => SourceResult::Silent,
            Ok(Poll::Waiting) => SourceResult::Waited,
            Ok(Poll::End) => SourceResult::End,
            Err(error) => SourceResult::Failed(error),
        }
    }

    fn push(&self, mut frame: Frame, seq: u64) -> SourceResult {
        (frame.desc.seq, frame.desc.stream) = (seq, self.telemetry.id());
        frame.desc.wall = captured_at(&frame, &*self.clock);
        self.emit(&frame);
        match self.frame_sender.push(frame) {
            Ok(()) => SourceResult::Pushed,
            Err(Closed) => SourceResult::RingClosed,
        }
    }

    fn report(&self, notice: SourceNotice, now: Nanos) {
        match notice {
            SourceNotice::Entered { state, why, is_news } => {
                self.telemetry.state(state, now);
                if is_news {
                    self.events.emit(Event::Source { stream: self.name(), state, why });
                }
                if state == SourceState::Live {
                    self.telemetry.set_decoder(self.source.decoder());
                    self.frame_sender.set_source_frames_max(self.source.frames_max());
                }
            }
            SourceNotice::Retry { attempt, wait, is_news } => {
                if is_news {
                    self.events.emit(Event::SourceRetry { stream: self.name(), attempt, wait });
                }
            }
            SourceNotice::Recovered { after, is_news } => {
                if is_news {
                    self.events.emit(Event::SourceRecovered { stream: self.name(), after });
                }
            }
        }
    }

    fn emit(&self, frame: &Frame) {
        let Frame { lost, arrived, captured, decode, decode_cpu, .. } = *frame;
        let seq = frame.desc.seq;
        let mut emitter = self.telemetry.emitter();
        emitter.drop_frames(seq.saturating_sub(lost), DropCause::LostAtSource, lost, arrived);
        emitter.arrival(seq, arrived);
        for (stage, took) in [(Stage::Capture, captured), (Stage::Decode, decode)] {
            if let Some(took) = took {
                emitter.stage(seq, stage, TimeSpan::ending(arrived, took));
            }
        }
        if let Some(took) = decode_cpu {
            emitter.decoder_cpu(seq, took, arrived);
        }
    }

    /// The stream's name.
    fn name(&self) -> Arc<str> {
        Arc::clone(self.telemetry.name())
    }
}

/// Returns the time of day at which a live source captured a frame; `None` for a recording.
fn captured_at(frame: &Frame, clock: &dyn Clock) -> Option<WallTime> {
    if frame.desc.clock == PtsClock::Media {
        return None;
    }
    let on_the_way = frame.captured.or(frame.decode).unwrap_or_default();
    let since_arrival = clock.now().since(frame.arrived);
    Some(clock.wall() - (since_arrival + on_the_way))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
mod tests {
    use super::*;
    use crate::{MonotonicClock, Mux, SourceError, StreamQueue};
    use orinoco_core::{Diagnosis, DropPolicy, FrameDesc, PixelFormat, Signal, StreamId, codes};
    use orinoco_telemetry::Telemetry;
    use std::collections::VecDeque;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Log(Mutex<Vec<String>>);
    impl EventSink for Log {
        fn emit(&self, event: Event) {
            if let Event::Source { state, .. } = event {
                self.0.lock().expect("not poisoned").push(state.name().to_owned());
            }
        }
    }

    /// Plays a script: each step is one answer.
    struct Script(VecDeque<Step>);
    enum Step {
        OpenFails,
        Frame,
        FrameAfterLoss(u64),
        /// Longer than a stall.
        Waits,
        Breaks,
        Damaged,
        End,
    }

    const STALL: Duration = Duration::from_millis(1);

    fn fault() -> Diagnosis {
        Diagnosis::new(&codes::SOURCE_UNREACHABLE, "test", "scripted", "nothing")
    }

    impl Source for Script {
        fn open(&mut self) -> Result<(), SourceError> {
            if matches!(self.0.front(), Some(Step::OpenFails)) {
                self.0.pop_front();
                return Err(SourceError::Transient(fault()));
            }
            Ok(())
        }
        fn next(&mut self, _: Duration) -> Result<Poll, SourceError> {
            match self.0.pop_front() {
                Some(step @ (Step::Frame | Step::FrameAfterLoss(_))) => {
                    let desc = FrameDesc::packed(PixelFormat::Gray8, 1, 1);
                    let slot = crate::SlotPool::new(1, 1).try_take().expect("free");
                    let mut frame = Frame::new(desc, crate::Slot::Owned(slot), Nanos(0)).expect("fits");
                    if let Step::FrameAfterLoss(lost) = step {
                        frame.lost = lost;
                    }
                    Ok(Poll::Frame(frame))
                }
                Some(Step::Waits) => {
                    std::thread::sleep(2 * STALL);
                    Ok(Poll::Waiting)
                }
                Some(Step::Breaks) => Err(SourceError::Transient(fault())),
                Some(Step::Damaged) => Err(SourceError::Permanent(fault())),
                Some(Step::End) => Ok(Poll::End),
                Some(Step::OpenFails) | None => Ok(Poll::Pending),
            }
        }
        fn close(&mut self) {}
    }

    fn check(steps: Vec<Step>, attempts_max: Option<u32>, states: &str, end: &str) {
        check_until(Stop::default(), steps, attempts_max, states, end);
    }

    fn check_until(stop: Stop, steps: Vec<Step>, attempts_max: Option<u32>, states: &str, end: &str) {
        let (runner, _mux, log) = runner(stop, steps, attempts_max);
        let ended = match runner.run() {
            SourceEnd::Complete => "complete",
            SourceEnd::Stopped => "stopped",
            SourceEnd::LaneEnded => "lane ended",
            SourceEnd::Failed(_) => "failed",
        };
        assert_eq!((log.0.lock().expect("not poisoned").join(" ").as_str(), ended), (states, end));
    }

    fn runner(stop: Stop, steps: Vec<Step>, attempts_max: Option<u32>) -> (SourceRunner, Arc<Mux>, Arc<Log>) {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
        let telemetry = Telemetry::new(1).stream(StreamId(0));
        let (policy, batch_wait) = (DropPolicy::Block, Duration::ZERO);
        let queue = StreamQueue { group: 0, frames_max: 8, policy, batch_wait };
        let mux = Mux::new(clock.clone());
        let log = Arc::new(Log::default());
        let runner = SourceRunner {
            shown: "script".to_owned(),
            source: Box::new(Script(steps.into())),
            frame_sender: mux.add(telemetry.clone(), queue, 1).expect("open"),
            reconnect: Reconnect { attempts_max, stall: STALL },
            frames_max: None,
            clock,
            seed: 7,
            events: log.clone(),
            telemetry,
            stop,
        };
        (runner, mux, log)
    }

    #[test]
    fn what_was_lost_at_the_source_does_not_count_as_frames_of_a_run() {
        let steps = vec![Step::FrameAfterLoss(35), Step::Frame, Step::FrameAfterLoss(2), Step::Frame];
        let (mut runner, mux, _) = runner(Stop::default(), steps, None);
        runner.frames_max = Some(3);
        assert!(matches!(runner.run(), SourceEnd::Complete));
        let (mut batch, mut numbers) = (Vec::new(), Vec::new());
        while mux.next(&mut batch).is_some() {
            numbers.extend(batch.iter().map(|frame| frame.desc.seq));
        }
        assert_eq!(numbers, [35, 36, 39]);
    }

    #[test]
    fn frames_of_live_sources_have_the_time_of_their_capture() {
        struct Fixed;
        impl Clock for Fixed {
            fn now(&self) -> Nanos {
                Nanos(1_000)
            }
            fn wall(&self) -> WallTime {
                WallTime::from_unix_nanos(5_000_000)
            }
            fn signal(&self) -> Arc<dyn Signal> {
                MonotonicClock::default().signal()
            }
        }
        let captured = |clock: PtsClock, captured: Option<u64>, decode: Option<u64>| {
            let desc = FrameDesc { clock, ..FrameDesc::packed(PixelFormat::Gray8, 1, 1) };
            let slot = crate::SlotPool::new(1, 1).try_take().expect("free");
            let mut frame = Frame::new(desc, crate::Slot::Owned(slot), Nanos(400)).expect("fits");
            frame.captured = captured.map(Duration::from_nanos);
            frame.decode = decode.map(Duration::from_nanos);
            captured_at(&frame, &Fixed).map(WallTime::unix_nanos)
        };
        assert_eq!(captured(PtsClock::Media, Some(1), Some(1)), None);
        assert_eq!(captured(PtsClock::Arrival, None, None), Some(4_999_400));
        assert_eq!(captured(PtsClock::Arrival, None, Some(100)), Some(4_999_300));
        // A camera's own stamp is before its JPEG reached the decoder.
        assert_eq!(captured(PtsClock::Monotonic, Some(300), Some(100)), Some(4_999_100));
    }

    #[test]
    fn a_file_lives_once() {
        check(vec![Step::Frame, Step::Frame, Step::End], None, "connecting live ended", "complete");
    }

    #[test]
    fn a_lost_camera_is_reopened() {
        let steps = vec![Step::Frame, Step::Breaks, Step::OpenFails, Step::Frame, Step::End];
        let states = "connecting live backing-off connecting backing-off connecting live ended";
        check(steps, Some(1), states, "complete");
    }

    #[test]
    fn a_camera_that_comes_for_a_moment_does_not_fill_the_log() {
        let mut steps: Vec<Step> = (0..4).flat_map(|_| [Step::Frame, Step::Breaks]).collect();
        steps.extend([Step::Frame, Step::End]);
        // The third loss is not told.
        let back = "backing-off connecting live";
        check(steps, None, &format!("connecting live {back} {back} {back} ended"), "complete");
    }

    #[test]
    fn a_camera_that_never_came_is_given_up() {
        check(
            vec![Step::OpenFails, Step::OpenFails],
            Some(2),
            "connecting backing-off connecting ended",
            "failed",
        );
    }

    #[test]
    fn a_source_is_not_opened_when_the_end_was_asked_for() {
        let stop = Stop::default();
        stop.request();
        check_until(stop, vec![Step::Frame], None, "ended", "stopped");
    }

    #[test]
    fn silence_is_a_stall() {
        check(vec![], Some(1), "connecting stalled ended", "failed");
    }

    #[test]
    fn what_waits_for_its_time_or_for_us_is_not_silent() {
        let steps = vec![Step::Frame, Step::Waits, Step::Waits, Step::Waits, Step::Frame, Step::End];
        check(steps, None, "connecting live ended", "complete");
        check(vec![Step::Waits, Step::Waits], Some(1), "connecting stalled ended", "failed");
    }

    #[test]
    fn damage_is_not_retried() {
        check(vec![Step::Frame, Step::Damaged], None, "connecting live ended", "failed");
    }
}
