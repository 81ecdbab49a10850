use std::collections::VecDeque;
use std::sync::Weak;
use std::time::Duration;

use orinoco_core::{DropPolicy, Nanos, StreamId};

use crate::{Frame, Slot};

/// The mux without threads: rings, drop policies, batches and turns. Who runs it says what time it is, waits where it says
/// so, and wakes the sources that it names.
#[derive(Default)]
pub struct MuxCore {
    rings: Vec<Ring>,
    /// A stream joined since this was asked for last.
    joined: bool,
    /// Frames handed out so far.
    turn: u64,
    closed: bool,
    /// Streams whose sources may go on, since these were asked for last.
    resumed: Vec<StreamId>,
}

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

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextBatch {
    /// The lane has something to do.
    Ready(Next),
    /// Nothing before this time, or before a frame, a stream or an end comes.
    WaitUntil(Option<Nanos>),
    /// Nothing will come any more.
    Closed,
}

/// What becomes of a frame that a source offers.
#[derive(Debug)]
pub enum Offer {
    /// It waits in its ring.
    Accepted,
    /// It waits in its ring in place of the oldest one, which is dropped.
    Replaced(Frame),
    /// The ring is full, and this frame is dropped.
    Refused(Frame),
    /// The ring is full. The source waits until it is resumed, and then offers the frame again.
    Full(Frame),
    /// The lane has ended, and this frame is dropped.
    Closed(Frame),
}

struct Ring {
    stream: StreamId,
    queue: StreamQueue,
    frames: VecDeque<(Nanos, Frame)>,
    /// Maximum number of frames that its source can have delivered and not got back, if that is known.
    source_frames_max: Option<usize>,
    /// Slots of frames that were handed out, of a source whose maximum is known: the lane and the sinks hold some of them.
    handed_out: Vec<Weak<Slot>>,
    /// Its source found it full, and has not been resumed.
    is_blocking: bool,
    open: bool,
    /// Turn at which it was last served.
    served: u64,
}

impl MuxCore {
    /// Adds a stream with an empty ring.
    pub fn add(&mut self, stream: StreamId, queue: StreamQueue) -> Result<(), Closed> {
        assert!(queue.batch_max > 0 && queue.frames_max > 0, "stream {stream}: {queue:?}");
        assert!(self.ring_mut(stream).is_none(), "stream {stream} is here already");
        if self.closed {
            return Err(Closed);
        }
        self.rings.push(Ring {
            stream,
            queue,
            frames: VecDeque::with_capacity(queue.frames_max),
            source_frames_max: None,
            handed_out: Vec::new(),
            is_blocking: false,
            open: true,
            served: self.turn,
        });
        self.joined = true;
        Ok(())
    }

    /// Sets how many frames a stream's source can have delivered and not got back: see [`crate::Source::frames_max`].
    pub fn set_source_frames_max(&mut self, stream: StreamId, frames_max: Option<usize>) {
        if let Some(ring) = self.ring_mut(stream) {
            ring.source_frames_max = frames_max;
        }
    }

    /// Takes a frame into its stream's ring, by the ring's policy when it is full.
    pub fn offer(&mut self, stream: StreamId, frame: Frame, now: Nanos) -> Offer {
        if self.closed {
            return Offer::Closed(frame);
        }
        let ring = self.ring_mut(stream).expect("a ring leaves after its source");
        let is_blocked = ring.is_blocking && ring.frames.len() > ring.frames_to_go_on();
        if ring.frames.len() < ring.queue.frames_max && !is_blocked {
            ring.is_blocking = false;
            ring.frames.push_back((now, frame));
            return Offer::Accepted;
        }
        match ring.queue.policy {
            DropPolicy::Block => {
                ring.is_blocking = true;
                Offer::Full(frame)
            }
            DropPolicy::DropNewest => Offer::Refused(frame),
            DropPolicy::DropOldest => {
                let oldest = ring.frames.pop_front();
                ring.frames.push_back((now, frame));
                oldest.map_or(Offer::Accepted, |(_, oldest)| Offer::Replaced(oldest))
            }
        }
    }

    /// Ends a stream: it leaves when its ring is empty.
    pub fn end(&mut self, stream: StreamId) {
        if let Some(ring) = self.ring_mut(stream) {
            ring.open = false;
        }
    }

    /// Decides what comes next, and fills `batch`, which must be empty, where that is one. When the last stream has left,
    /// nothing does any more, and no stream can be added.
    pub fn next(&mut self, now: Nanos, batch: &mut Vec<Frame>) -> NextBatch {
        if self.closed {
            return NextBatch::Closed;
        }
        if std::mem::take(&mut self.joined) {
            return NextBatch::Ready(Next::Joined);
        }
        if let Some(index) = self.rings.iter().position(|ring| !ring.open && ring.frames.is_empty()) {
            return NextBatch::Ready(Next::Left(self.rings.remove(index).stream));
        }
        if self.rings.is_empty() {
            self.closed = true;
            return NextBatch::Closed;
        }
        let Some(group) = self.due(now) else {
            return NextBatch::WaitUntil(self.rings.iter().filter_map(Ring::deadline).min());
        };
        for _ in 0..self.batch_max(group) {
            batch.extend(self.pop_next(group));
        }
        NextBatch::Ready(Next::Batch(group))
    }

