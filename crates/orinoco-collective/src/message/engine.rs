//! Executes schedules. The engine owns no memory, socket or clock: a transport asks it what to send, and tells it what came.

use std::collections::VecDeque;
use std::sync::Arc;

use thiserror::Error;

use super::header::{Header, MessageId, checksum};
use super::memory::{Memory, Span};
use super::notice::NumberedCall;
use super::plan::OperationPlan;
use super::waits::WaitEnd;
use crate::partition::PIECES_ACTIVE;
use crate::{Call, Local, Round, Transfer};

/// Number of completed operations whose calls are kept, to report a mismatch that is found late.
const PAST_CALLS: usize = 16;

/// One rank's part in the operations of a group, one after the other.
///
/// Messages between two ranks travel in the order in which they were sent, on one link in each direction. For each peer a
/// transport sends [`next_message`](Engine::next_message) and then [`payload`](Engine::payload), and says
/// [`sent`](Engine::sent); it shows each header that comes to [`accept`](Engine::accept), brings the payload to
/// [`destination`](Engine::destination), and says [`arrived`](Engine::arrived). It may do so for all peers at once, in parts of any
/// size. Copies and reductions are executed inside `begin`, `sent` and `arrived`.
///
/// A transport whose device reads a payload later calls `handed_over` first, and goes on with the next message. One whose
/// device writes to destinations learns them from `next_expected`.
pub struct Engine {
    rank: usize,
    epoch: u32,
    /// Number of the operation of all ranks that is under way, or of the next one; wraps around.
    operation: u32,
    is_running: bool,
    call: Call,
    /// Number of calls that have begun, those of sends included; wraps around.
    number: u32,
    /// Calls of the last operations that completed on this rank: that of operation `n` at `n % PAST_CALLS`.
    past: [Option<Call>; PAST_CALLS],
    plan: Option<Arc<OperationPlan>>,
    /// Pieces under way, in order. The next to begin follows the last of them.
    active: VecDeque<Piece>,
    next_piece: u32,
    /// Pieces that are done, for their memory.
    done: Vec<Piece>,
    links: Vec<Link>,
    /// Messages of rounds to which this rank has not come.
    early: Vec<Early>,
    /// Buffers for early messages, to be used again.
    spare: Vec<Vec<u8>>,
    /// Bytes of a payload from which its message is reported as expected and as arrived.
    expected_bytes: usize,
}

/// A message for which an operation waits, or soon will.
#[derive(Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) id: MessageId,
    /// None if the message comes before its round, and goes to a buffer first.
    place: Option<Place>,
}

/// A piece under way.
struct Piece {
    number: u32,
    round: usize,
    /// Messages of the round that are not sent.
    unsent: usize,
    /// Messages of the round that have arrived, by their place among its receives.
    received: Vec<bool>,
    /// Messages of all rounds so far, by peer.
    outgoing: Vec<u16>,
}

/// Messages to and from one peer.
#[derive(Default)]
struct Link {
    outgoing: VecDeque<Outgoing>,
    /// Number of them, from the front, that are posted but not yet sent.
    handed: usize,
    /// Long messages that are expected, and those that have arrived; not asked for yet.
    expected: VecDeque<Expected>,
    arrived: VecDeque<MessageId>,
    /// Message that is being received.
    incoming: Option<Incoming>,
    /// It keeps payloads whole by itself: they have no checksum.
    keeps_whole: bool,
    /// Messages sent and received so far; both wrap around.
    sent: u32,
    received: u32,
}

/// A message to send: its piece, its round and its place among the round's sends.
struct Outgoing {
    piece: u32,
    round: usize,
    send: usize,
    /// Its number among the piece's messages to this peer.
    message: u16,
    /// Once it was asked for.
    header: Option<Header>,
}

struct Incoming {
    header: Header,
    place: Place,
    /// Buffer of a message to whose round this rank has not come.
    early: Option<Vec<u8>>,
}

/// A receive of a schedule: its piece, its round and its place among the round's receives.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    piece: u32,
    round: usize,
    receive: usize,
}

struct Early {
    place: Place,
    bytes: Vec<u8>,
}

