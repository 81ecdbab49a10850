use std::collections::VecDeque;

use orinoco_core::{DropPolicy, ModelId, Nanos, StreamId};

use super::frame_ring::{Ring, StreamQueue, is_held};
use super::suspensions::{LateAnswer, Suspensions, Ticket};
use crate::Frame;
use crate::request::{Request, RequestQueue, RequestRefusal, Unserved};

/// The mux without threads: rings, drop policies, batches and turns. Who runs it says what time it is, waits where it says
/// so, and wakes the sources that it names.
#[derive(Default)]
pub struct MuxCore {
    rings: Vec<Ring>,
    /// A stream joined since this was asked for last.
    joined: bool,
    /// Plans were accepted that replace others, since this was asked for last.
    exchanged: bool,
    /// Frames and requests handed out so far.
    turn: u64,
    requests: RequestQueue,
    /// Turn at which a request was last handed out.
    requests_served: u64,
    /// The request that is handed out, until it is taken.
    next_request: Option<Request>,
    suspensions: Suspensions,
    /// Answer to the step that is resumed, until it is taken.
    late_answer: Option<LateAnswer>,
    /// Requests that are not executed, until they are taken.
    unserved: Vec<(Request, Unserved)>,
    closed: bool,
    /// Streams whose sources may go on, since these were asked for last.
    resumed: Vec<StreamId>,
}

/// Refusal of a frame, because its lane has ended.
#[derive(Clone, Copy, Debug)]
pub struct Closed;

/// Next thing for a lane to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Streams have joined.
    Joined,
    /// Plans wait to replace others.
    Exchanged,
    /// A stream has ended, and all of its frames were handed out.
    Left(StreamId),
    /// A batch of this group.
    Batch(usize),
    /// A request: see [`MuxCore::take_request`].
    Request,
    /// A suspended step, which was answered or waits no longer: see [`MuxCore::take_late_answer`].
    Resumed(Ticket),
}

/// Next thing for a lane to do, or the time until which there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextBatch {
    /// The lane has something to do.
    Ready(Next),
    /// Nothing before this time, or before a frame, a stream or an end comes.
    WaitUntil(Option<Nanos>),
    /// Nothing will come any more.
    Closed,
}

/// Result of offering a frame to its ring.
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

