//! The life of one source: connecting, live, stalled, backing off, ended.

use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{Clock, Diagnosis, Nanos, PtsClock, StreamId, WallTime, codes};
use orinoco_telemetry::{DropCause, Event, EventSink, SourceState, Stage, Stats};

use crate::{Frame, Inlet, Poll, Source, SourceError, Stop};

/// The first wait before reopening; short, since most losses are a dropped connection.
const BACKOFF_FIRST: Duration = Duration::from_millis(200);
/// The longest wait: a camera that comes back is seen again within this and its own start-up time.
const BACKOFF_MAX: Duration = Duration::from_millis(1000);
/// A source that was live for less was not really back: its loss counts as one more failed attempt.
const LIVE_MIN: Duration = Duration::from_secs(5);
/// How long one poll of a source may wait, so that a request to stop is seen in time.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// How a source is kept alive.
#[derive(Clone, Copy, Debug)]
pub struct Reconnect {
    /// Attempts to reach a source that never delivered, before giving up; `None` tries for ever.
    pub attempts_max: Option<u32>,
    /// Silence after which a live source counts as stalled and is reopened.
    pub stall: Duration,
}

/// How a source's thread ended.
#[derive(Debug)]
pub enum SourceEnd {
    /// The end of its input, or the number of frames asked for.
    Complete,
    /// Asked to stop.
    Stopped,
    /// It failed for good.
    Failed(Diagnosis),
}

/// Runs one source on the calling thread until it ends.
pub struct SourceRunner {
    /// The stream it feeds.
    pub stream: StreamId,
    /// Its source as messages show it, without secrets.
    pub shown: String,
    /// The source.
    pub source: Box<dyn Source>,
    /// Where its frames go.
    pub inlet: Inlet,
    /// How it is kept alive.
    pub reconnect: Reconnect,
    /// Ends after this many frames; what was lost at the source is none.
    pub frames_max: Option<u64>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance, for the jitter: any seed.
    pub seed: u64,
    /// Where its changes of state go.
    pub events: Arc<dyn EventSink>,
    /// Counters.
    pub stats: Stats,
    /// The wish to end.
    pub stop: Stop,
}

impl SourceRunner {
    /// Opens, reads and reopens the source until it ends, is stopped, or has failed for good.
    pub fn run(mut self) -> SourceEnd {
        let mut life = Life {
            backoff: Backoff::new(self.reconnect.attempts_max, self.seed),
            seq: 0,
            given: 0,
            lost: None,
        };
        let end = loop {
            let error = match self.session(&mut life) {
                Ok(end) => break end,
                Err(error) => error,
            };
            self.source.close();
            let now = self.clock.now();
            life.backoff.lost(now);
            if life.backoff.ever_live {
                life.lost.get_or_insert(now);
            }
            match life.backoff.after(&error) {
                Some(wait) => {
                    self.back_off(&life.backoff, wait, error.diagnosis());
                    if self.stop.sleep(wait) {
                        break SourceEnd::Stopped;
                    }
                }
                None => break SourceEnd::Failed(error.diagnosis().clone()),
            }
        };
        self.source.close();
        let why = if let SourceEnd::Failed(why) = &end { Some(why.clone()) } else { None };
        self.enter(SourceState::Ended, why);
        end
    }