/// Reason to refuse a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// It belongs to another call than the one that this rank makes, or made earlier.
    #[error("a message of {theirs}, where this rank called {ours}")]
    Mismatch {
        /// Call of its sender.
        theirs: Call,
        /// Call of this rank.
        ours: Call,
    },
    /// Its checksum is wrong.
    #[error("a damaged message")]
    Damaged,
    /// It is not the next one of its link, or not one that the schedule has.
    #[error("a message that no rank with the same schedule would send now")]
    Unexpected,
}

impl Engine {
    /// Creates the engine of a rank. All ranks number their operations from zero.
    pub fn new(rank: usize, ranks: usize, epoch: u32) -> Self {
        Self {
            rank,
            epoch,
            operation: 0,
            is_running: false,
            call: Call::from_code(0),
            number: 0,
            past: [None; PAST_CALLS],
            plan: None,
            active: VecDeque::new(),
            next_piece: 0,
            done: Vec::new(),
            links: (0..ranks).map(|_| Link::default()).collect(),
            early: Vec::new(),
            spare: Vec::new(),
            expected_bytes: usize::MAX,
        }
    }

    /// Makes [`Engine::next_expected`] and [`Engine::next_arrived`] report messages with payloads of at least so many bytes.
    pub(crate) fn tell_of_messages_from(&mut self, bytes: usize) {
        self.expected_bytes = bytes;
    }

    /// Sends payloads to `peer` without a checksum, and expects none: the link keeps them whole by itself. Both ends must do so.
    pub fn trust_link(&mut self, peer: usize) {
        self.links[peer].keeps_whole = true;
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.links.len()
    }

    /// Begins an operation.
    ///
    /// # Panics
    /// If another one is under way.
    pub fn begin(&mut self, call: Call, plan: Arc<OperationPlan>, memory: &mut Memory<'_>) {
        assert!(!self.is_running, "one operation at a time");
        self.is_running = true;
        self.call = call;
        self.number = self.number.wrapping_add(1);
        self.plan = Some(plan);
        self.next_piece = 0;
        self.slide(memory);
    }

    /// Whether no operation is under way.
    pub fn is_done(&self) -> bool {
        !self.is_running
    }

    /// The call under way, or else the last one.
    pub fn call(&self) -> Call {
        self.call
    }

    /// The operation under way, if it is one of all ranks.
    pub fn running_call(&self) -> Option<NumberedCall> {
        let is_of_all = self.plan.as_ref().is_some_and(|plan| plan.is_of_all);
        let call = NumberedCall { operation: self.operation, call: self.call };
        (self.is_running && is_of_all).then_some(call)
    }

    /// This rank's call of an operation that another rank calls, if the two differ.
    pub fn differing_call(&self, theirs: NumberedCall) -> Option<Call> {
        let running = self.running_call().filter(|ours| ours.operation == theirs.operation);
        let ours = running.map(|ours| ours.call).or_else(|| self.past_call(theirs.operation))?;
        (ours != theirs.call).then_some(ours)
    }

    /// This rank's waits for messages without which its call cannot end. One may come up several times.
    pub fn waits(&self) -> impl Iterator<Item = WaitEnd> {
        let missing = self.active.iter().flat_map(|piece| self.missing(piece));
        missing.map(|peer| self.wait_end(peer, self.links[peer].received))
    }

    /// This rank's end of a wait of `peer`, if it blocks that one: it is in another call, and no message from it is under way.
    pub fn blocks(&self, peer: usize, theirs: &WaitEnd) -> Option<WaitEnd> {
        let sent = self.links[peer].sent;
        let is_blocking = self.is_running && sent == theirs.messages && self.call != theirs.call;
        is_blocking.then(|| self.wait_end(peer, sent))
    }

    fn wait_end(&self, peer: usize, messages: u32) -> WaitEnd {
        WaitEnd { peer, call: self.call, number: self.number, messages }
    }

