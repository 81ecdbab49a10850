use std::collections::VecDeque;
use std::time::Duration;

use orinoco_core::{Diagnosis, Nanos, Rng, codes};
use orinoco_telemetry::SourceState;

use crate::SourceError;

/// The first wait before reopening; short, since most losses are a dropped connection.
const BACKOFF_FIRST: Duration = Duration::from_millis(200);
/// The longest wait: a camera that comes back is seen again within this and its own start-up time.
const BACKOFF_MAX: Duration = Duration::from_millis(1000);
/// Doublings of the first wait, which are past the longest one, and few enough to be counted in 32 bits.
const DOUBLINGS_MAX: u32 = 8;
/// A source that was live for less was not really back: its loss counts as one more failed attempt.
const LIVE_MIN: Duration = Duration::from_secs(5);
/// Longest time for which one poll of a source may wait, so that a request to stop is seen in time.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// The supervision of one source without threads: connecting, live, stalled, backing off, ended. [`SourceSupervisor::next`]
/// says what to do with the source, [`SourceSupervisor::finished`] takes what came of it.
pub struct SourceSupervisor {
    /// Its source as messages show it, without secrets.
    shown: String,
    reconnect: Reconnect,
    frames_max: Option<u64>,
    backoff: Backoff,
    state: State,
    stopping: bool,
    /// The next frame's number.
    seq: u64,
    /// Frames delivered.
    delivered: u64,
    /// When it was lost, if it was live before and is not now.
    lost: Option<Nanos>,
    notices: VecDeque<SourceNotice>,
}

/// Rules for reconnecting a source.
#[derive(Clone, Copy, Debug)]
pub struct Reconnect {
    /// Attempts to reach a source that never delivered, before giving up; `None` tries without limit.
    pub attempts_max: Option<u32>,
    /// Silence after which a live source counts as stalled and is reopened.
    pub stall: Duration,
}

/// End of a source's thread.
#[derive(Clone, Debug)]
pub enum SourceEnd {
    /// The end of its input, or the number of frames asked for.
    Complete,
    /// Asked to stop.
    Stopped,
    /// Its lane has ended and accepts no more frames.
    LaneEnded,
    /// It failed for good.
    Failed(Diagnosis),
}

/// Next thing to do with a source.
#[derive(Clone, Debug)]
pub enum SourceNext {
    /// Open it.
    Open,
    /// Read it, which may wait for this long.
    Read(Duration),
    /// Push the frame that was read just now into its ring, as number `seq` of its stream.
    Push {
        /// The frame's number.
        seq: u64,
    },
    /// Close it.
    Close,
    /// Wait until this time, or until it is to stop.
    WaitUntil(Nanos),
    /// Nothing any more.
    Ended(SourceEnd),
}

/// Result of a [`SourceNext`].
#[derive(Clone, Debug)]
pub enum SourceResult {
    /// It is open.
    Opened,
    /// It is open, and has no frames: see [`crate::Source::has_frames`].
    OpenedWithoutFrames,
    /// It had a frame, and lost so many just before that one.
    Frame {
        /// Frames lost.
        lost: u64,
    },
    /// It had nothing yet: [`crate::Poll::Pending`].
    Silent,
    /// It had nothing yet, by our own doing: [`crate::Poll::Waiting`].
    Waited,
    /// No more frames will come.
    End,
    /// The frame is in its ring, or was dropped by the ring's policy.
    Pushed,
    /// The lane has ended and takes no more frames.
    RingClosed,
    /// It is closed.
    Closed,
    /// It could not be opened or read.
    Failed(SourceError),
}

/// A change that others count or report.
#[derive(Clone, Debug)]
pub enum SourceNotice {
    /// It entered another state.
    Entered {
        /// The state.
        state: SourceState,
        /// Reason, if it is a failure.
        why: Option<Diagnosis>,
        /// Whether it is worth a message: see [`is_news`].
        is_news: bool,
    },
    /// It will be opened again.
    Retry {
        /// Attempts since it last delivered for a while, counted from 1.
        attempt: u32,
        /// Time to the attempt.
        wait: Duration,
        /// Whether it is worth a message.
        is_news: bool,
    },
    /// It was lost and delivers again.
    Recovered {
        /// From its loss to its first frame.
        after: Duration,
        /// Whether it is worth a message.
        is_news: bool,
    },
}

enum State {
    /// Not open; to be opened next.
    Closed,
    Opening,
    Reading {
        /// When it last delivered, or was not to blame.
        heard: Nanos,
        live: bool,
    },
    Pushing {
        seq: u64,
    },
    Closing(Cause),
    BackingOff(Nanos),
    Ended(SourceEnd),
}

/// Reason for which a source is closed.
enum Cause {
    End(SourceEnd),
    Lost(SourceError),
}

