//! Requests of this rank to one peer. Calls add them and wait for the answers; the thread of the connection sends and completes them.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use super::buffer::Buffer;
use super::error::RefusalReason;
use super::frame::{Body, Frame};
use super::region::RegionInfo;
use crate::FailureCause;
use crate::clock::{Ticks, pause};
use crate::tcp::raise;

/// Most requests of one call that are under way: while one piece is read from a disk, others are on their way, and written.
pub(super) const WINDOW: usize = 4;
/// Maximum number of unanswered requests to a peer (16 MiB of data). Calls beyond that wait for others to end; a peer that exceeds it
/// breaks the protocol.
pub(super) const REQUESTS_MAX: usize = 64;

const _: () = assert!(REQUESTS_MAX >= WINDOW, "one call can be under way");

/// Requests of this rank to one peer.
pub(super) struct Requests {
    state: Mutex<State>,
    /// Raised when there is something to send, for the thread of the connection.
    wake: Arc<OwnedFd>,
}

#[derive(Default)]
struct State {
    unsent: VecDeque<Request>,
    /// Those without an answer, in the order in which they were sent.
    in_flight: VecDeque<InFlight>,
    next_number: u32,
    /// Requests that calls may add, and those of ended calls that are still in flight.
    reserved: usize,
    failure: Option<FailureCause>,
    /// Threads that wait until fewer requests are reserved.
    waiting: Vec<Thread>,
}

struct Request {
    body: Body,
    bytes: u32,
    payload: Buffer,
    piece: u64,
    answers: Arc<Answers>,
}

struct InFlight {
    number: u32,
    awaited: Awaited,
    piece: u64,
    /// None if its call has ended: then nobody wants the answer.
    answers: Option<Arc<Answers>>,
}

/// Answer that a request may have, apart from a refusal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Done,
    Data { bytes: u32 },
    Regions,
}

/// Answers that the call has not yet read.
struct Answers {
    caller: Thread,
    queue: Mutex<VecDeque<(u64, Answer)>>,
}

/// Answer to a request.
pub(super) enum Answer {
    /// All bytes of a put are in the region.
    Done { serial: u32 },
    /// The bytes that a get asked for.
    Data { serial: u32, bytes: Buffer },
    /// The peer's regions.
    Regions(Vec<RegionInfo>),
    /// The peer refuses the request.
    Refused(RefusalReason),
    /// The peer has failed.
    Failed(FailureCause),
}

impl Requests {
    pub(super) fn new(wake: Arc<OwnedFd>) -> Self {
        Self { state: Mutex::default(), wake }
    }

    pub(super) fn wake(&self) -> &Arc<OwnedFd> {
        &self.wake
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call. Waits no longer than `time` for others to end; `None` if they do not.
    pub(super) fn begin(&self, time: Duration) -> Result<Option<OpenCall<'_>>, FailureCause> {
        let start = Ticks::now();
        loop {
            let mut state = self.state();
            // It is in the list still if something else woke it.
            state.waiting.retain(|thread| thread.id() != thread::current().id());
            if let Some(cause) = state.failure {
                return Err(cause);
            }
            if state.reserved + WINDOW <= REQUESTS_MAX {
                state.reserved += WINDOW;
                let answers = Answers { caller: thread::current(), queue: Mutex::default() };
                return Ok(Some(OpenCall { requests: self, answers: Arc::new(answers) }));
            }
            let waited = Ticks::now().since(start);
            if waited >= time {
                return Ok(None);
            }
            state.waiting.push(thread::current());
            drop(state);
            pause(time - waited);
        }
    }

    /// The reason for which the peer can be asked for nothing any more.
    pub(super) fn failure(&self) -> Option<FailureCause> {
        self.state().failure
    }