    /// Whether `peer` waits in an operation of all ranks that cannot end before this rank calls it, which it has not.
    pub fn holds_up(&self, peer: usize, theirs: NumberedCall) -> bool {
        let ahead = theirs.operation.wrapping_sub(self.operation);
        let is_to_come = ahead <= u32::MAX / 2 && (ahead > 0 || self.running_call().is_none());
        is_to_come && theirs.call.cannot_end_without(peer, self.rank)
    }

    /// A rank without which the operation cannot go on: one whose message is awaited, or else one that takes no message.
    pub fn awaited(&self) -> Option<usize> {
        let missing = self.active.iter().find_map(|piece| self.missing(piece).next());
        missing.or_else(|| self.links.iter().position(|link| !link.outgoing.is_empty()))
    }

    /// Whether this rank waits for a message of `peer`.
    pub fn awaits(&self, peer: usize) -> bool {
        self.active.iter().any(|piece| self.missing(piece).any(|missing| missing == peer))
    }

    /// Ranks whose messages a piece's round waits for.
    fn missing(&self, piece: &Piece) -> impl Iterator<Item = usize> {
        let rounds = self.plan.as_ref().map_or(&[] as &[Round], |plan| &plan.schedule(piece.number).rounds);
        let receives = rounds.get(piece.round).map_or(&[] as &[Transfer], |round| &round.receives);
        let missing = receives.iter().zip(&piece.received).filter(|(_, received)| !**received);
        missing.map(|(receive, _)| receive.peer)
    }

    /// Whether there is a message to send to `peer`.
    pub fn has_message(&self, peer: usize) -> bool {
        self.links[peer].outgoing.len() > self.links[peer].handed
    }

    /// Header of the message that is to be sent to `peer` next. It stays the same until [`Engine::sent`] or `handed_over`.
    pub fn next_message(&mut self, peer: usize, memory: &Memory<'_>) -> Option<Header> {
        let plan = self.plan.as_deref()?;
        let link = &mut self.links[peer];
        let outgoing = link.outgoing.get_mut(link.handed)?;
        if outgoing.header.is_none() {
            let transfer = &plan.schedule(outgoing.piece).rounds[outgoing.round].sends[outgoing.send];
            let spans = transfer.regions.iter().map(|region| plan.span(outgoing.piece, *region));
            outgoing.header = Some(Header {
                algorithm: plan.algorithm,
                message: outgoing.message,
                epoch: self.epoch,
                operation: self.operation,
                number: link.sent,
                piece: outgoing.piece,
                checksum: (!link.keeps_whole).then(|| checksum(spans.map(|span| memory.bytes(span)))),
                call: self.call,
                len: plan.message_bytes(transfer) as u64,
            });
        }
        outgoing.header
    }

    /// Consecutive bytes of the payload of the next message for `peer`, from `offset` on. Empty at its end.
    pub fn payload<'m>(&self, peer: usize, memory: &'m Memory<'_>, offset: usize) -> &'m [u8] {
        let link = &self.links[peer];
        let (Some(plan), Some(outgoing)) = (&self.plan, link.outgoing.get(link.handed)) else {
            return &[];
        };
        let transfer = &plan.schedule(outgoing.piece).rounds[outgoing.round].sends[outgoing.send];
        plan.rest(outgoing.piece, transfer, offset).map_or(&[], |span| memory.bytes(span))
    }

    /// The next message for `peer` is posted. Its memory must not change until it is [`sent`](Engine::sent).
    ///
    /// # Panics
    /// If there was none.
    pub(crate) fn handed_over(&mut self, peer: usize) {
        assert!(self.has_message(peer), "a message that was handed over");
        let link = &mut self.links[peer];
        link.handed += 1;
        link.sent = link.sent.wrapping_add(1);
    }

    /// The oldest unsent message for `peer` is sent, and its memory may be reused.
    ///
    /// # Panics
    /// If there was none.
    pub fn sent(&mut self, peer: usize, memory: &mut Memory<'_>) {
        if self.links[peer].handed == 0 {
            self.handed_over(peer);
        }
        let link = &mut self.links[peer];
        link.handed -= 1;
        let outgoing = link.outgoing.pop_front().expect("a message that was sent");
        let at = self.active_place(outgoing.piece).expect("a piece under way");
        self.active[at].unsent -= 1;
        self.advance(at, memory);
        self.slide(memory);
    }