    /// Refuses frames and streams from now on, and returns the frames that wait, because nobody will take them.
    pub fn close(&mut self) -> Vec<Frame> {
        self.closed = true;
        let mut dropped = Vec::new();
        for ring in &mut self.rings {
            dropped.extend(ring.frames.drain(..).map(|(_, frame)| frame));
            if std::mem::take(&mut ring.is_blocking) {
                self.resumed.push(ring.stream);
            }
        }
        dropped
    }

    /// Takes the streams whose sources found their rings full and may go on now.
    pub fn resumed(&mut self) -> impl Iterator<Item = StreamId> {
        self.resumed.drain(..)
    }

    /// Number of frames that wait in a stream's ring; 0 for a stream that has left.
    pub fn waiting(&self, stream: StreamId) -> usize {
        self.rings.iter().find(|ring| ring.stream == stream).map_or(0, |ring| ring.frames.len())
    }

    /// Group of the next batch, if one is due: of the groups whose frames need not wait any longer, the one of the ring whose
    /// turn it is.
    pub(super) fn due(&self, now: Nanos) -> Option<usize> {
        let due = self.rings.iter().filter(|ring| self.is_due(ring, now));
        due.min_by_key(|ring| ring.turn()).map(|ring| ring.queue.group)
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

    fn ring_mut(&mut self, stream: StreamId) -> Option<&mut Ring> {
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
        if ring.is_blocking && ring.frames.len() <= ring.frames_to_go_on() {
            ring.is_blocking = false;
            self.resumed.push(ring.stream);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SlotPool;
    use orinoco_core::{FrameDesc, PixelFormat};

    const STREAM: StreamId = StreamId(0);

    fn queue(frames_max: usize, batch_max: usize) -> StreamQueue {
        let (policy, batch_wait) = (DropPolicy::Block, Duration::ZERO);
        StreamQueue { group: 0, batch_max, frames_max, policy, batch_wait }
    }

    fn frame() -> Frame {
        let slot = SlotPool::new(1, 1).try_take().expect("free");
        Frame::new(FrameDesc::packed(PixelFormat::Gray8, 1, 1), Slot::Owned(slot), Nanos(0)).expect("fits")
    }

    #[test]
    fn a_blocked_source_goes_on_when_the_next_batch_is_all_that_waits() {
        for (frames_max, batch_max, wanted) in
            [(1, 1, 0), (2, 1, 1), (4, 1, 1), (4, 2, 2), (4, 8, 3), (64, 4, 16)]
        {
            let mut mux = MuxCore::default();
            mux.add(STREAM, queue(frames_max, batch_max)).expect("open");
            let ring = &mux.rings[0];
            assert_eq!(ring.frames_to_go_on(), wanted, "{frames_max} frames, batches of {batch_max}");
        }
    }

    #[test]
    fn a_source_that_is_woken_too_early_waits_on() {
        let (mut mux, mut batch) = (MuxCore::default(), Vec::new());
        mux.add(STREAM, queue(4, 1)).expect("open");
        assert_eq!(mux.next(Nanos(0), &mut batch), NextBatch::Ready(Next::Joined));
        (0..4).for_each(|_| assert!(matches!(mux.offer(STREAM, frame(), Nanos(0)), Offer::Accepted)));
        for waiting in [4, 3, 2] {
            assert!(matches!(mux.offer(STREAM, frame(), Nanos(0)), Offer::Full(_)), "{waiting} wait");
            assert_eq!(mux.resumed().count(), 0);
            mux.next(Nanos(0), &mut batch);
        }
        assert_eq!((mux.waiting(STREAM), mux.resumed().collect::<Vec<_>>()), (1, vec![STREAM]));
        assert!(matches!(mux.offer(STREAM, frame(), Nanos(0)), Offer::Accepted));
    }

    #[test]
    fn closing_resumes_a_source_that_waits_and_returns_the_frames() {
        let mut mux = MuxCore::default();
        mux.add(STREAM, queue(1, 1)).expect("open");
        assert!(matches!(mux.offer(STREAM, frame(), Nanos(0)), Offer::Accepted));
        assert!(matches!(mux.offer(STREAM, frame(), Nanos(0)), Offer::Full(_)));
        assert_eq!((mux.close().len(), mux.resumed().count()), (1, 1));
        assert!(matches!(mux.offer(STREAM, frame(), Nanos(0)), Offer::Closed(_)));
        assert!(mux.add(StreamId(1), queue(1, 1)).is_err());
        assert_eq!(mux.next(Nanos(0), &mut Vec::new()), NextBatch::Closed);
    }
}
