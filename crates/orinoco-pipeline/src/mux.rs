//! Bounded rings in, batches out.

mod core;

use std::fmt;
use std::sync::{Arc, PoisonError};

use orinoco_core::{Clock, Signal, StreamId};
use orinoco_telemetry::{DropCause, Stats};

use crate::Frame;
use crate::sync::{Mutex, MutexGuard};

pub use self::core::{Closed, MuxCore, Next, NextBatch, Offer, StreamQueue};

/// Collects the frames of a lane's streams and hands them out in batches, all of one group. Streams take turns, so that one
/// that comes in bursts delays the others by one frame, and not by all that it has waiting.
pub struct Mux {
    state: Mutex<State>,
    /// Wakes the lane.
    frame_came: Arc<dyn Signal>,
    clock: Arc<dyn Clock>,
    stats: Stats,
}

struct State {
    core: MuxCore,
    /// Wakes each stream's source that waits for room.
    room_came: Vec<(StreamId, Arc<dyn Signal>)>,
}

impl Mux {
    /// A mux without streams.
    pub fn new(clock: Arc<dyn Clock>, stats: Stats) -> Arc<Self> {
        let state = Mutex::new(State { core: MuxCore::default(), room_came: Vec::new() });
        Arc::new(Self { state, frame_came: clock.signal(), clock, stats })
    }

    /// Adds a stream, and returns the end into which its source pushes. Dropping that ends the stream.
    pub fn add(self: &Arc<Self>, stream: StreamId, queue: StreamQueue) -> Result<FrameSender, Closed> {
        let mut state = self.lock();
        state.core.add(stream, queue)?;
        let room_came = self.clock.signal();
        state.room_came.push((stream, Arc::clone(&room_came)));
        drop(state);
        self.frame_came.notify();
        Ok(FrameSender { mux: Arc::clone(self), stream, room_came })
    }

    /// Waits for what comes next, and fills `batch` where that is one. `None` when the last stream has left, or after
    /// [`Mux::close`]; no stream can be added from then on. One thread calls it, the lane's.
    pub fn next(&self, batch: &mut Vec<Frame>) -> Option<Next> {
        batch.clear();
        loop {
            let mut state = self.lock();
            let next = state.core.next(self.clock.now(), batch);
            state.wake_resumed();
            if let NextBatch::Ready(Next::Left(left)) = next {
                state.room_came.retain(|(stream, _)| *stream != left);
            }
            drop(state);
            match next {
                NextBatch::Ready(next) => return Some(next),
                NextBatch::Closed => return None,
                NextBatch::WaitUntil(until) => self.frame_came.wait(until),
            }
        }
    }

    /// Refuses further frames and drops those that wait, because nobody will take them.
    pub fn close(&self) {
        let mut state = self.lock();
        let dropped = state.core.close();
        state.wake_resumed();
        drop(state);
        for frame in dropped {
            self.stats.stream(frame.desc.stream).drop_frame(DropCause::Shutdown);
        }
        self.frame_came.notify();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Wakes the sources that may go on.
    fn wake_resumed(&mut self) {
        for resumed in self.core.resumed() {
            let room_came = self.room_came.iter().find(|(stream, _)| *stream == resumed);
            room_came.iter().for_each(|(_, room_came)| room_came.notify());
        }
    }
}

/// The end of one ring into which its source pushes.
pub struct FrameSender {
    mux: Arc<Mux>,
    stream: StreamId,
    /// Wakes its source.
    room_came: Arc<dyn Signal>,
}

impl FrameSender {
    /// Says how many frames the source can have delivered and not got back: see [`crate::Source::frames_max`].
    pub fn set_source_frames_max(&self, frames_max: Option<usize>) {
        self.mux.lock().core.set_source_frames_max(self.stream, frames_max);
    }

