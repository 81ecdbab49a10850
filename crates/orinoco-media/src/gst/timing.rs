use std::thread::ThreadId;
use std::time::Duration;

use orinoco_core::Nanos;

/// Maximum number of frames between a decoder's entry and our taking them: H.264 and H.265 reorder at most 16, and
/// hardware decoders queue as many again. A frame beyond this only has no decode time.
const FRAMES_MAX: usize = 64;

/// Decode times: the times at which each frame entered and left the decoder. A ring of fixed size, so timing never
/// allocates.
///
/// A software decoder passes on its frames in its own thread, so it stands still while a full queue blocks that thread.
/// For files, which are read as fast as the models process them, that is most of the time between entry and exit;
/// [`ThreadHold::Subtracted`] subtracts it, together with the wait for the next input.
pub(super) struct DecodeTimes {
    ring: [Option<PendingFrame>; FRAMES_MAX],
    next: usize,
    rule: ThreadHold,
    held: Duration,
    left: Option<(ThreadId, Nanos)>,
}

/// Whether the time in which a decoder's thread is blocked counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadHold {
    /// It counts: the result is the delay of live frames.
    Counted,
    /// It does not count: the result is the work on a file's frames.
    Subtracted,
}

/// Frame in the decoder, or not yet taken from it.
#[derive(Clone, Copy)]
struct PendingFrame {
    packet: u64,
    /// Presentation time, once the frame has left the decoder.
    pts: Option<u64>,
    entered: Nanos,
    held: Duration,
    took: Option<Duration>,
}

impl DecodeTimes {
    pub(super) fn new(rule: ThreadHold) -> Self {
        Self { ring: [None; FRAMES_MAX], next: 0, rule, held: Duration::ZERO, left: None }
    }

    /// Removes all frames.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.rule);
    }

    /// Records that the packet with this number enters the decoder.
    pub(super) fn enter(&mut self, packet: u64, thread: ThreadId, now: Nanos) {
        self.note_held(thread, now);
        self.ring[self.next] =
            Some(PendingFrame { packet, pts: None, entered: now, held: self.held, took: None });
        self.next = (self.next + 1) % FRAMES_MAX;
    }

    /// Records that the decoded frame of a packet leaves the decoder, to be shown at `pts`.
    pub(super) fn leave(&mut self, packet: u64, pts: u64, thread: ThreadId, now: Nanos) {
        self.note_held(thread, now);
        let held = self.held;
        if let Some(frame) = self.entry(packet) {
            frame.pts = Some(pts);
            let held = held.saturating_sub(frame.held);
            frame.took.get_or_insert(now.since(frame.entered).saturating_sub(held));
        }
        self.left = Some((thread, now));
    }

    /// Returns the decode time of the frame, only once.
    pub(super) fn take(&mut self, pts: u64) -> Option<Duration> {
        let index = self.ring.iter().position(|entry| entry.is_some_and(|frame| frame.pts == Some(pts)))?;
        self.ring[index].take()?.took
    }

    /// Counts blocked time when the thread that last passed on a frame comes back. Hardware decoders take and give in
    /// different threads, and continue to work meanwhile.
    fn note_held(&mut self, thread: ThreadId, now: Nanos) {
        if let Some((_, since)) = self.left.take_if(|(left, _)| *left == thread)
            && self.rule == ThreadHold::Subtracted
        {
            self.held += now.since(since);
        }
    }

    fn entry(&mut self, packet: u64) -> Option<&mut PendingFrame> {
        self.ring.iter_mut().flatten().find(|frame| frame.packet == packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records frames (PTS, enters or leaves, time), and compares the nanoseconds of the first three.
    fn check(rule: ThreadHold, steps: &[(u64, bool, u64)], expected: [Option<u128>; 3]) {
        let mut times = DecodeTimes::new(rule);
        let thread = std::thread::current().id();
        for &(pts, enters, now) in steps {
            match enters {
                true => times.enter(pts, thread, Nanos(now)),
                false => times.leave(pts, pts, thread, Nanos(now)),
            }
        }
        assert_eq!([0, 1, 2].map(|pts| times.take(pts).map(|time| time.as_nanos())), expected);
        assert_eq!(times.take(0), None);
    }

    #[test]
    fn frames_are_timed_by_their_pts_whatever_their_order() {
        let steps = [(0, true, 10), (2, true, 20), (1, true, 30), (1, true, 35)];
        let leave = [(0, false, 45), (1, false, 50), (2, false, 60), (9, false, 70)];
        check(ThreadHold::Counted, &[steps, leave].concat(), [Some(35), Some(20), Some(40)]);
    }

    #[test]
    fn a_held_thread_is_not_work() {
        let steps =
            [(0, true, 0), (2, true, 10), (0, false, 15), (1, true, 115), (1, false, 120), (2, false, 220)];
        check(ThreadHold::Subtracted, &steps, [Some(15), Some(5), Some(10)]);
        check(ThreadHold::Counted, &steps, [Some(15), Some(5), Some(210)]);
    }

    #[test]
    fn what_never_leaves_is_forgotten() {
        let mut times = DecodeTimes::new(ThreadHold::Counted);
        let thread = std::thread::current().id();
        for pts in 0..1000 {
            times.enter(pts, thread, Nanos(pts));
        }
        times.leave(1, 1, thread, Nanos(2000));
        times.leave(999, 999, thread, Nanos(2000));
        assert_eq!(times.take(1), None);
        assert_eq!(times.take(999), Some(Duration::from_nanos(1001)));
    }
}