    /// Shows the header of a message that came from `peer`. Returns whether its payload can be taken now; if not, it is to be
    /// shown again when the operation has gone on, or the next has begun.
    ///
    /// # Errors
    /// If the message does not belong here. The operation cannot go on then.
    pub fn accept(&mut self, peer: usize, header: &Header) -> Result<bool, Refusal> {
        let link = &self.links[peer];
        assert!(link.incoming.is_none(), "one message of a peer at a time");
        let is_checked = header.checksum.is_some();
        if header.epoch != self.epoch || header.number != link.received || is_checked == link.keeps_whole {
            return Err(Refusal::Unexpected);
        }
        let ahead = header.operation.wrapping_sub(self.operation);
        if ahead > u32::MAX / 2 {
            // This rank completed that operation without this message, so usually its call differed: it had no elements, for example.
            return Err(match self.past_call(header.operation) {
                Some(ours) if ours != header.call => Refusal::Mismatch { theirs: header.call, ours },
                _ => Refusal::Unexpected,
            });
        }
        let Some(plan) = self.plan.clone().filter(|_| ahead == 0 && self.is_running) else {
            // Messages come in order, so one that is awaited will not come after one of a later operation: the peer made another call.
            return match self.awaits(peer) {
                true => Err(Refusal::Mismatch { theirs: header.call, ours: self.call }),
                false => Ok(false),
            };
        };
        if header.call != self.call {
            return Err(Refusal::Mismatch { theirs: header.call, ours: self.call });
        }
        if header.algorithm != plan.algorithm || header.piece >= plan.pieces() {
            return Err(Refusal::Unexpected);
        }
        if header.piece >= self.next_piece {
            return Ok(false);
        }
        let incoming = self.incoming(peer, header, &plan)?;
        if incoming.early.is_some() && header.len >= self.expected_bytes as u64 {
            self.links[peer].expected.push_back(Expected { id: header.id(), place: None });
        }
        self.links[peer].incoming = Some(incoming);
        Ok(true)
    }

    /// The next long message expected from `peer`. Each is returned once: when its round begins, or, if its header came earlier, when that is accepted.
    pub(crate) fn next_expected(&mut self, peer: usize) -> Option<Expected> {
        self.links[peer].expected.pop_front()
    }

    /// A long message of `peer` that has arrived. Each is returned once.
    pub(crate) fn next_arrived(&mut self, peer: usize) -> Option<MessageId> {
        self.links[peer].arrived.pop_front()
    }

    /// The message of `peer` that was accepted and has not arrived.
    pub(crate) fn incoming_id(&self, peer: usize) -> Option<MessageId> {
        self.links[peer].incoming.as_ref().map(|incoming| incoming.header.id())
    }