impl SourceSupervisor {
    /// The supervision of a source that is not open yet. It completes after `frames_max` frames, where that is given; what
    /// was lost at the source does not count. `seed` is that of the back-off's jitter.
    pub fn new(shown: String, reconnect: Reconnect, frames_max: Option<u64>, seed: u64) -> Self {
        let backoff = Backoff::new(reconnect.attempts_max, seed);
        Self {
            shown,
            reconnect,
            frames_max,
            backoff,
            state: State::Closed,
            stopping: false,
            seq: 0,
            delivered: 0,
            lost: None,
            notices: VecDeque::new(),
        }
    }

    /// Asks it to end. What it reads just now is still delivered.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Decides what to do now. The answer stays the same until [`Self::finished`] has taken its result, or time has passed.
    pub fn next(&mut self, now: Nanos) -> SourceNext {
        if self.stopping {
            match self.state {
                State::Closed | State::Reading { .. } => self.end(SourceEnd::Stopped),
                State::BackingOff(_) => self.enter_ended(SourceEnd::Stopped),
                State::Opening | State::Pushing { .. } | State::Closing(_) | State::Ended(_) => {}
            }
        }
        if let State::BackingOff(until) = self.state
            && now >= until
        {
            self.state = State::Closed;
        }
        if let State::Closed = self.state {
            self.enter_again(self.backoff.attempt, SourceState::Connecting, None);
            self.state = State::Opening;
        }
        match &self.state {
            State::Closed | State::Opening => SourceNext::Open,
            State::Reading { .. } => SourceNext::Read(POLL_WAIT),
            State::Pushing { seq } => SourceNext::Push { seq: *seq },
            State::Closing(_) => SourceNext::Close,
            State::BackingOff(until) => SourceNext::WaitUntil(*until),
            State::Ended(end) => SourceNext::Ended(end.clone()),
        }
    }

    /// Takes the result of what was to be done.
    pub fn finished(&mut self, result: SourceResult, now: Nanos) {
        match (&mut self.state, result) {
            (State::Opening, SourceResult::Opened) => self.state = State::Reading { heard: now, live: false },
            (State::Opening, SourceResult::OpenedWithoutFrames) => {
                self.enter_live(now);
                self.state = State::Reading { heard: now, live: true };
            }
            (State::Opening | State::Reading { .. }, SourceResult::Failed(error)) => self.lose(error),
            (State::Reading { live, .. }, SourceResult::Frame { lost }) => {
                if !*live {
                    self.enter_live(now);
                }
                // A gap in the numbers is a loss at the source.
                self.seq += lost;
                self.state = State::Pushing { seq: self.seq };
                self.seq += 1;
                self.delivered += 1;
            }
            (State::Reading { heard, .. }, SourceResult::Silent) => {
                let silence = now.since(*heard);
                if silence >= self.reconnect.stall {
                    self.stall(silence);
                }
            }
            (State::Reading { heard, .. }, SourceResult::Waited) => *heard = now,
            (State::Reading { .. }, SourceResult::End) => self.end(SourceEnd::Complete),
            (State::Pushing { .. }, SourceResult::Pushed) => {
                if self.frames_max.is_some_and(|max| self.delivered >= max) {
                    self.end(SourceEnd::Complete);
                } else {
                    // Time spent blocked by our own ring is not the source's silence.
                    self.state = State::Reading { heard: now, live: true };
                }
            }
            (State::Pushing { .. }, SourceResult::RingClosed) => self.end(SourceEnd::LaneEnded),
            (State::Closing(_), SourceResult::Closed) => self.closed(now),
            (_, result) => panic!("nothing was asked that has the result {result:?}"),
        }
    }

    /// Takes the next change to be counted or reported.
    pub fn notice(&mut self) -> Option<SourceNotice> {
        self.notices.pop_front()
    }

    fn enter_live(&mut self, now: Nanos) {
        self.backoff.live(now);
        self.enter_again(self.backoff.flaps, SourceState::Live, None);
        if let Some(lost) = self.lost.take() {
            let (after, is_news) = (now.since(lost), is_news(self.backoff.flaps));
            self.notices.push_back(SourceNotice::Recovered { after, is_news });
        }
    }

    fn stall(&mut self, silence: Duration) {
        let cause = format!("no frame for {:.0} s", silence.as_secs_f64());
        let next = "check the camera or the file (for example with `gst-discoverer-1.0`)";
        let why = Diagnosis::new(&codes::SOURCE_UNREACHABLE, &self.shown, cause, next);
        self.enter_again(self.backoff.attempt, SourceState::Stalled, Some(why.clone()));
        self.lose(SourceError::Transient(why));
    }

    fn end(&mut self, end: SourceEnd) {
        self.state = State::Closing(Cause::End(end));
    }

    fn lose(&mut self, error: SourceError) {
        self.state = State::Closing(Cause::Lost(error));
    }