    /// Puts a frame into the ring, by the ring's policy when it is full. One thread calls it, the source's.
    pub fn push(&self, mut frame: Frame) -> Result<(), Closed> {
        let mux = &*self.mux;
        loop {
            let mut state = mux.lock();
            let offer = state.core.offer(self.stream, frame, mux.clock.now());
            drop(state);
            let dropped = match offer {
                Offer::Full(full) => {
                    frame = full;
                    self.room_came.wait(None);
                    continue;
                }
                Offer::Closed(frame) => {
                    mux.stats.stream(frame.desc.stream).drop_frame(DropCause::Shutdown);
                    return Err(Closed);
                }
                Offer::Accepted => None,
                Offer::Replaced(oldest) => Some((oldest, DropCause::DropOldest)),
                Offer::Refused(newest) => Some((newest, DropCause::DropNewest)),
            };
            mux.frame_came.notify();
            if let Some((frame, cause)) = dropped {
                mux.stats.stream(frame.desc.stream).drop_frame(cause);
            }
            return Ok(());
        }
    }
}

impl Drop for FrameSender {
    fn drop(&mut self) {
        self.mux.lock().core.end(self.stream);
        self.mux.frame_came.notify();
    }
}

impl fmt::Debug for FrameSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inlet(stream {})", self.stream)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
mod tests {
    use super::*;
    use crate::{MonotonicClock, Slot, SlotPool};
    use orinoco_core::{DropPolicy, FrameDesc, Nanos, PixelFormat};
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
    ) -> (Arc<Mux>, Vec<FrameSender>, Stats) {
        let batch_wait = Duration::from_millis(wait_ms);
        let queue = StreamQueue { group: 0, batch_max, frames_max, policy, batch_wait };
        let stats = Stats::new(streams as usize);
        let mux = Mux::new(Arc::new(MonotonicClock::default()), stats.clone());
        let inlets = (0..streams).map(|s| mux.add(StreamId(s), queue).expect("open")).collect();
        assert_eq!(mux.next(&mut Vec::new()), Some(Next::Joined));
        (mux, inlets, stats)
    }

    fn drain(mux: &Mux) -> Vec<Vec<u64>> {
        let mut batch = Vec::new();
        let mut batches = Vec::new();
        while let Some(next) = mux.next(&mut batch) {
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
            let (mux, inlets, stats) = mux(policy, 2, 1, 1, 0);
            (0..3).for_each(|seq| inlets[0].push(frame(0, seq)).expect("open"));
            drop(inlets);
            assert_eq!(drain(&mux), kept);
            assert_eq!(stats.stream(StreamId(0)).dropped(cause), 1);
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
        let (mux, inlets, stats) = mux(DropPolicy::Block, 1, 1, 1, 0);
        inlets[0].push(frame(0, 0)).expect("open");
        let source = std::thread::spawn(move || inlets[0].push(frame(0, 1)).is_err());
        mux.close();
        assert!(source.join().expect("the source ends"));
        assert_eq!(stats.stream(StreamId(0)).dropped(DropCause::Shutdown), 2);
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
        assert_eq!(mux.next(&mut batch), Some(Next::Batch(0)));
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
        assert_eq!((mux.next(&mut batch), batch.len()), (Some(Next::Batch(0)), SLOTS));
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
        assert_eq!((mux.next(&mut batch), batch.len()), (Some(Next::Batch(0)), SLOTS));
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
        assert_eq!(mux.next(&mut batch), Some(Next::Batch(0)));
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
        let (mux, mut inlets, _) = mux(DropPolicy::Block, 8, 2, 1, 0);
        let mut batch = Vec::new();
        inlets[0].push(frame(0, 0)).expect("open");
        drop(inlets.remove(0));
        assert_eq!(mux.next(&mut batch), Some(Next::Batch(0)), "what it pushed is handed out first");
        assert_eq!(mux.next(&mut batch), Some(Next::Left(StreamId(0))));
        let batch_wait = Duration::ZERO;
        let queue =
            StreamQueue { group: 7, batch_max: 1, frames_max: 1, policy: DropPolicy::Block, batch_wait };
        let late = mux.add(StreamId(2), queue).expect("a stream is left");
        late.push(frame(2, 5)).expect("open");
        assert_eq!(mux.next(&mut batch), Some(Next::Joined), "before its first frame");
        assert_eq!(mux.next(&mut batch), Some(Next::Batch(7)));
        drop((inlets, late));
        assert_eq!(mux.next(&mut batch), Some(Next::Left(StreamId(1))));
        assert_eq!(mux.next(&mut batch), Some(Next::Left(StreamId(2))));
        assert_eq!(mux.next(&mut batch), None);
        assert!(mux.add(StreamId(3), queue).is_err(), "the lane has ended");
    }
}
