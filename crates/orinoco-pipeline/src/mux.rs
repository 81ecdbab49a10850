//! Bounded rings in, batches out.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use orinoco_core::{Clock, DropPolicy, Nanos, StreamId};
use orinoco_telemetry::{DropCause, Stats};

use crate::{Frame, Slot};

/// One stream's ring.
#[derive(Clone, Copy, Debug)]
pub struct StreamQueue {
    /// Streams of one group share batches, because their frames run through the same models.
    pub group: usize,
    /// Frames of one batch at most; of a group's streams the largest counts.
    pub batch_max: usize,
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

/// Collects the frames of a lane's streams and hands them out in batches, all of one group. Streams take turns, so that one
/// that comes in bursts delays the others by one frame, and not by all that it has waiting.
pub struct Mux {
    state: Mutex<State>,
    frame_came: Condvar,
    clock: Arc<dyn Clock>,
    stats: Stats,
}

struct State {
    rings: Vec<Ring>,
    /// A stream joined since this was asked for last.
    joined: bool,
    /// Frames handed out so far.
    turn: u64,
    closed: bool,
}

/// What a lane does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Streams have joined.
    Joined,
    /// A stream has ended, and all of its frames were handed out.
    Left(StreamId),
    /// A batch of this group.
    Batch(usize),
}

struct Ring {
    stream: StreamId,
    queue: StreamQueue,
    frames: VecDeque<(Nanos, Frame)>,
    /// Maximum number of frames that its source can have delivered and not got back, if that is known.
    source_frames_max: Option<usize>,
    /// Slots of frames that were handed out, of a source whose maximum is known: the lane and the sinks hold some of them.
    handed_out: Vec<Weak<Slot>>,
    /// Its source may go on.
    room_came: Arc<Condvar>,
    open: bool,
    /// When it had its turn.
    served: u64,
}

impl Mux {
    /// A mux without streams.
    pub fn new(clock: Arc<dyn Clock>, stats: Stats) -> Arc<Self> {
        let state = Mutex::new(State { rings: Vec::new(), joined: false, turn: 0, closed: false });
        Arc::new(Self { state, frame_came: Condvar::new(), clock, stats })
    }

    /// Adds a stream, and returns the end into which its source pushes. Dropping that ends the stream.
    pub fn add(self: &Arc<Self>, stream: StreamId, queue: StreamQueue) -> Result<Inlet, Closed> {
        assert!(queue.batch_max > 0 && queue.frames_max > 0, "stream {stream}: {queue:?}");
        let mut state = self.lock();
        assert!(state.ring(stream).is_none(), "stream {stream} is here already");
        if state.closed {
            return Err(Closed);
        }
        let (frames, served) = (VecDeque::with_capacity(queue.frames_max), state.turn);
        let room_came = Arc::<Condvar>::default();
        let inlet = Inlet { mux: Arc::clone(self), stream, room_came: Arc::clone(&room_came) };
        let (source_frames_max, handed_out) = (None, Vec::new());
        state.rings.push(Ring {
            stream,
            queue,
            frames,
            source_frames_max,
            handed_out,
            room_came,
            open: true,
            served,
        });
        state.joined = true;
        drop(state);
        self.frame_came.notify_one();
        Ok(inlet)
    }