    fn closed(&mut self, now: Nanos) {
        let error = match std::mem::replace(&mut self.state, State::Closed) {
            State::Closing(Cause::Lost(error)) => error,
            State::Closing(Cause::End(end)) => return self.enter_ended(end),
            _ => unreachable!("it was closing"),
        };
        self.backoff.lost(now);
        if self.backoff.ever_live {
            self.lost.get_or_insert(now);
        }
        let Some(wait) = self.backoff.after(&error) else {
            return self.enter_ended(SourceEnd::Failed(error.diagnosis().clone()));
        };
        let attempt = self.backoff.attempt;
        self.enter_again(attempt, SourceState::BackingOff, Some(error.diagnosis().clone()));
        self.notices.push_back(SourceNotice::Retry { attempt, wait, is_news: is_news(attempt) });
        self.state = State::BackingOff(now + wait);
    }

    fn enter_ended(&mut self, end: SourceEnd) {
        let why = if let SourceEnd::Failed(why) = &end { Some(why.clone()) } else { None };
        self.enter_again(0, SourceState::Ended, why);
        self.state = State::Ended(end);
    }

    /// Enters a state in which it was `times` times already.
    fn enter_again(&mut self, times: u32, state: SourceState, why: Option<Diagnosis>) {
        self.notices.push_back(SourceNotice::Entered { state, why, is_news: is_news(times) });
    }
}

/// Whether something that has happened `times` times is worth a message: the first, second, fourth and so on, or a camera
/// that is away all night would fill the log.
fn is_news(times: u32) -> bool {
    times == 0 || times.is_power_of_two()
}

/// Delays before the next connection attempts, if there are to be any.
struct Backoff {
    attempts_max: Option<u32>,
    /// Failures since it was live for a while.
    attempt: u32,
    /// Those of them before which it was live for a moment.
    flaps: u32,
    live_since: Option<Nanos>,
    ever_live: bool,
    rng: Rng,
}

impl Backoff {
    fn new(attempts_max: Option<u32>, seed: u64) -> Self {
        let rng = Rng::with_seed(seed);
        Self { attempts_max, attempt: 0, flaps: 0, live_since: None, ever_live: false, rng }
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
        let doublings = (self.attempt - 1).min(DOUBLINGS_MAX);
        let full = (BACKOFF_FIRST * 2u32.pow(doublings)).min(BACKOFF_MAX);
        // Between half and the whole, so that cameras lost together do not come back together.
        Some(full / 2 + (full / 2).mul_f64(self.rng.f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault() -> Diagnosis {
        Diagnosis::new(&codes::SOURCE_UNREACHABLE, "test", "scripted", "nothing")
    }

    #[test]
    fn a_source_is_opened_again_when_its_back_off_ends() {
        let reconnect = Reconnect { attempts_max: None, stall: Duration::from_secs(5) };
        let mut supervisor = SourceSupervisor::new("test".to_owned(), reconnect, None, 7);
        let start = Nanos(9_000_000_000);
        assert!(matches!(supervisor.next(start), SourceNext::Open));
        supervisor.finished(SourceResult::Failed(SourceError::Transient(fault())), start);
        assert!(matches!(supervisor.next(start), SourceNext::Close));
        supervisor.finished(SourceResult::Closed, start);
        let SourceNext::WaitUntil(until) = supervisor.next(start) else { panic!("it must back off") };
        assert!(until >= start + BACKOFF_FIRST / 2 && until <= start + BACKOFF_FIRST);
        assert!(matches!(supervisor.next(Nanos(until.0 - 1)), SourceNext::WaitUntil(same) if same == until));
        assert!(matches!(supervisor.next(until), SourceNext::Open));
    }

    #[test]
    fn failures_are_forgotten_after_a_while() {
        let mut backoff = Backoff::new(None, 7);
        let mut lives = |from: u64, to: u64| {
            let seconds = |seconds: u64| Nanos(seconds * 1_000_000_000);
            backoff.live(seconds(from));
            backoff.lost(seconds(to));
            backoff.after(&SourceError::Transient(fault())).expect("it is tried without limit");
            (backoff.attempt, backoff.flaps)
        };
        assert_eq!([lives(0, 1), lives(2, 3), lives(4, 9), lives(10, 11)], [(1, 1), (2, 2), (1, 0), (2, 1)]);
    }

    #[test]
    fn attempts_wait_between_half_and_the_whole_of_a_time_that_doubles() {
        for seed in 0..100 {
            let mut backoff = Backoff::new(None, seed);
            for full in [200, 400, 800, 1000, 1000].map(Duration::from_millis) {
                let wait =
                    backoff.after(&SourceError::Transient(fault())).expect("it is tried without limit");
                assert!((full / 2..=full).contains(&wait), "{wait:?} of {full:?} with seed {seed}");
            }
        }
    }
}