    /// One connection: from opening to the end of the stream or an error.
    fn session(&mut self, life: &mut Life) -> Result<SourceEnd, SourceError> {
        if self.stop.requested() {
            return Ok(SourceEnd::Stopped);
        }
        self.enter_again(life.backoff.attempt, SourceState::Connecting, None);
        self.source.open()?;
        let mut heard = self.clock.now();
        let mut live = false;
        while !self.stop.requested() {
            match self.source.next(POLL_WAIT)? {
                Poll::Frame(mut frame) => {
                    if !live {
                        live = true;
                        life.backoff.live(self.clock.now());
                        self.enter_again(life.backoff.flaps, SourceState::Live, None);
                        self.stats.stream(self.stream).maker = self.source.maker();
                        self.inlet.set_source_frames_max(self.source.frames_max());
                        self.recovered(life);
                    }
                    // A gap in the numbers is a loss at the source.
                    life.seq += frame.lost;
                    frame.desc.seq = life.seq;
                    frame.desc.stream = self.stream;
                    frame.desc.wall = captured_at(&frame, &*self.clock);
                    life.seq += 1;
                    life.given += 1;
                    self.count(&frame);
                    if self.inlet.push(frame).is_err() {
                        return Ok(SourceEnd::Stopped);
                    }
                    if self.frames_max.is_some_and(|max| life.given >= max) {
                        return Ok(SourceEnd::Complete);
                    }
                    // Read after the push: time spent blocked by our own ring is not the source's silence.
                    heard = self.clock.now();
                }
                Poll::Pending => self.check_stall(heard, life.backoff.attempt)?,
                Poll::Waiting => heard = self.clock.now(),
                Poll::End => return Ok(SourceEnd::Complete),
            }
        }
        Ok(SourceEnd::Stopped)
    }

    fn check_stall(&self, heard: Nanos, attempt: u32) -> Result<(), SourceError> {
        let silence = self.clock.now().since(heard);
        if silence < self.reconnect.stall {
            return Ok(());
        }
        let cause = format!("no frame for {:.0} s", silence.as_secs_f64());
        let next = "check the camera or the file; `gst-discoverer-1.0` shows what GStreamer makes of it";
        let why = Diagnosis::new(&codes::SOURCE_UNREACHABLE, &self.shown, cause, next);
        self.enter_again(attempt, SourceState::Stalled, Some(why.clone()));
        Err(SourceError::Transient(why))
    }

    fn back_off(&self, backoff: &Backoff, wait: Duration, why: &Diagnosis) {
        self.stats.stream(self.stream).reconnects += 1;
        self.enter_again(backoff.attempt, SourceState::BackingOff, Some(why.clone()));
        if is_news(backoff.attempt) {
            self.events.emit(Event::SourceRetry { stream: self.name(), attempt: backoff.attempt, wait });
        }
    }

    /// Notes how long a source was away that is live again.
    fn recovered(&self, life: &mut Life) {
        let Some(lost) = life.lost.take() else { return };
        let after = self.clock.now().since(lost);
        self.stats.stream(self.stream).recovery.record(after);
        if is_news(life.backoff.flaps) {
            self.events.emit(Event::SourceRecovered { stream: self.name(), after });
        }
    }

    fn count(&self, frame: &Frame) {
        let mut stats = self.stats.stream(self.stream);
        stats.frames_in += 1 + frame.lost;
        stats.drop_frames(DropCause::LostAtSource, frame.lost);
        for (stage, took) in [(Stage::Capture, frame.captured), (Stage::Decode, frame.decode)] {
            if let Some(took) = took {
                stats.record(stage, took);
            }
        }
    }

    /// The stream's name.
    fn name(&self) -> Arc<str> {
        Arc::clone(&self.stats.stream(self.stream).name)
    }

    fn enter(&self, state: SourceState, why: Option<Diagnosis>) {
        self.enter_again(0, state, why);
    }