    /// Waits for what comes next, and fills `batch` where that is one. `None` when the last stream has left, or after
    /// [`Mux::close`]; no stream can be added from then on.
    pub fn next(&self, batch: &mut Vec<Frame>) -> Option<Next> {
        batch.clear();
        let mut state = self.lock();
        loop {
            let now = self.clock.now();
            let group = match state.ready(now) {
                Ready::Now(Next::Batch(group)) => group,
                Ready::Now(next) => return Some(next),
                Ready::Never => {
                    state.closed = true;
                    return None;
                }
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
            for _ in 0..state.batch_max(group) {
                batch.extend(state.pop_next(group));
            }
            return Some(Next::Batch(group));
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
            ring.room_came.notify_one();
        }
        drop(state);
        self.frame_came.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Ready {
    Now(Next),
    /// Not before this time, or before another frame comes.
    At(Option<Nanos>),
    /// Nothing will come any more.
    Never,
}

impl State {
    fn ready(&mut self, now: Nanos) -> Ready {
        if self.closed {
            return Ready::Never;
        }
        if std::mem::take(&mut self.joined) {
            return Ready::Now(Next::Joined);
        }
        if let Some(index) = self.rings.iter().position(|ring| !ring.open && ring.frames.is_empty()) {
            return Ready::Now(Next::Left(self.rings.remove(index).stream));
        }
        if self.rings.is_empty() {
            return Ready::Never;
        }
        let due = self.rings.iter().filter(|ring| self.is_due(ring, now));
        match due.min_by_key(|ring| ring.turn()) {
            Some(ring) => Ready::Now(Next::Batch(ring.queue.group)),
            None => Ready::At(self.rings.iter().filter_map(Ring::deadline).min()),
        }
    }

    /// Whether the frames of a ring's group need not wait any longer: one has waited long enough, or there are as many as
    /// will fit into a batch, or into the group's rings.
    fn is_due(&self, ring: &Ring, now: Nanos) -> bool {
        let group = ring.queue.group;
        let waiting = self.group(group).map(|ring| ring.frames.len()).sum::<usize>();
        let room = self.group(group).map(Ring::frames_max).sum::<usize>();
        !ring.frames.is_empty()
            && (self.group(group).filter_map(Ring::deadline).any(|deadline| deadline <= now)
                || waiting >= self.batch_max(group).min(room))
    }

    fn group(&self, group: usize) -> impl Iterator<Item = &Ring> {
        self.rings.iter().filter(move |ring| ring.queue.group == group)
    }

    fn batch_max(&self, group: usize) -> usize {
        self.group(group).map(|ring| ring.queue.batch_max).max().unwrap_or(1)
    }

    fn ring(&mut self, stream: StreamId) -> Option<&mut Ring> {
        self.rings.iter_mut().find(|ring| ring.stream == stream)
    }

    /// The next frame of a group: streams take turns.
    fn pop_next(&mut self, group: usize) -> Option<Frame> {
        let of_group = |ring: &&mut Ring| ring.queue.group == group && !ring.frames.is_empty();
        let ring = self.rings.iter_mut().filter(of_group).min_by_key(|ring| ring.turn())?;
        self.turn += 1;
        ring.served = self.turn;
        let (_, frame) = ring.frames.pop_front()?;
        if ring.source_frames_max.is_some() {
            ring.handed_out.retain(is_held);
            ring.handed_out.push(frame.slot());
        }
        if ring.frames.len() == ring.frames_to_go_on() {
            ring.room_came.notify_one();
        }
        Some(frame)
    }
}

impl Ring {
    /// Whose turn it is: the least of these. Streams that were served at the same time go by the age of their frames.
    fn turn(&self) -> (u64, Option<Nanos>) {
        (self.served, self.frames.front().map(|(came, _)| *came))
    }

    /// The most frames that can wait here. A source that has a slot for each of its frames delivers no more than are not held
    /// elsewhere, so that a batch must not wait for them.
    fn frames_max(&self) -> usize {
        if !self.open {
            return self.frames.len();
        }
        let held = || self.handed_out.iter().filter(|slot| is_held(slot)).count();
        let left = self.source_frames_max.map(|max| max.saturating_sub(held()).max(self.frames.len()));
        self.queue.frames_max.min(left.unwrap_or(usize::MAX))
    }

    /// A source that found the ring full goes on when no more frames than this wait. It then works on several in a row, and
    /// its caches are filled once for all of them. The next batch is there meanwhile.
    fn frames_to_go_on(&self) -> usize {
        let StreamQueue { batch_max, frames_max, .. } = self.queue;
        batch_max.max(frames_max / 4).min(frames_max - 1)
    }

    fn deadline(&self) -> Option<Nanos> {
        self.frames.front().map(|(came, _)| *came + self.queue.batch_wait)
    }
}

/// Whether somebody still holds a frame in this slot.
fn is_held(slot: &Weak<Slot>) -> bool {
    slot.strong_count() > 0
}

/// The end of one ring into which its source pushes.
pub struct Inlet {
    mux: Arc<Mux>,
    stream: StreamId,
    room_came: Arc<Condvar>,
}

impl Inlet {
    /// Says how many frames the source can have delivered and not got back: see [`crate::Source::frames_max`].
    pub fn set_source_frames_max(&self, frames_max: Option<usize>) {
        if let Some(ring) = self.mux.lock().ring(self.stream) {
            ring.source_frames_max = frames_max;
        }
    }

    /// Puts a frame into the ring, by the ring's policy when it is full.
    pub fn push(&self, frame: Frame) -> Result<(), Closed> {
        let mux = &*self.mux;
        let mut state = mux.lock();
        let dropped = loop {
            if state.closed {
                mux.stats.stream(frame.desc.stream).drop_frame(DropCause::Shutdown);
                return Err(Closed);
            }
            let ring = state.ring(self.stream).expect("a ring leaves after its inlet");
            if ring.frames.len() < ring.queue.frames_max {
                ring.frames.push_back((mux.clock.now(), frame));
                break None;
            }
            match ring.queue.policy {
                DropPolicy::Block => {
                    let must_wait = |state: &mut State| {
                        let ring = state.ring(self.stream).expect("a ring leaves after its inlet");
                        ring.frames.len() > ring.frames_to_go_on()
                    };
                    let waited = self.room_came.wait_while(state, |state| !state.closed && must_wait(state));
                    state = waited.unwrap_or_else(PoisonError::into_inner);
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
        if let Some(ring) = self.mux.lock().ring(self.stream) {
            ring.open = false;
        }
        self.mux.frame_came.notify_all();
    }
}

impl fmt::Debug for Inlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inlet(stream {})", self.stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MonotonicClock, Slot, SlotPool};
    use orinoco_core::{FrameDesc, PixelFormat};
    use std::time::Instant;

    fn frame(stream: u32, seq: u64) -> Frame {
        let mut desc = FrameDesc::packed(PixelFormat::Gray8, 1, 1);
        desc.stream = StreamId(stream);
        desc.seq = seq;
        let slot = SlotPool::new(1, 1).take(Duration::ZERO).expect("free");
        Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("fits")
    }

    fn mux(
        policy: DropPolicy,
        frames_max: usize,
        streams: u32,
        batch_max: usize,
        wait_ms: u64,
    ) -> (Arc<Mux>, Vec<Inlet>, Stats) {
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
    fn a_blocked_source_goes_on_when_the_next_batch_is_all_that_waits() {
        for (frames_max, batch_max, wanted) in
            [(1, 1, 0), (2, 1, 1), (4, 1, 1), (4, 2, 2), (4, 8, 3), (64, 4, 16)]
        {
            let (mux, _inlets, _) = mux(DropPolicy::Block, frames_max, 1, batch_max, 0);
            assert_eq!(
                mux.lock().rings[0].frames_to_go_on(),
                wanted,
                "{frames_max} frames, batches of {batch_max}"
            );
        }
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
                let Some(slot) = pool.take(Duration::ZERO) else { return };
                let desc = FrameDesc::packed(PixelFormat::Gray8, 1, 1);
                let made =
                    Frame::new(FrameDesc { seq, ..desc }, Slot::Owned(slot), Nanos(0)).expect("it fits");
                inlets[0].push(made).expect("open");
                seq += 1;
            }
        };
        let is_due = |mux: &Mux| matches!(mux.lock().ready(mux.clock.now()), Ready::Now(Next::Batch(0)));
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
        inlets.iter().for_each(|inlet| inlet.set_source_frames_max(Some(2)));
        let is_due = |mux: &Mux| matches!(mux.lock().ready(mux.clock.now()), Ready::Now(Next::Batch(0)));
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