    /// The next request to send, without a checksum, and its payload. It is in flight from now on.
    pub(super) fn next(&self) -> Option<(Frame, Buffer)> {
        let mut state = self.state();
        let Request { body, bytes, payload, piece, answers } = state.unsent.pop_front()?;
        let awaited = match body {
            Body::Get(_) => Awaited::Data { bytes },
            Body::List => Awaited::Regions,
            _ => Awaited::Done,
        };
        let number = state.next_number;
        state.next_number = number.wrapping_add(1);
        state.in_flight.push_back(InFlight { number, awaited, piece, answers: Some(answers) });
        Some((Frame { number, bytes, checksum: None, body }, payload))
    }

    /// Whether a frame can be the answer to the oldest request without one.
    pub(super) fn is_awaited(&self, answer: &Frame) -> bool {
        let state = self.state();
        let Some(oldest) = state.in_flight.front() else { return false };
        let fits = match (&answer.body, oldest.awaited) {
            (Body::Refused(_), _)
            | (Body::Done { .. }, Awaited::Done)
            | (Body::Regions, Awaited::Regions) => true,
            (Body::Data { .. }, Awaited::Data { bytes }) => bytes == answer.bytes,
            _ => false,
        };
        fits && answer.number == oldest.number
    }

    /// Completes the oldest request. If its call has ended, the answer is dropped.
    pub(super) fn complete(&self, answer: Answer) {
        let mut state = self.state();
        let oldest = state.in_flight.pop_front().expect("it was awaited");
        match oldest.answers {
            Some(answers) => answers.push(oldest.piece, answer),
            None => state.give_back(1),
        }
    }

    /// Fails all requests, and every later call.
    pub(super) fn fail(&self, cause: FailureCause) {
        let mut state = self.state();
        state.failure = Some(cause);
        let unsent =
            state.unsent.drain(..).map(|request| (request.piece, request.answers)).collect::<Vec<_>>();
        let in_flight =
            state.in_flight.drain(..).filter_map(|request| Some((request.piece, request.answers?)));
        in_flight.chain(unsent).for_each(|(piece, answers)| answers.push(piece, Answer::Failed(cause)));
        state.give_back(0);
    }
}

impl State {
    /// Gives back requests that were reserved.
    fn give_back(&mut self, number: usize) {
        self.reserved -= number;
        self.waiting.drain(..).for_each(|thread| thread.unpark());
    }
}

impl Answers {
    fn push(&self, piece: u64, answer: Answer) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back((piece, answer));
        self.caller.unpark();
    }
}

/// One call's requests to a peer. When it is dropped, those without an answer are given up.
pub(super) struct OpenCall<'a> {
    requests: &'a Requests,
    answers: Arc<Answers>,
}

impl OpenCall<'_> {
    /// Adds a request. A call has [`WINDOW`] of them without an answer at most.
    pub(super) fn add(&self, piece: u64, body: Body, bytes: u32, payload: Buffer) {
        let answers = Arc::clone(&self.answers);
        let mut state = self.requests.state();
        match state.failure {
            Some(cause) => answers.push(piece, Answer::Failed(cause)),
            None => state.unsent.push_back(Request { body, bytes, payload, piece, answers }),
        }
        drop(state);
        raise(&self.requests.wake);
    }

    /// The next answer, and the piece that it concerns. Waits for one no longer than `time`.
    pub(super) fn next(&self, time: Duration) -> Option<(u64, Answer)> {
        let start = Ticks::now();
        loop {
            if let Some(answer) =
                self.answers.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
            {
                return Some(answer);
            }
            let waited = Ticks::now().since(start);
            if waited >= time {
                return None;
            }
            pause(time - waited);
        }
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        let mut state = self.requests.state();
        state.unsent.retain(|request| !Arc::ptr_eq(&request.answers, &self.answers));
        let is_own = |answers: &Arc<Answers>| Arc::ptr_eq(answers, &self.answers);
        let mut given_up = 0;
        for request in &mut state.in_flight {
            given_up += usize::from(request.answers.take_if(|answers| is_own(answers)).is_some());
        }
        state.give_back(WINDOW - given_up);
    }
}