    /// Enters a state in which it was `times` times already.
    fn enter_again(&self, times: u32, state: SourceState, why: Option<Diagnosis>) {
        self.stats.stream(self.stream).state = Some(state);
        if is_news(times) {
            self.events.emit(Event::Source { stream: self.name(), state, why });
        }
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

/// Whether something that has happened `times` times is worth a message: the first, second, fourth and so on, or a camera
/// that is away all night would fill the log.
fn is_news(times: u32) -> bool {
    times == 0 || times.is_power_of_two()
}

/// What outlives a connection.
struct Life {
    backoff: Backoff,
    /// The next frame's number.
    seq: u64,
    /// Frames handed on.
    given: u64,
    /// When it was lost, if it was live before and is not now.
    lost: Option<Nanos>,
}

/// How long to wait before the next attempt, if there is to be one.
struct Backoff {
    attempts_max: Option<u32>,
    /// Failures since it was live for a while.
    attempt: u32,
    /// Those of them before which it was live for a moment.
    flaps: u32,
    live_since: Option<Nanos>,
    ever_live: bool,
    random: u64,
}

impl Backoff {
    fn new(attempts_max: Option<u32>, seed: u64) -> Self {
        let random = seed | 1;
        Self { attempts_max, attempt: 0, flaps: 0, live_since: None, ever_live: false, random }
    }

    fn live(&mut self, now: Nanos) {
        self.ever_live = true;
        self.live_since = Some(now);
    }

    /// The connection has ended. Only after one that lasted are earlier failures forgotten.
    fn lost(&mut self, now: Nanos) {
        match self.live_since.take() {
            Some(since) if now.since(since) >= LIVE_MIN => (self.attempt, self.flaps) = (0, 0),
            Some(_) => self.flaps += 1,
            None => {}
        }
    }

    fn after(&mut self, error: &SourceError) -> Option<Duration> {
        let SourceError::Transient(_) = error else { return None };
        self.attempt += 1;
        let given_up = !self.ever_live && self.attempts_max.is_some_and(|max| self.attempt >= max);
        if given_up {
            return None;
        }
        let doublings = (self.attempt - 1).min(8);
        let full = (BACKOFF_FIRST * 2u32.pow(doublings)).min(BACKOFF_MAX);
        // Between half and the whole, so that cameras lost together do not come back together.
        Some(full / 2 + (full / 2).mul_f64(self.chance()))
    }

    /// xorshift64 (Marsaglia 2003): jitter needs no better. 0 to 1.
    fn chance(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MonotonicClock, Mux, StreamQueue};
    use orinoco_core::{DropPolicy, FrameDesc, PixelFormat, Signal};
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
                    let slot = crate::SlotPool::new(1, 1).take(Duration::ZERO).expect("free");
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
            SourceEnd::Failed(_) => "failed",
        };
        assert_eq!((log.0.lock().expect("not poisoned").join(" ").as_str(), ended), (states, end));
    }

    fn runner(stop: Stop, steps: Vec<Step>, attempts_max: Option<u32>) -> (SourceRunner, Arc<Mux>, Arc<Log>) {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
        let stats = Stats::new(1);
        let (policy, batch_wait) = (DropPolicy::Block, Duration::ZERO);
        let queue = StreamQueue { group: 0, batch_max: 1, frames_max: 8, policy, batch_wait };
        let mux = Mux::new(clock.clone(), stats.clone());
        let log = Arc::new(Log::default());
        let runner = SourceRunner {
            stream: StreamId(0),
            shown: "script".to_owned(),
            source: Box::new(Script(steps.into())),
            inlet: mux.add(StreamId(0), queue).expect("open"),
            reconnect: Reconnect { attempts_max, stall: STALL },
            frames_max: None,
            clock,
            seed: 7,
            events: log.clone(),
            stats,
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
            let slot = crate::SlotPool::new(1, 1).take(Duration::ZERO).expect("free");
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
    fn failures_are_forgotten_after_a_while() {
        let mut backoff = Backoff::new(None, 7);
        let mut lives = |from: u64, to: u64| {
            let seconds = |seconds: u64| Nanos(seconds * 1_000_000_000);
            backoff.live(seconds(from));
            backoff.lost(seconds(to));
            backoff.after(&SourceError::Transient(fault())).expect("it is tried for ever");
            (backoff.attempt, backoff.flaps)
        };
        assert_eq!([lives(0, 1), lives(2, 3), lives(4, 9), lives(10, 11)], [(1, 1), (2, 2), (1, 0), (2, 1)]);
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
