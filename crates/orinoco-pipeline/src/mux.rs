//! Bounded rings in, batches out.

mod frame_ring;
mod mux_core;
mod suspensions;

use std::fmt;
use std::sync::{Arc, PoisonError};

use orinoco_core::{Clock, Nanos, Signal, StreamId};
use orinoco_telemetry::{DropCause, Queue, QueueStep, StreamTelemetry};

use crate::Frame;
use crate::request::{Request, RequestRefusal, Unserved};
use crate::sync::{Mutex, MutexGuard};

pub use frame_ring::StreamQueue;
pub use mux_core::{Closed, MuxCore, Next, NextBatch, Offer};
pub use suspensions::{LateAnswer, SUSPENDED_FRAMES_MAX, SUSPENSION_MAX, SuspensionError, Ticket};

/// Collects the frames of a lane's streams and hands them out in batches, all of one group. Streams take turns, so that one
/// that comes in bursts delays the others by one frame, and not by all that it has waiting.
pub struct Mux {
    state: Mutex<State>,
    /// Wakes the lane.
    frame_came: Arc<dyn Signal>,
    clock: Arc<dyn Clock>,
}

struct State {
    core: MuxCore,
    streams: Vec<MuxStream>,
}

struct MuxStream {
    /// Wakes its source, which waits for room.
    room_came: Arc<dyn Signal>,
    telemetry: StreamTelemetry,
}

