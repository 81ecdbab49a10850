//! Bounded rings in, batches out.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orinoco_core::{Clock, Nanos, StreamId};
use orinoco_telemetry::{DropCause, Stats};

use crate::Frame;

/// What happens to a frame that finds its ring full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropPolicy {
    /// The oldest waiting frame makes room: live video.
    DropOldest,
    /// The new frame is dropped: what waits is kept.
    DropNewest,
    /// The source waits: files, where every frame counts.
    Block,
}

/// One stream's ring.
#[derive(Clone, Copy, Debug)]
pub struct StreamQueue {
    /// The group of plans its frames run through.
    pub group: usize,
    /// Frames that may wait.
    pub frames_max: usize,
    /// What happens when more come.
    pub policy: DropPolicy,
    /// How long a frame waits for others to fill its batch.
    pub batch_wait: Duration,
}

/// The lane is gone: no more frames are taken.
#[derive(Clone, Copy, Debug)]
pub struct Closed;

/// Collects the frames of a lane's streams and hands them out in batches, all of one group, oldest first.
pub struct Mux {
    state: Mutex<State>,
    frame_came: Condvar,
    room_came: Condvar,
    groups: Vec<usize>,
    clock: Arc<dyn Clock>,
    stats: Stats,
}

struct State {
    rings: Vec<Ring>,
    closed: bool,
}

struct Ring {
    stream: StreamId,
    queue: StreamQueue,
    frames: VecDeque<(Nanos, Frame)>,
    open: bool,
}

impl Mux {
    /// A mux for `streams`, whose groups take at most `batch_max[group]` frames at once.
    pub fn new(
        streams: Vec<(StreamId, StreamQueue)>,
        batch_max: Vec<usize>,
        clock: Arc<dyn Clock>,
        stats: Stats,
    ) -> Arc<Self> {
        let rings = streams
            .into_iter()
            .map(|(stream, queue)| {
                assert!(queue.group < batch_max.len() && queue.frames_max > 0, "stream {stream}: {queue:?}");
                Ring { stream, queue, frames: VecDeque::with_capacity(queue.frames_max), open: true }
            })
            .collect();
        Arc::new(Self {
            state: Mutex::new(State { rings, closed: false }),
            frame_came: Condvar::new(),
            room_came: Condvar::new(),
            groups: batch_max,
            clock,
            stats,
        })
    }

    /// The end into which `stream`'s source pushes. Dropping it ends the stream.
    pub fn inlet(self: &Arc<Self>, stream: StreamId) -> Inlet {
        let ring = self.lock().rings.iter().position(|ring| ring.stream == stream);
        Inlet { mux: Arc::clone(self), ring: ring.expect("a mux is asked only for its own streams") }
    }

