use std::collections::VecDeque;
use std::time::Duration;

use orinoco_core::{DropPolicy, Nanos};
use orinoco_telemetry::DropCause;

use super::frame_result::FrameResult;

/// Frames that may wait for a stream's sinks; each holds a decoder's buffer, so few.
pub(super) const OUTCOMES_MAX: usize = 4;
/// Longest time for which a lane waits for room after a request to stop. An output that is stuck must not hold up the others'
/// end.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(5);
/// Period in which the outputs of an offline source are told so.
const OFFLINE_EVERY: Duration = Duration::from_secs(1);
/// Period in which sinks make visible what they have written. Results are to be there within a second, and a write that comes
/// just before one flush is seen to by the next two.
pub(super) const FLUSH_EVERY: Duration = Duration::from_millis(400);
/// Flushes after the last write. The second finds what the first was too early for: an encoder's frames, say.
pub(super) const FLUSHES_MAX: u32 = 2;

/// The sinks of one stream without threads: what waits for them, and when they write, flush and show that the source is
/// away. The lane offers outcomes, the sinks' thread asks what comes next.
pub struct SinkCore {
    frame_results: VecDeque<FrameResult>,
    policy: DropPolicy,
    /// When a lane that waits for room stops waiting: set while one does, once the end is asked for.
    room_by: Option<Nanos>,
    /// The sinks made no room although the end was asked for.
    is_stuck: bool,
    /// Nothing will be offered any more.
    is_ended: bool,
    /// Nobody takes outcomes any more.
    is_abandoned: bool,
    offline_due: Nanos,
    flushes: FlushTimes,
    /// Something was written just now: a flush that is due goes before the next write.
    has_written: bool,
}

/// Result of offering a frame's result to the sinks.
#[derive(Debug)]
pub enum ResultOffer {
    /// It waits for the sinks.
    Accepted,
    /// There is no room, or the sinks have failed, and this outcome is dropped for that cause.
    Refused(FrameResult, DropCause),
    /// There is no room. The lane waits until there is, until the end is asked for, or until this time, and then offers it
    /// again.
    Full(FrameResult, Option<Nanos>),
}

/// Next thing for the sinks to do.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for each frame")]
pub enum SinkNext {
    /// Write this outcome.
    Write(FrameResult),
    /// Show that the source is away, if it is.
    CheckOffline,
    /// Make visible what was written.
    Flush,
    /// Nothing before this time, or before an outcome or the end comes.
    WaitUntil(Nanos),
    /// Complete the outputs: nothing more will come.
    Finish,
}

/// Result of a [`SinkNext`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkResult {
    /// They wrote an outcome.
    Wrote,
    /// They showed that the source is away.
    WroteOffline,
    /// The source is not away.
    NotOffline,
}

impl SinkCore {
    /// Nothing waits; the first look whether the source is away comes after a second.
    pub fn new(policy: DropPolicy, now: Nanos) -> Self {
        Self {
            frame_results: VecDeque::with_capacity(OUTCOMES_MAX),
            policy,
            room_by: None,
            is_stuck: false,
            is_ended: false,
            is_abandoned: false,
            offline_due: now + OFFLINE_EVERY,
            flushes: FlushTimes::default(),
            has_written: false,
        }
    }

    /// Takes an outcome from the lane. A stream that may drop frames never waits, so that slow sinks cannot hold a lane.
    /// Others wait, but not without end once they are `stopping`.
    pub fn offer(&mut self, frame_result: FrameResult, stopping: bool, now: Nanos) -> ResultOffer {
        if !self.is_abandoned && self.frame_results.len() < OUTCOMES_MAX {
            self.frame_results.push_back(frame_result);
            self.room_by = None;
            return ResultOffer::Accepted;
        }
        let waits = self.policy == DropPolicy::Block && !self.is_stuck && !self.is_abandoned;
        if !waits {
            let cause = if self.is_abandoned { DropCause::SinkFailed } else { DropCause::SinkBehind };
            return ResultOffer::Refused(frame_result, cause);
        }
        if stopping {
            let room_by = *self.room_by.get_or_insert(now + ROOM_WAIT_MAX);
            if now >= room_by {
                self.is_stuck = true;
                return ResultOffer::Refused(frame_result, DropCause::SinkBehind);
            }
        }
        ResultOffer::Full(frame_result, self.room_by)
    }

    /// Ends the stream: what waits is still written.
    pub fn end(&mut self) {
        self.is_ended = true;
    }

    /// The sinks' thread is gone: returns what waits, and refuses the rest.
    pub fn abandon(&mut self) -> VecDeque<FrameResult> {
        self.is_abandoned = true;
        std::mem::take(&mut self.frame_results)
    }

    /// Decides what the sinks do now.
    pub fn next(&mut self, now: Nanos) -> SinkNext {
        if std::mem::take(&mut self.has_written) && self.flushes.take(now) {
            return SinkNext::Flush;
        }
        if let Some(frame_result) = self.frame_results.pop_front() {
            return SinkNext::Write(frame_result);
        }
        if self.is_ended {
            return SinkNext::Finish;
        }
        if now >= self.offline_due {
            return SinkNext::CheckOffline;
        }
        if self.flushes.take(now) {
            return SinkNext::Flush;
        }
        SinkNext::WaitUntil(self.flushes.due.map_or(self.offline_due, |due| due.min(self.offline_due)))
    }

    /// Takes what the sinks have done. A flush has no result.
    pub fn finished(&mut self, result: SinkResult, now: Nanos) {
        self.offline_due = now + OFFLINE_EVERY;
        self.has_written = true;
        if result != SinkResult::NotOffline {
            self.flushes.after_write(now);
        }
    }