impl Mux {
    /// A mux without streams.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let state = Mutex::new(State { core: MuxCore::default(), streams: Vec::new() });
        Arc::new(Self { state, frame_came: clock.signal(), clock })
    }

    /// Adds a stream, and returns the end into which its source pushes. Dropping that ends the stream.
    pub fn add(
        self: &Arc<Self>,
        telemetry: StreamTelemetry,
        queue: StreamQueue,
        batch_max: usize,
    ) -> Result<FrameSender, Closed> {
        let mut state = self.lock();
        state.core.add(telemetry.id(), queue, batch_max)?;
        let room_came = self.clock.signal();
        state.streams.push(MuxStream { room_came: Arc::clone(&room_came), telemetry: telemetry.clone() });
        drop(state);
        self.frame_came.notify();
        Ok(FrameSender { mux: Arc::clone(self), room_came, telemetry })
    }

    /// Lets the lane take plans that replace others.
    pub fn exchange(&self) -> Result<(), Closed> {
        self.lock().core.exchange()?;
        self.frame_came.notify();
        Ok(())
    }

    /// Sets the maximum batch sizes of streams, in frames.
    pub fn set_batches(&self, batches: &[(StreamId, usize)]) {
        let mut state = self.lock();
        batches.iter().for_each(|(stream, batch_max)| state.core.set_batch_max(*stream, *batch_max));
    }

    /// Adds a request, or answers it as refused.
    pub fn request(&self, request: Request) -> Result<(), RequestRefusal> {
        let mut state = self.lock();
        let offered = state.core.offer_request(request, self.clock.now());
        let unserved = state.core.take_unserved();
        drop(state);
        refuse(unserved);
        self.frame_came.notify();
        offered
    }

    /// Takes the request that [`Mux::next`] has handed out.
    pub fn take_request(&self) -> Option<Request> {
        self.lock().core.take_request()
    }

    /// Returns a ticket for a step that may be suspended.
    pub(crate) fn ticket(&self) -> Ticket {
        self.lock().core.ticket()
    }

    /// Forgets a ticket whose step was not suspended.
    pub(crate) fn forget(&self, ticket: Ticket) {
        self.lock().core.forget(ticket);
    }

    /// Suspends the step of a ticket until that is answered, or until this time, and holds frames whose results wait for it.
    pub(crate) fn suspend(&self, ticket: Ticket, until: Nanos, frames: &[Frame]) {
        let core = &mut self.lock().core;
        frames.iter().for_each(|frame| core.hold(frame.desc.stream));
        core.suspend(ticket, until);
    }

    /// Resumes the step of a ticket; false if it does not wait any more.
    pub(crate) fn resume(&self, ticket: Ticket, answer: LateAnswer) -> bool {
        let is_accepted = self.lock().core.resume(ticket, answer);
        self.frame_came.notify();
        is_accepted
    }

    /// Takes the answer to the step that [`Mux::next`] has resumed; `None` if it came too late.
    pub(crate) fn take_late_answer(&self) -> Option<LateAnswer> {
        self.lock().core.take_late_answer()
    }

    /// Holds a frame of a stream, behind frames that wait for an answer.
    pub(crate) fn hold(&self, stream: StreamId) {
        self.lock().core.hold(stream);
    }

    /// Releases frames of a stream that wait no longer.
    pub(crate) fn release(&self, stream: StreamId, frames: usize) {
        self.lock().core.release(stream, frames);
    }

    /// Waits for what comes next, and fills `batch` where that is one; returns it with the time at which it was decided.
    /// `None` when the last stream has left, or after [`Mux::close`]; no stream can be added from then on. One thread calls
    /// it, the lane's.
    pub fn next(&self, batch: &mut Vec<Frame>) -> Option<(Next, Nanos)> {
        batch.clear();
        loop {
            let mut state = self.lock();
            let now = self.clock.now();
            let next = state.core.next(now, batch);
            let unserved = state.core.take_unserved();
            state.wake_resumed();
            if let NextBatch::Ready(Next::Left(left)) = next {
                state.streams.retain(|stream| stream.telemetry.id() != left);
            }
            drop(state);
            refuse(unserved);
            match next {
                NextBatch::Ready(next) => return Some((next, now)),
                NextBatch::Closed => return None,
                NextBatch::WaitUntil(until) => self.frame_came.wait(until),
            }
        }
    }

    /// Refuses further frames and drops those that wait, because nobody will take them.
    pub fn close(&self) {
        let mut state = self.lock();
        let dropped = state.core.close();
        let unserved = state.core.take_unserved();
        state.wake_resumed();
        let now = self.clock.now();
        for frame in dropped {
            let stream = state.stream(frame.desc.stream).expect("a ring leaves after its frames");
            stream.telemetry.drop_frame(frame.desc.seq, DropCause::Shutdown, now);
        }
        drop(state);
        refuse(unserved);
        self.frame_came.notify();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers requests that are not executed.
fn refuse(unserved: Vec<(Request, Unserved)>) {
    unserved.into_iter().for_each(|(request, why)| request.refuse(why));
}

impl State {
    /// Wakes the sources that may go on.
    fn wake_resumed(&mut self) {
        let Self { core, streams } = self;
        for resumed in core.resumed() {
            let stream = streams.iter().find(|stream| stream.telemetry.id() == resumed);
            stream.iter().for_each(|stream| stream.room_came.notify());
        }
    }

    fn stream(&self, stream: StreamId) -> Option<&MuxStream> {
        self.streams.iter().find(|of_mux| of_mux.telemetry.id() == stream)
    }
}

/// The end of one ring into which its source pushes.
pub struct FrameSender {
    mux: Arc<Mux>,
    /// Wakes its source.
    room_came: Arc<dyn Signal>,
    telemetry: StreamTelemetry,
}

impl FrameSender {
    /// Says how many frames the source can have delivered and not got back: see [`crate::Source::frames_max`].
    pub fn set_source_frames_max(&self, frames_max: Option<usize>) {
        self.mux.lock().core.set_source_frames_max(self.telemetry.id(), frames_max);
    }

    /// Puts a frame into the ring, by the ring's policy when it is full. One thread calls it, the source's.
    pub fn push(&self, mut frame: Frame) -> Result<(), Closed> {
        let Self { mux, telemetry, room_came } = self;
        let (seq, mut has_waited) = (frame.desc.seq, false);
        loop {
            let mut state = mux.lock();
            let now = mux.clock.now();
            let offer = state.core.offer(telemetry.id(), frame, now);
            drop(state);
            let (step, dropped) = match offer {
                Offer::Full(full) => {
                    frame = full;
                    if !std::mem::replace(&mut has_waited, true) {
                        telemetry.queue(seq, Queue::Ring, QueueStep::Waited, now);
                    }
                    room_came.wait(None);
                    continue;
                }
                Offer::Closed(frame) => {
                    telemetry.drop_frame(frame.desc.seq, DropCause::Shutdown, now);
                    return Err(Closed);
                }
                Offer::Accepted => (QueueStep::Accepted, None),
                Offer::Replaced(oldest) => (QueueStep::ReplacedOldest, Some((oldest, DropCause::DropOldest))),
                Offer::Refused(newest) => (QueueStep::Refused, Some((newest, DropCause::DropNewest))),
            };
            mux.frame_came.notify();
            telemetry.queue(seq, Queue::Ring, step, now);
            if let Some((frame, cause)) = dropped {
                telemetry.drop_frame(frame.desc.seq, cause, now);
            }
            return Ok(());
        }
    }
}

impl Drop for FrameSender {
    fn drop(&mut self) {
        self.mux.lock().core.end(self.telemetry.id());
        self.mux.frame_came.notify();
    }
}

impl fmt::Debug for FrameSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameSender(stream {})", self.telemetry.id())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
mod tests {
    use super::*;
    use crate::{MonotonicClock, Slot, SlotPool};
    use orinoco_core::{DropPolicy, FrameDesc, PixelFormat};
    use orinoco_telemetry::Telemetry;
    use std::time::{Duration, Instant};

    fn frame(stream: u32, seq: u64) -> Frame {
        let mut desc = FrameDesc::packed(PixelFormat::Gray8, 1, 1);
        desc.stream = StreamId(stream);
        desc.seq = seq;
        let slot = SlotPool::new(1, 1).try_take().expect("free");
        Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("fits")
    }

    fn mux(
        policy: DropPolicy,
        frames_max: usize,
        streams: u32,
        batch_max: usize,
        wait_ms: u64,
    ) -> (Arc<Mux>, Vec<FrameSender>, Telemetry) {
        let batch_wait = Duration::from_millis(wait_ms);
        let queue = StreamQueue { group: 0, frames_max, policy, batch_wait };
        let telemetry = Telemetry::new(streams as usize);
        let mux = Mux::new(Arc::new(MonotonicClock::default()));
        let add = |stream| mux.add(telemetry.stream(StreamId(stream)), queue, batch_max).expect("open");
        let inlets = (0..streams).map(add).collect();
        assert_eq!(next(&mux, &mut Vec::new()), Some(Next::Joined));
        (mux, inlets, telemetry)
    }

    fn next(mux: &Mux, batch: &mut Vec<Frame>) -> Option<Next> {
        mux.next(batch).map(|(next, _)| next)
    }

    fn drain(mux: &Mux) -> Vec<Vec<u64>> {
        let mut batch = Vec::new();
        let mut batches = Vec::new();
        while let Some(next) = next(mux, &mut batch) {
            if let Next::Batch(_) = next {
                batches.push(batch.iter().map(|f| f.desc.seq).collect());
            }
        }
        batches
    }

    #[test]
    fn a_full_ring_drops_by_its_policy_and_counts_it() {
        for (policy, kept, cause) in [
            (DropPolicy::DropOldest, vec![vec![1], vec![2]], DropCause::DropOldest),
            (DropPolicy::DropNewest, vec![vec![0], vec![1]], DropCause::DropNewest),
        ] {
            let (mux, inlets, telemetry) = mux(policy, 2, 1, 1, 0);
            (0..3).for_each(|seq| inlets[0].push(frame(0, seq)).expect("open"));
            drop(inlets);
            assert_eq!(drain(&mux), kept);
            assert_eq!(telemetry.stream(StreamId(0)).read(|fold| fold.dropped(cause)), 1);
        }
    }

    #[test]
    fn a_blocked_source_goes_on_when_there_is_room() {
        let (mux, inlets, _) = mux(DropPolicy::Block, 1, 1, 1, 0);
        let source =
            std::thread::spawn(move || (0..100).for_each(|seq| inlets[0].push(frame(0, seq)).expect("open")));
        assert_eq!(drain(&mux).concat(), (0..100).collect::<Vec<_>>());
        source.join().expect("the source ends");
    }

    #[test]
    fn closing_frees_a_blocked_source() {
        let (mux, inlets, telemetry) = mux(DropPolicy::Block, 1, 1, 1, 0);
        inlets[0].push(frame(0, 0)).expect("open");
        let source = std::thread::spawn(move || inlets[0].push(frame(0, 1)).is_err());
        mux.close();
        assert!(source.join().expect("the source ends"));
        assert_eq!(telemetry.stream(StreamId(0)).read(|fold| fold.dropped(DropCause::Shutdown)), 2);
    }

    #[test]
    fn a_batch_is_formed_when_full_or_when_nothing_more_comes() {
        let (mux, inlets, _) = mux(DropPolicy::Block, 8, 2, 4, 60_000);
        for seq in 0..3 {
            inlets[0].push(frame(0, seq)).expect("open");
            inlets[1].push(frame(1, 10 + seq)).expect("open");
        }
        drop(inlets);
        assert_eq!(drain(&mux), [vec![0, 10, 1, 11], vec![2, 12]]);
    }

    #[test]
    fn a_batch_that_cannot_be_filled_does_not_wait() {
        let (mux, inlets, _) = mux(DropPolicy::Block, 4, 1, 8, 60_000);
        (0..4).for_each(|seq| inlets[0].push(frame(0, seq)).expect("open"));
        let (mut batch, begin) = (Vec::new(), Instant::now());
        assert_eq!(next(&mux, &mut batch), Some(Next::Batch(0)));
        assert_eq!(batch.len(), 4);
        assert!(begin.elapsed() < Duration::from_secs(30), "its ring is full");
    }

    #[test]
    fn a_batch_larger_than_its_sources_slots_does_not_wait() {
        const SLOTS: usize = 4;
        let (mux, inlets, _) = mux(DropPolicy::Block, 16, 1, 8, 60_000);
        inlets[0].set_source_frames_max(Some(SLOTS));
        let pool = SlotPool::new(SLOTS, 1);
        let mut seq = 0;
        // As many as its source can make.
        let mut push_all = |pushed_max: usize| {
            for _ in 0..pushed_max {
                let Some(slot) = pool.try_take() else { return };
                let desc = FrameDesc::packed(PixelFormat::Gray8, 1, 1);
                let made =
                    Frame::new(FrameDesc { seq, ..desc }, Slot::Owned(slot), Nanos(0)).expect("it fits");
                inlets[0].push(made).expect("open");
                seq += 1;
            }
        };
        let is_due = |mux: &Mux| mux.lock().core.due(mux.clock.now()) == Some(0);
        let mut batch = Vec::new();
        push_all(SLOTS - 1);
        assert!(!is_due(&mux), "its source has one more slot");
        push_all(1);
        assert!(is_due(&mux));
        assert_eq!((next(&mux, &mut batch), batch.len()), (Some(Next::Batch(0)), SLOTS));
        // A sink holds one.
        let held = batch.remove(0).share();
        batch.clear();
        push_all(SLOTS - 2);
        assert!(!is_due(&mux), "its source has one more slot");
        push_all(SLOTS);
        assert!(is_due(&mux), "three wait, and the sink may take its time with the fourth");
        drop(held);
        assert!(!is_due(&mux), "its source goes on");
        push_all(SLOTS);
        assert_eq!((next(&mux, &mut batch), batch.len()), (Some(Next::Batch(0)), SLOTS));
    }

    #[test]
    fn streams_that_share_a_batch_fill_it_from_all_their_slots() {
        let (mux, inlets, _) = mux(DropPolicy::Block, 16, 2, 8, 60_000);
        inlets.iter().for_each(|frame_sender| frame_sender.set_source_frames_max(Some(2)));
        let is_due = |mux: &Mux| mux.lock().core.due(mux.clock.now()) == Some(0);
        for seq in 0..2 {
            inlets[0].push(frame(0, seq)).expect("open");
        }
        assert!(!is_due(&mux), "the other's frames may fill it");
        for seq in 10..12 {
            assert!(!is_due(&mux));
            inlets[1].push(frame(1, seq)).expect("open");
        }
        assert!(is_due(&mux));
    }

    #[test]
    fn a_batch_goes_out_at_its_deadline() {
        let (mux, inlets, _) = mux(DropPolicy::Block, 8, 1, 4, 20);
        inlets[0].push(frame(0, 0)).expect("open");
        let mut batch = Vec::new();
        assert_eq!(next(&mux, &mut batch), Some(Next::Batch(0)));
        assert_eq!(batch.len(), 1);
    }

    #[test]
    fn a_burst_of_one_stream_does_not_hold_up_another() {
        let (mux, inlets, _) = mux(DropPolicy::Block, 8, 2, 1, 0);
        for seq in 0..4 {
            inlets[0].push(frame(0, seq)).expect("open");
        }
        inlets[1].push(frame(1, 10)).expect("open");
        drop(inlets);
        assert_eq!(drain(&mux).concat(), [0, 10, 1, 2, 3]);
    }

    #[test]
    fn streams_come_and_go() {
        let (mux, mut inlets, telemetry) = mux(DropPolicy::Block, 8, 2, 1, 0);
        let mut batch = Vec::new();
        inlets[0].push(frame(0, 0)).expect("open");
        drop(inlets.remove(0));
        assert_eq!(next(&mux, &mut batch), Some(Next::Batch(0)), "what it pushed is handed out first");
        assert_eq!(next(&mux, &mut batch), Some(Next::Left(StreamId(0))));
        let batch_wait = Duration::ZERO;
        let queue = StreamQueue { group: 7, frames_max: 1, policy: DropPolicy::Block, batch_wait };
        let of_late = telemetry.stream(telemetry.add_stream("late"));
        let late = mux.add(of_late, queue, 1).expect("a stream is left");
        late.push(frame(2, 5)).expect("open");
        assert_eq!(next(&mux, &mut batch), Some(Next::Joined), "before its first frame");
        assert_eq!(next(&mux, &mut batch), Some(Next::Batch(7)));
        drop((inlets, late));
        assert_eq!(next(&mux, &mut batch), Some(Next::Left(StreamId(1))));
        assert_eq!(next(&mux, &mut batch), Some(Next::Left(StreamId(2))));
        assert_eq!(next(&mux, &mut batch), None);
        assert!(mux.add(telemetry.stream(StreamId(3)), queue, 1).is_err(), "the lane has ended");
    }
}