    /// Waits for the next batch and fills `batch` with it; returns its group, or `None` when every stream has ended
    /// and every frame was handed out.
    pub fn next_batch(&self, batch: &mut Vec<Frame>) -> Option<usize> {
        batch.clear();
        let mut state = self.lock();
        loop {
            let now = self.clock.now();
            let group = match state.ready(&self.groups, now) {
                Ready::Group(group) => group,
                Ready::Never => return None,
                Ready::At(None) => {
                    state = self.frame_came.wait(state).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                Ready::At(Some(deadline)) => {
                    let wait = deadline.since(now);
                    state =
                        self.frame_came.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
            };
            while batch.len() < self.groups[group] {
                let Some(frame) = state.pop_oldest(group) else { break };
                batch.push(frame);
            }
            drop(state);
            self.room_came.notify_all();
            return Some(group);
        }
    }

    /// Refuses further frames and drops those that wait, because nobody will take them.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        for ring in &mut state.rings {
            for _ in ring.frames.drain(..) {
                self.stats.stream(ring.stream).drop_frame(DropCause::Shutdown);
            }
        }
        drop(state);
        self.room_came.notify_all();
        self.frame_came.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Ready {
    /// A batch of this group can be taken now.
    Group(usize),
    /// Not before this time, or before another frame comes.
    At(Option<Nanos>),
    /// Nothing will come any more.
    Never,
}

impl State {
    fn ready(&self, groups: &[usize], now: Nanos) -> Ready {
        if self.closed {
            return Ready::Never;
        }
        let mut earliest: Option<Nanos> = None;
        let mut due: Option<(Nanos, usize)> = None;
        let mut open = false;
        for (group, batch_max) in groups.iter().enumerate() {
            let rings = || self.rings.iter().filter(|ring| ring.queue.group == group);
            open |= rings().any(|ring| ring.open);
            let waiting: usize = rings().map(|ring| ring.frames.len()).sum();
            let oldest = rings().filter_map(|ring| ring.frames.front().map(|(came, _)| *came)).min();
            let deadline = rings().filter_map(Ring::deadline).min();
            let (Some(oldest), Some(deadline)) = (oldest, deadline) else { continue };
            let no_more = !rings().any(|ring| ring.open);
            if waiting >= *batch_max || deadline <= now || no_more {
                due = Some(due.map_or((oldest, group), |seen| seen.min((oldest, group))));
            }
            earliest = Some(earliest.map_or(deadline, |seen| seen.min(deadline)));
        }
        match due {
            Some((_, group)) => Ready::Group(group),
            None if !open => Ready::Never,
            None => Ready::At(earliest),
        }
    }

    fn pop_oldest(&mut self, group: usize) -> Option<Frame> {
        let ring = self
            .rings
            .iter_mut()
            .filter(|ring| ring.queue.group == group && !ring.frames.is_empty())
            .min_by_key(|ring| ring.frames.front().map(|(came, _)| *came))?;
        ring.frames.pop_front().map(|(_, frame)| frame)
    }
}

impl Ring {
    fn deadline(&self) -> Option<Nanos> {
        self.frames.front().map(|(came, _)| *came + self.queue.batch_wait)
    }
}

/// The end of one ring into which its source pushes.
pub struct Inlet {
    mux: Arc<Mux>,
    ring: usize,
}

impl Inlet {
    /// Puts a frame into the ring, by the ring's policy when it is full.
    pub fn push(&self, frame: Frame) -> Result<(), Closed> {
        let mux = &*self.mux;
        let mut state = mux.lock();
        let dropped = loop {
            if state.closed {
                mux.stats.stream(frame.desc.stream).drop_frame(DropCause::Shutdown);
                return Err(Closed);
            }
            let ring = &mut state.rings[self.ring];
            if ring.frames.len() < ring.queue.frames_max {
                ring.frames.push_back((mux.clock.now(), frame));
                break None;
            }
            match ring.queue.policy {
                DropPolicy::Block => {
                    state = mux.room_came.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                DropPolicy::DropNewest => break Some((frame, DropCause::DropNewest)),
                DropPolicy::DropOldest => {
                    let oldest = ring.frames.pop_front().map(|(_, frame)| frame);
                    ring.frames.push_back((mux.clock.now(), frame));
                    break oldest.map(|frame| (frame, DropCause::DropOldest));
                }
            }
        };
        drop(state);
        mux.frame_came.notify_one();
        if let Some((frame, cause)) = dropped {
            mux.stats.stream(frame.desc.stream).drop_frame(cause);
        }
        Ok(())
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        self.mux.lock().rings[self.ring].open = false;
        self.mux.frame_came.notify_all();
    }
}

impl fmt::Debug for Inlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inlet(ring {})", self.ring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MonotonicClock, Slot, SlotPool};
    use orinoco_core::{FrameDesc, PixelFormat};

    fn frame(stream: u16, seq: u64) -> Frame {
        let mut desc = FrameDesc::packed(PixelFormat::Gray8, 1, 1);
        desc.stream = StreamId(stream);
        desc.seq = seq;
        let slot = SlotPool::new(1, 1).take(Duration::ZERO).expect("free");
        Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("fits")
    }

    fn mux(
        policy: DropPolicy,
        frames_max: usize,
        streams: u16,
        batch_max: usize,
        wait_ms: u64,
    ) -> (Arc<Mux>, Stats) {
        let queue = StreamQueue { group: 0, frames_max, policy, batch_wait: Duration::from_millis(wait_ms) };
        let stats = Stats::new(usize::from(streams));
        let rings = (0..streams).map(|s| (StreamId(s), queue)).collect();
        (Mux::new(rings, vec![batch_max], Arc::new(MonotonicClock::default()), stats.clone()), stats)
    }

    fn drain(mux: &Mux) -> Vec<Vec<u64>> {
        let mut batch = Vec::new();
        let mut batches = Vec::new();
        while mux.next_batch(&mut batch).is_some() {
            batches.push(batch.iter().map(|f| f.desc.seq).collect());
        }
        batches
    }

    #[test]
    fn a_full_ring_drops_by_its_policy_and_counts_it() {
        for (policy, kept, cause) in [
            (DropPolicy::DropOldest, vec![vec![1], vec![2]], DropCause::DropOldest),
            (DropPolicy::DropNewest, vec![vec![0], vec![1]], DropCause::DropNewest),
        ] {
            let (mux, stats) = mux(policy, 2, 1, 1, 0);
            let inlet = mux.inlet(StreamId(0));
            (0..3).for_each(|seq| inlet.push(frame(0, seq)).expect("open"));
            drop(inlet);
            assert_eq!(drain(&mux), kept);
            assert_eq!(stats.stream(StreamId(0)).dropped(cause), 1);
        }
    }

    #[test]
    fn a_blocked_source_goes_on_when_there_is_room() {
        let (mux, _) = mux(DropPolicy::Block, 1, 1, 1, 0);
        let inlet = mux.inlet(StreamId(0));
        let source =
            std::thread::spawn(move || (0..100).for_each(|seq| inlet.push(frame(0, seq)).expect("open")));
        assert_eq!(drain(&mux).concat(), (0..100).collect::<Vec<_>>());
        source.join().expect("the source ends");
    }

    #[test]
    fn closing_frees_a_blocked_source() {
        let (mux, stats) = mux(DropPolicy::Block, 1, 1, 1, 0);
        let inlet = mux.inlet(StreamId(0));
        inlet.push(frame(0, 0)).expect("open");
        let source = std::thread::spawn(move || inlet.push(frame(0, 1)).is_err());
        mux.close();
        assert!(source.join().expect("the source ends"));
        assert_eq!(stats.stream(StreamId(0)).dropped(DropCause::Shutdown), 2);
    }

    #[test]
    fn a_batch_is_formed_when_full_or_when_nothing_more_comes() {
        let (mux, _) = mux(DropPolicy::Block, 8, 2, 4, 60_000);
        let (a, b) = (mux.inlet(StreamId(0)), mux.inlet(StreamId(1)));
        for seq in 0..3 {
            a.push(frame(0, seq)).expect("open");
            b.push(frame(1, 10 + seq)).expect("open");
        }
        drop((a, b));
        assert_eq!(drain(&mux), [vec![0, 10, 1, 11], vec![2, 12]]);
    }

    #[test]
    fn a_batch_goes_out_at_its_deadline() {
        let (mux, _) = mux(DropPolicy::Block, 8, 1, 4, 20);
        let inlet = mux.inlet(StreamId(0));
        inlet.push(frame(0, 0)).expect("open");
        let mut batch = Vec::new();
        assert_eq!(mux.next_batch(&mut batch), Some(0));
        assert_eq!(batch.len(), 1);
    }
}