impl MuxCore {
    /// Adds a stream with an empty ring, whose batches have at most `batch_max` frames.
    pub fn add(&mut self, stream: StreamId, queue: StreamQueue, batch_max: usize) -> Result<(), Closed> {
        assert!(batch_max > 0 && queue.frames_max > 0, "stream {stream}: {queue:?}");
        assert!(self.ring_mut(stream).is_none(), "stream {stream} is here already");
        if self.closed {
            return Err(Closed);
        }
        self.rings.push(Ring {
            stream,
            queue,
            batch_max,
            frames: VecDeque::with_capacity(queue.frames_max),
            source_frames_max: None,
            held: 0,
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

    /// Sets a stream's maximum batch size, in frames.
    pub fn set_batch_max(&mut self, stream: StreamId, batch_max: usize) {
        assert!(batch_max > 0, "stream {stream}: a batch has at least 1 frame");
        if let Some(ring) = self.ring_mut(stream) {
            ring.batch_max = batch_max;
        }
    }

    /// Notes that plans wait to replace others: the lane takes them before its next batch.
    pub fn exchange(&mut self) -> Result<(), Closed> {
        if self.closed {
            return Err(Closed);
        }
        self.exchanged = true;
        Ok(())
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

    /// Accepts a request, if there is room for it; else it is among [those not executed](Self::take_unserved).
    pub fn offer_request(&mut self, request: Request, now: Nanos) -> Result<(), RequestRefusal> {
        self.requests.sweep(now, &mut self.unserved);
        let (request, why) = match self.closed {
            true => (request, RequestRefusal::Ended),
            false => match self.requests.offer(request, now) {
                Ok(()) => return Ok(()),
                Err(request) => (request, RequestRefusal::Overloaded),
            },
        };
        self.unserved.push((request, Unserved::Refused(why)));
        Err(why)
    }

    /// Takes the request that [`Self::next`] has handed out.
    pub fn take_request(&mut self) -> Option<Request> {
        self.next_request.take()
    }

    /// Takes the requests that are not executed: those that were refused, expired or cancelled.
    pub fn take_unserved(&mut self) -> Vec<(Request, Unserved)> {
        std::mem::take(&mut self.unserved)
    }

    /// Number of requests that wait for a model.
    pub fn requests_waiting(&self, model: ModelId) -> usize {
        self.requests.waiting_for(model)
    }

    /// Returns a ticket for a step that may be suspended: it can be answered from now on.
    pub fn ticket(&mut self) -> Ticket {
        self.suspensions.ticket()
    }

    /// Forgets a ticket whose step was not suspended.
    pub fn forget(&mut self, ticket: Ticket) {
        self.suspensions.forget(ticket);
    }

    /// Suspends the step of a ticket until that is answered, or until this time.
    pub fn suspend(&mut self, ticket: Ticket, until: Nanos) {
        self.suspensions.suspend(ticket, until);
    }

    /// Resumes the step of a ticket; false if it does not wait any more.
    pub fn resume(&mut self, ticket: Ticket, answer: LateAnswer) -> bool {
        !self.closed && self.suspensions.resume(ticket, answer)
    }

    /// Takes the answer to the step that [`Self::next`] has resumed; `None` if it came too late.
    pub fn take_late_answer(&mut self) -> Option<LateAnswer> {
        self.late_answer.take()
    }

    /// Number of steps that wait for an answer.
    pub fn suspended(&self) -> usize {
        self.suspensions.len()
    }

    /// Notes that a frame of a stream waits for an answer, or behind one that does.
    pub fn hold(&mut self, stream: StreamId) {
        self.ring_mut(stream).expect("a stream leaves after its frames").held += 1;
    }

    /// Notes that frames of a stream wait no longer.
    pub fn release(&mut self, stream: StreamId, frames: usize) {
        self.ring_mut(stream).expect("a stream leaves after its frames").held -= frames;
    }

    /// Ends a stream: it leaves when its ring is empty, and none of its frames waits for an answer.
    pub fn end(&mut self, stream: StreamId) {
        if let Some(ring) = self.ring_mut(stream) {
            ring.open = false;
        }
    }

    /// Decides what comes next, and fills `batch`, which must be empty, where that is one. When the last stream has left,
    /// nothing does any more, and no stream can be added.
    ///
    /// The requests of a lane take turns with its streams, as one more stream would: between two requests each stream that
    /// has a batch is served, and between two batches of a stream there is at most one request.
    pub fn next(&mut self, now: Nanos, batch: &mut Vec<Frame>) -> NextBatch {
        if self.closed {
            return NextBatch::Closed;
        }
        if std::mem::take(&mut self.joined) {
            return NextBatch::Ready(Next::Joined);
        }
        if std::mem::take(&mut self.exchanged) {
            return NextBatch::Ready(Next::Exchanged);
        }
        // Before new batches: what waited for an answer is older than what waits in the rings.
        if let Some((ticket, answer)) = self.suspensions.next(now) {
            self.late_answer = answer;
            return NextBatch::Ready(Next::Resumed(ticket));
        }
        if let Some(index) = self.rings.iter().position(Ring::has_left) {
            return NextBatch::Ready(Next::Left(self.rings.remove(index).stream));
        }
        if self.rings.is_empty() {
            self.close_requests();
            self.closed = true;
            return NextBatch::Closed;
        }
        self.requests.sweep(now, &mut self.unserved);
        let ring = self.due_ring(now);
        let turn = |came| (self.requests_served, Some(came));
        let request_turn = self.requests.oldest().map(turn);
        if request_turn.is_some_and(|turn| ring.is_none_or(|ring| turn < ring.turn())) {
            self.turn += 1;
            self.requests_served = self.turn;
            self.next_request = self.requests.pop();
            return NextBatch::Ready(Next::Request);
        }
        let Some(group) = ring.map(|ring| ring.queue.group) else {
            let deadlines = self.rings.iter().filter_map(Ring::deadline);
            return NextBatch::WaitUntil(deadlines.chain(self.suspensions.deadline()).min());
        };
        for _ in 0..self.batch_max(group) {
            batch.extend(self.pop_next(group, batch));
        }
        NextBatch::Ready(Next::Batch(group))
    }

    /// Refuses frames and streams from now on, and returns the frames that wait, because nobody will take them.
    /// Requests that wait are then not executed either.
    pub fn close(&mut self) -> Vec<Frame> {
        self.closed = true;
        self.close_requests();
        self.suspensions.clear();
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

    /// Group of the next batch, if one is due.
    #[cfg(test)]
    pub(super) fn due(&self, now: Nanos) -> Option<usize> {
        self.due_ring(now).map(|ring| ring.queue.group)
    }

    /// The ring of the next batch: the one whose turn it is, of those whose group's frames need not wait any longer.
    fn due_ring(&self, now: Nanos) -> Option<&Ring> {
        let due = self.rings.iter().filter(|ring| self.is_due(ring, now));
        due.min_by_key(|ring| ring.turn())
    }

    fn close_requests(&mut self) {
        let left = self.next_request.take().into_iter().chain(self.requests.drain());
        self.unserved.extend(left.map(|request| (request, Unserved::Refused(RequestRefusal::Ended))));
    }

    /// Whether the frames of a ring's group need not wait any longer: one has waited long enough, or there are as many as
    /// will fit into a batch, or into the group's rings.
    fn is_due(&self, ring: &Ring, now: Nanos) -> bool {
        let group = ring.queue.group;
        let waiting = self.group(group).map(|ring| ring.frames.len().min(ring.takeable())).sum::<usize>();
        let room = self.group(group).map(|ring| ring.frames_max().min(ring.takeable())).sum::<usize>();
        ring.frames.len().min(ring.takeable()) > 0
            && (self.group(group).filter_map(Ring::deadline).any(|deadline| deadline <= now)
                || waiting >= self.batch_max(group).min(room))
    }

    fn group(&self, group: usize) -> impl Iterator<Item = &Ring> {
        self.rings.iter().filter(move |ring| ring.queue.group == group)
    }

    fn batch_max(&self, group: usize) -> usize {
        self.group(group).map(|ring| ring.batch_max).max().unwrap_or(1)
    }

    fn ring_mut(&mut self, stream: StreamId) -> Option<&mut Ring> {
        self.rings.iter_mut().find(|ring| ring.stream == stream)
    }

    /// The next frame of a group for a batch: streams take turns.
    fn pop_next(&mut self, group: usize, batch: &[Frame]) -> Option<Frame> {
        let of_group = |ring: &&mut Ring| {
            ring.queue.group == group && !ring.frames.is_empty() && ring.is_takeable(batch)
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{AnswerReceiver, Priority, RequestInputs, answer_channel};
    use crate::{MonotonicClock, Slot, SlotPool};
    use orinoco_core::{Clock, FrameDesc, PixelFormat};
    use std::sync::Arc;
    use std::time::Duration;

    const STREAM: StreamId = StreamId(0);

    fn queue(frames_max: usize) -> StreamQueue {
        let (policy, batch_wait) = (DropPolicy::Block, Duration::ZERO);
        StreamQueue { group: 0, frames_max, policy, batch_wait }
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
            mux.add(STREAM, queue(frames_max), batch_max).expect("open");
            let ring = &mux.rings[0];
            assert_eq!(ring.frames_to_go_on(), wanted, "{frames_max} frames, batches of {batch_max}");
        }
    }

    #[test]
    fn a_source_that_is_woken_too_early_waits_on() {
        let (mut mux, mut batch) = (MuxCore::default(), Vec::new());
        mux.add(STREAM, queue(4), 1).expect("open");
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
    fn a_source_goes_on_by_the_batch_size_of_a_model_that_has_replaced_another() {
        let (mut mux, mut batch) = (MuxCore::default(), Vec::new());
        mux.add(STREAM, queue(4), 1).expect("open");
        assert_eq!(mux.next(Nanos(0), &mut batch), NextBatch::Ready(Next::Joined));
        (0..4).for_each(|_| assert!(matches!(mux.offer(STREAM, frame(), Nanos(0)), Offer::Accepted)));
        assert!(matches!(mux.offer(STREAM, frame(), Nanos(0)), Offer::Full(_)));
        mux.next(Nanos(0), &mut batch);
        assert!(matches!(mux.offer(STREAM, frame(), Nanos(0)), Offer::Full(_)), "3 wait, and 1 is a batch");
        mux.set_batch_max(STREAM, 3);
        assert!(matches!(mux.offer(STREAM, frame(), Nanos(0)), Offer::Accepted), "3 are the next batch");
    }

    #[test]
    fn nobody_waits_for_a_ticket_that_is_forgotten() {
        let mut mux = MuxCore::default();
        let (forgotten, waiting) = (mux.ticket(), mux.ticket());
        mux.forget(forgotten);
        assert_eq!(mux.suspended(), 1);
        assert!(!mux.resume(forgotten, Ok(Vec::new())));
        assert!(mux.resume(waiting, Ok(Vec::new())));
    }

    fn request(model: u32, deadline: Option<Nanos>) -> (Request, AnswerReceiver) {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
        let (answers, receiver) = answer_channel(&clock);
        let (model, name, priority) = (ModelId(model), "m".into(), Priority::default());
        let inputs = RequestInputs::Tensors(Vec::new());
        (Request { model, name, inputs, deadline, priority, answers }, receiver)
    }

    #[test]
    fn requests_and_streams_take_turns() {
        let (mut mux, mut batch) = (MuxCore::default(), Vec::new());
        for stream in 0..2 {
            let queue = StreamQueue { group: stream as usize, ..queue(4) };
            mux.add(StreamId(stream), queue, 1).expect("open");
        }
        assert_eq!(mux.next(Nanos(0), &mut batch), NextBatch::Ready(Next::Joined));
        let requests: Vec<_> = (0..4).map(|_| request(0, None)).collect();
        let (requests, receivers): (Vec<_>, Vec<_>) = requests.into_iter().unzip();
        let mut now = Nanos(0);
        for request in requests {
            mux.offer_request(request, now).expect("there is room");
        }
        for _ in 0..4 {
            now.0 += 1;
            for stream in 0..2 {
                assert!(matches!(mux.offer(StreamId(stream), frame(), now), Offer::Accepted));
            }
        }
        let mut order = String::new();
        while let NextBatch::Ready(next) = mux.next(now, &mut batch) {
            order.push(match next {
                Next::Batch(0) => 'a',
                Next::Batch(_) => 'b',
                _ => 'r',
            });
            drop(mux.take_request());
        }
        assert_eq!(order, "rabrabrabrab");
        drop(receivers);
    }

    #[test]
    fn a_request_whose_time_has_passed_is_not_handed_out() {
        let mut mux = MuxCore::default();
        mux.add(STREAM, queue(1), 1).expect("open");
        assert_eq!(mux.next(Nanos(0), &mut Vec::new()), NextBatch::Ready(Next::Joined));
        let (late, _receiver) = request(0, Some(Nanos(5)));
        mux.offer_request(late, Nanos(0)).expect("there is room");
        assert_eq!(mux.next(Nanos(5), &mut Vec::new()), NextBatch::WaitUntil(None));
        assert!(matches!(mux.take_unserved()[..], [(_, Unserved::Expired)]));
        let (other, _receiver) = request(0, None);
        mux.offer_request(other, Nanos(5)).expect("there is room");
        mux.close();
        let (refused, _receiver) = request(0, None);
        assert_eq!(mux.offer_request(refused, Nanos(5)), Err(RequestRefusal::Ended));
        let ended = Unserved::Refused(RequestRefusal::Ended);
        assert!(mux.take_unserved().iter().map(|(_, why)| *why).eq([ended, ended]));
    }

    #[test]
    fn closing_resumes_a_source_that_waits_and_returns_the_frames() {
        let mut mux = MuxCore::default();
        mux.add(STREAM, queue(1), 1).expect("open");
        assert!(matches!(mux.offer(STREAM, frame(), Nanos(0)), Offer::Accepted));
        assert!(matches!(mux.offer(STREAM, frame(), Nanos(0)), Offer::Full(_)));
        assert_eq!((mux.close().len(), mux.resumed().count()), (1, 1));
        assert!(matches!(mux.offer(STREAM, frame(), Nanos(0)), Offer::Closed(_)));
        assert!(mux.add(StreamId(1), queue(1), 1).is_err());
        assert_eq!(mux.next(Nanos(0), &mut Vec::new()), NextBatch::Closed);
    }
}