    /// Memory for an expected message, if it is of the operation under way and has one destination.
    pub(crate) fn expected_destination<'m>(
        &self,
        expected: &Expected,
        memory: &'m mut Memory<'_>,
    ) -> Option<&'m mut [u8]> {
        let (plan, place) = (self.plan.as_ref()?, expected.place?);
        match place.transfer(plan).regions.as_slice() {
            [region] => Some(memory.bytes_mut(plan.span(place.piece, *region))),
            _ => None,
        }
    }

    /// Memory for the payload of the message from `peer`, from `offset` on. Empty at its end.
    pub fn destination<'m>(
        &'m mut self,
        peer: usize,
        memory: &'m mut Memory<'_>,
        offset: usize,
    ) -> &'m mut [u8] {
        match &mut self.links[peer].incoming {
            None => &mut [],
            Some(Incoming { early: Some(bytes), .. }) => bytes.get_mut(offset..).unwrap_or_default(),
            Some(Incoming { place, .. }) => {
                let plan = self.plan.as_ref().expect("a plan of the operation under way");
                let span = plan.rest(place.piece, place.transfer(plan), offset);
                span.map_or(&mut [], |span| memory.bytes_mut(span))
            }
        }
    }

    /// The payload of the message from `peer` is complete.
    ///
    /// # Errors
    /// If it was damaged on its way.
    ///
    /// # Panics
    /// If no message of the peer was accepted.
    pub fn arrived(&mut self, peer: usize, memory: &mut Memory<'_>) -> Result<(), Refusal> {
        let link = &mut self.links[peer];
        let Incoming { header, place, early } = link.incoming.take().expect("a message that was accepted");
        link.received = link.received.wrapping_add(1);
        if header.len >= self.expected_bytes as u64 {
            link.arrived.push_back(header.id());
        }
        let at = self.active_place(place.piece).expect("a piece under way waits for it");
        let plan = self.plan.as_ref().expect("a plan of the operation under way");
        let found = || match &early {
            Some(bytes) => checksum([&bytes[..]].into_iter()),
            None => {
                let regions = place.transfer(plan).regions.iter();
                checksum(regions.map(|region| memory.bytes(plan.span(place.piece, *region))))
            }
        };
        if header.checksum.is_some_and(|expected| found() != expected) {
            return Err(Refusal::Damaged);
        }
        match early {
            Some(bytes) => {
                self.early.push(Early { place, bytes });
                self.take_early(at, memory);
            }
            None => self.active[at].received[place.receive] = true,
        }
        self.advance(at, memory);
        self.slide(memory);
        Ok(())
    }

    /// Finds the place of a message of the operation and of a piece that has begun.
    fn incoming(&mut self, peer: usize, header: &Header, plan: &OperationPlan) -> Result<Incoming, Refusal> {
        let piece = self.active_place(header.piece).map(|at| &self.active[at]).ok_or(Refusal::Unexpected)?;
        let place = Place::find(plan, header.piece, peer, header.message).ok_or(Refusal::Unexpected)?;
        let bytes = plan.message_bytes(place.transfer(plan));
        let is_now = place.round == piece.round;
        let is_known = match is_now {
            true => piece.received[place.receive],
            false => place.round < piece.round || self.early.iter().any(|early| early.place == place),
        };
        if is_known || header.len != bytes as u64 {
            return Err(Refusal::Unexpected);
        }
        let early = (!is_now).then(|| {
            let mut buffer = self.spare.pop().unwrap_or_default();
            buffer.resize(bytes, 0);
            buffer
        });
        Ok(Incoming { header: *header, place, early })
    }

    /// Ends pieces that are complete, and begins others, until none changes.
    fn slide(&mut self, memory: &mut Memory<'_>) {
        let Some(plan) = self.plan.clone() else { return };
        let ranks = self.links.len();
        loop {
            while self
                .active
                .front()
                .is_some_and(|piece| piece.round == plan.schedule(piece.number).rounds.len())
            {
                self.done.extend(self.active.pop_front());
            }
            if self.active.len() == PIECES_ACTIVE || self.next_piece == plan.pieces() {
                break;
            }
            let number = self.next_piece;
            self.next_piece += 1;
            self.active.push_back(Piece::new(number, ranks, self.done.pop()));
            let at = self.active.len() - 1;
            if !plan.schedule(number).rounds.is_empty() {
                self.enter(at, memory);
                self.advance(at, memory);
            }
        }
        if self.is_running && self.active.is_empty() {
            self.is_running = false;
            // Sends have no numbers of their own: the ranks that they do not concern would not count them.
            if plan.is_of_all {
                self.past[self.operation as usize % PAST_CALLS] = Some(self.call);
                self.operation = self.operation.wrapping_add(1);
            }
        }
    }

    /// Call of a completed operation, if it is one of the last.
    fn past_call(&self, operation: u32) -> Option<Call> {
        let age = self.operation.wrapping_sub(operation) as usize;
        self.past[operation as usize % PAST_CALLS].filter(|_| (1..=PAST_CALLS).contains(&age))
    }

    /// Executes the steps of a piece's rounds for as long as all their messages are there.
    fn advance(&mut self, at: usize, memory: &mut Memory<'_>) {
        let Some(plan) = self.plan.clone() else { return };
        loop {
            let piece = &mut self.active[at];
            let rounds = &plan.schedule(piece.number).rounds;
            if piece.round == rounds.len() || piece.unsent > 0 || piece.received.contains(&false) {
                return;
            }
            execute(&plan, piece.number, &rounds[piece.round], memory);
            piece.round += 1;
            if piece.round < rounds.len() {
                self.enter(at, memory);
            }
        }
    }

    /// Begins a round: its messages are to be sent, and those that have come already are taken.
    fn enter(&mut self, at: usize, memory: &mut Memory<'_>) {
        let Some(plan) = self.plan.clone() else { return };
        let piece = &mut self.active[at];
        let round = &plan.schedule(piece.number).rounds[piece.round];
        piece.unsent = round.sends.len();
        piece.received.clear();
        piece.received.resize(round.receives.len(), false);
        for (send, transfer) in round.sends.iter().enumerate() {
            let message = &mut piece.outgoing[transfer.peer];
            let outgoing =
                Outgoing { piece: piece.number, round: piece.round, send, message: *message, header: None };
            *message += 1;
            self.links[transfer.peer].outgoing.push_back(outgoing);
        }
        self.take_early(at, memory);
        if self.expected_bytes < usize::MAX {
            self.expect_round(at, &plan);
        }
    }

    /// Tells of the long messages of a piece's round that have not come and are not coming.
    fn expect_round(&mut self, at: usize, plan: &OperationPlan) {
        let piece = &self.active[at];
        let round = &plan.schedule(piece.number).rounds[piece.round];
        for (receive, transfer) in round.receives.iter().enumerate() {
            let place = Place { piece: piece.number, round: piece.round, receive };
            let link = &mut self.links[transfer.peer];
            let is_coming = link.incoming.as_ref().is_some_and(|incoming| incoming.place == place);
            if piece.received[receive] || is_coming || plan.message_bytes(transfer) < self.expected_bytes {
                continue;
            }
            let message = place.message(plan, transfer.peer);
            let id = MessageId { operation: self.operation, piece: piece.number, message };
            link.expected.push_back(Expected { id, place: Some(place) });
        }
    }

    /// Brings early messages of a piece's round to their places.
    fn take_early(&mut self, at: usize, memory: &mut Memory<'_>) {
        let Some(plan) = self.plan.clone() else { return };
        let piece = &mut self.active[at];
        let is_now = |early: &Early| early.place.piece == piece.number && early.place.round == piece.round;
        while let Some(found) = self.early.iter().position(is_now) {
            let Early { place, bytes } = self.early.swap_remove(found);
            let mut offset = 0;
            while let Some(span) = plan.rest(place.piece, place.transfer(&plan), offset) {
                memory.bytes_mut(span).copy_from_slice(&bytes[offset..offset + span.len]);
                offset += span.len;
            }
            piece.received[place.receive] = true;
            self.spare.push(bytes);
        }
    }

    fn active_place(&self, piece: u32) -> Option<usize> {
        self.active.iter().position(|active| active.number == piece)
    }
}