    /// Number of outcomes that wait.
    pub fn waiting(&self) -> usize {
        self.frame_results.len()
    }
}

/// When sinks flush.
#[derive(Clone, Copy, Default)]
struct FlushTimes {
    due: Option<Nanos>,
    left: u32,
}

impl FlushTimes {
    /// Notes that something was written.
    fn after_write(&mut self, now: Nanos) {
        self.left = FLUSHES_MAX;
        self.due.get_or_insert(now + FLUSH_EVERY);
    }

    /// Whether it is time for one; it counts as done then.
    fn take(&mut self, now: Nanos) -> bool {
        if self.due.is_none_or(|due| now < due) {
            return false;
        }
        self.left = self.left.saturating_sub(1);
        self.due = (self.left > 0).then(|| now + FLUSH_EVERY);
        true
    }
}

#[cfg(test)]
mod tests {
    use orinoco_core::{FrameDesc, PixelFormat};

    use super::*;
    use crate::{Frame, Slot, SlotPool};

    const START: Nanos = Nanos(7_000_000_000);

    fn frame_result() -> FrameResult {
        let slot = SlotPool::new(1, 1).try_take().expect("free");
        let desc = FrameDesc::packed(PixelFormat::Gray8, 1, 1);
        let frame = Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("fits");
        FrameResult { frame, found: Vec::new(), finished: Nanos(0) }
    }

    /// The answer to a lane that offers one more result than there is room for.
    fn offer(core: &mut SinkCore, stopping: bool, now: Nanos) -> String {
        match core.offer(frame_result(), stopping, now) {
            ResultOffer::Accepted => "accepted".to_owned(),
            ResultOffer::Refused(_, cause) => format!("refused: {cause:?}"),
            ResultOffer::Full(_, until) => format!("full until {:?}", until.map(|until| until.since(START))),
        }
    }

    fn full(policy: DropPolicy) -> SinkCore {
        let mut core = SinkCore::new(policy, START);
        for _ in 0..OUTCOMES_MAX {
            assert_eq!(offer(&mut core, false, START), "accepted");
        }
        core
    }

    /// The sinks' next action, with the time since the start.
    fn next(core: &mut SinkCore, now: Nanos) -> String {
        match core.next(now) {
            SinkNext::Write(_) => "write".to_owned(),
            SinkNext::CheckOffline => "check offline".to_owned(),
            SinkNext::Flush => "flush".to_owned(),
            SinkNext::WaitUntil(until) => format!("wait until {:?}", until.since(START)),
            SinkNext::Finish => "finish".to_owned(),
        }
    }

    #[test]
    fn a_lane_that_is_to_stop_waits_five_seconds_for_room() {
        let mut core = full(DropPolicy::Block);
        let one = Duration::from_secs(1);
        assert_eq!(offer(&mut core, false, START), "full until None");
        assert_eq!(offer(&mut core, true, START + one), "full until Some(6s)");
        assert_eq!(offer(&mut core, true, START + 5 * one), "full until Some(6s)");
        assert_eq!(offer(&mut core, true, START + 6 * one), "refused: SinkBehind");
        // Once stuck, nobody waits again.
        assert_eq!(offer(&mut core, false, START + 6 * one), "refused: SinkBehind");
    }

    #[test]
    fn room_ends_the_wait_of_a_lane_that_is_to_stop() {
        let mut core = full(DropPolicy::Block);
        assert_eq!(offer(&mut core, true, START), "full until Some(5s)");
        assert_eq!(next(&mut core, START), "write");
        assert_eq!(offer(&mut core, true, START), "accepted");
        let later = START + Duration::from_secs(7);
        assert_eq!(offer(&mut core, true, later), "full until Some(12s)");
    }

    #[test]
    fn a_stream_that_may_drop_frames_never_waits() {
        let mut core = full(DropPolicy::DropOldest);
        assert_eq!(offer(&mut core, false, START), "refused: SinkBehind");
        assert_eq!(core.abandon().len(), OUTCOMES_MAX);
        assert_eq!(offer(&mut core, false, START), "refused: SinkFailed");
    }

    #[test]
    fn an_offline_source_is_shown_once_a_second() {
        let mut core = SinkCore::new(DropPolicy::Block, START);
        let ms = |ms| START + Duration::from_millis(ms);
        assert_eq!(next(&mut core, ms(999)), "wait until 1s");
        assert_eq!(next(&mut core, ms(1000)), "check offline");
        core.finished(SinkResult::NotOffline, ms(1010));
        assert_eq!(next(&mut core, ms(1010)), "wait until 2.01s");
        assert_eq!(next(&mut core, ms(2009)), "wait until 2.01s");
        assert_eq!(next(&mut core, ms(2010)), "check offline");
    }

    #[test]
    fn two_flushes_follow_the_last_write() {
        let mut core = SinkCore::new(DropPolicy::Block, START);
        let ms = |ms| START + Duration::from_millis(ms);
        core.finished(SinkResult::Wrote, ms(100));
        assert_eq!(next(&mut core, ms(100)), "wait until 500ms");
        // A second write does not put the flush off.
        core.finished(SinkResult::Wrote, ms(300));
        assert_eq!(next(&mut core, ms(300)), "wait until 500ms");
        assert_eq!(next(&mut core, ms(500)), "flush");
        assert_eq!(next(&mut core, ms(500)), "wait until 900ms");
        assert_eq!(next(&mut core, ms(900)), "flush");
        assert_eq!(next(&mut core, ms(900)), "wait until 1.3s");
    }
}