impl Piece {
    /// A piece before its first round, in the memory of an older one.
    fn new(number: u32, ranks: usize, older: Option<Self>) -> Self {
        let (mut received, mut outgoing) =
            older.map_or_else(Default::default, |older| (older.received, older.outgoing));
        received.clear();
        outgoing.clear();
        outgoing.resize(ranks, 0);
        Self { number, round: 0, unsent: 0, received, outgoing }
    }
}

impl Place {
    /// The place of a peer's message, by its number among the piece's messages from that peer.
    fn find(plan: &OperationPlan, piece: u32, peer: usize, message: u16) -> Option<Self> {
        let rounds = plan.schedule(piece).rounds.iter().enumerate();
        let receives = rounds.flat_map(|(round, steps)| {
            let of_peer = steps.receives.iter().enumerate().filter(|(_, receive)| receive.peer == peer);
            of_peer.map(move |(receive, _)| Self { piece, round, receive })
        });
        receives.into_iter().nth(usize::from(message))
    }

    /// The number of the message among the piece's messages from its peer: the inverse of `find`.
    fn message(self, plan: &OperationPlan, peer: usize) -> u16 {
        let rounds = plan.schedule(self.piece).rounds.iter().take(self.round + 1).enumerate();
        let of_peer = |(round, steps): (usize, &Round)| {
            let most = if round == self.round { self.receive } else { steps.receives.len() };
            steps.receives[..most].iter().filter(|receive| receive.peer == peer).count()
        };
        u16::try_from(rounds.map(of_peer).sum::<usize>()).expect("a schedule with few messages")
    }

    fn transfer(self, plan: &OperationPlan) -> &Transfer {
        &plan.schedule(self.piece).rounds[self.round].receives[self.receive]
    }
}

/// Executes the copies and reductions of a round.
fn execute(plan: &OperationPlan, piece: u32, round: &Round, memory: &mut Memory<'_>) {
    for local in &round.locals {
        match local {
            Local::Copy { from, into } => memory.copy(plan.span(piece, *from), plan.span(piece, *into)),
            Local::Reduce { into, operands } => {
                let operands: Vec<Span> = operands.iter().map(|region| plan.span(piece, *region)).collect();
                plan.kernel.reduce(memory, plan.span(piece, *into), &operands, plan.ranks);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Operation;
    use crate::message::Kernel;
    use crate::{Algorithm, Collective, DataType, Topology};

    /// Engine of a rank of two that receives three bytes from the other.
    fn receiver(rank: usize) -> Engine {
        let from = 1 - rank;
        let collective = Collective::Send { from, to: rank, count: 3 };
        let kernel = Kernel::copying(Some(DataType::U8));
        let plan = OperationPlan::new(&collective, Algorithm::Direct, &Topology::flat(2), rank, kernel, 3);
        let call = Call::new(Operation::Send, Some(DataType::U8), None, from, 3);
        let mut engine = Engine::new(rank, 2, 0);
        let mut memory = Memory { input: None, output: &mut [0; 3], scratch: &mut [], partial: &mut [] };
        engine.begin(call, Arc::new(plan.expect("a schedule")), &mut memory);
        engine
    }

    #[test]
    fn a_rank_blocks_one_in_another_call_unless_a_message_is_under_way() {
        let engines = [receiver(0), receiver(1)];
        let [own, theirs] = engines.each_ref().map(|engine| engine.waits().next().expect("it waits"));
        assert_eq!((own.peer, own.number, own.messages), (1, 1, 0));
        let blocks = |theirs: &WaitEnd| engines[0].blocks(1, theirs);
        assert_eq!(blocks(&theirs), Some(WaitEnd { peer: 1, call: own.call, number: 1, messages: 0 }));
        assert_eq!(blocks(&WaitEnd { messages: u32::MAX, ..theirs }), None);
        assert_eq!(blocks(&WaitEnd { call: own.call, ..theirs }), None, "ranks in one call");
        assert_eq!(Engine::new(0, 2, 0).blocks(1, &theirs), None, "it is in no call");
    }

    #[test]
    fn a_rank_in_a_send_holds_up_the_next_operation_of_all() {
        let engine = receiver(0);
        let barrier = Call::new(Operation::Barrier, None, None, 0, 0);
        let holds_up =
            |engine: &Engine, operation, call| engine.holds_up(1, NumberedCall { operation, call });
        assert!(holds_up(&engine, 0, barrier));
        assert!(holds_up(&engine, 1, barrier), "an operation after the next");
        assert!(!holds_up(&engine, u32::MAX, barrier), "an operation before");
        assert!(!holds_up(&engine, 0, Call::new(Operation::Broadcast, None, None, 1, 3)), "of its root");
        let mut engine = Engine::new(0, 2, 0);
        let kernel = Kernel::copying(None);
        let plan =
            OperationPlan::new(&Collective::Barrier, Algorithm::Direct, &Topology::flat(2), 0, kernel, 1);
        let mut memory = Memory { input: None, output: &mut [], scratch: &mut [], partial: &mut [] };
        engine.begin(barrier, Arc::new(plan.expect("a schedule")), &mut memory);
        assert!(!holds_up(&engine, 0, barrier), "it has made the call");
        assert!(holds_up(&engine, 1, barrier), "it has not made the next");
    }
}
