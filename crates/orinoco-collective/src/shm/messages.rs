//! Messages between two ranks: sends and receives, and the operations whose counts differ from rank to rank.
//!
//! The sender puts pieces into the slots of the pair and raises its flag; the receiver copies them out and raises the other flag. Of
//! a long message the sender tells the address instead, where the kernel allows that, and waits until it has been read.

use zerocopy::IntoBytes;

use super::operations::reduce_blocks_of;
use super::segment::{MESSAGE_SLOTS, MessageNumbers, Way};
use super::sync::Ordering;
use super::wait::{Awaited, check_group, check_reads, fail, raise};
use super::{ShmGroup, remote};
use crate::call::Call;
use crate::partition::blocks;
use crate::{CollectiveError, Element, FailureCause, ReduceOp};

/// A message to another rank.
struct Sending<'a> {
    to: usize,
    bytes: &'a [u8],
    /// Bytes that are in slots, or were; or none of them while the message waits to be read from this rank's memory.
    done: usize,
    state: SendState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SendState {
    Nothing,
    SomePieces,
    /// Its address: it is done when this is taken.
    Address,
    All,
}

/// A message from another rank.
struct Receiving<'a> {
    from: usize,
    bytes: &'a mut [u8],
    done: usize,
    is_over: bool,
}

impl ShmGroup {
    pub(super) fn send_bytes(&mut self, call: Call, to: usize, bytes: &[u8]) -> Result<(), CollectiveError> {
        self.exchange(call, Some((to, bytes)), None)
    }

    pub(super) fn receive_bytes(
        &mut self,
        call: Call,
        from: usize,
        bytes: &mut [u8],
    ) -> Result<(), CollectiveError> {
        self.exchange(call, None, Some((from, bytes)))
    }

    /// Sends blocks of the input to all ranks, and receives blocks of the output from all: one partner at a time.
    pub(super) fn exchange_blocks<T: Element>(
        &mut self,
        call: Call,
        input: &[T],
        send: &[usize],
        output: &mut [T],
        receive: &[usize],
    ) -> Result<(), CollectiveError> {
        let (sent, received) = (blocks(send), blocks(receive));
        output[received[self.rank].clone()].copy_from_slice(&input[sent[self.rank].clone()]);
        for (to, from) in self.partners() {
            let sent = input[sent[to].clone()].as_bytes();
            let received = output[received[from].clone()].as_mut_bytes();
            self.exchange(call, Some((to, sent)), Some((from, received)))?;
        }
        Ok(())
    }

    /// Sends the input to all ranks, and receives blocks of the output from all.
    pub(super) fn gather_blocks<T: Element>(
        &mut self,
        call: Call,
        input: &[T],
        counts: &[usize],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let received = blocks(counts);
        output[received[self.rank].clone()].copy_from_slice(input);
        for (to, from) in self.partners() {
            let received = output[received[from].clone()].as_mut_bytes();
            self.exchange(call, Some((to, input.as_bytes())), Some((from, received)))?;
        }
        Ok(())
    }

    /// Sends the input to one rank, which receives blocks of the output from all.
    pub(super) fn gather_blocks_at<T: Element>(
        &mut self,
        call: Call,
        root: usize,
        input: &[T],
        counts: &[usize],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        if self.rank != root {
            return self.send_bytes(call, root, input.as_bytes());
        }
        let received = blocks(counts);
        output[received[root].clone()].copy_from_slice(input);
        for (_, from) in self.partners() {
            self.receive_bytes(call, from, output[received[from].clone()].as_mut_bytes())?;
        }
        Ok(())
    }

    /// Sends blocks of one rank's input to all.
    pub(super) fn scatter_blocks<T: Element>(
        &mut self,
        call: Call,
        root: usize,
        input: &[T],
        counts: &[usize],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        if self.rank != root {
            return self.receive_bytes(call, root, output.as_mut_bytes());
        }
        let sent = blocks(counts);
        output.copy_from_slice(&input[sent[root].clone()]);
        for (to, _) in self.partners() {
            self.send_bytes(call, to, input[sent[to].clone()].as_bytes())?;
        }
        Ok(())
    }

    /// Gives each rank its block of the reduced inputs.
    pub(super) fn reduce_blocks<T: Element>(
        &mut self,
        call: Call,
        op: ReduceOp,
        input: &[T],
        counts: &[usize],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let own = vec![output.len(); self.ranks];
        let mut operands = vec![T::default(); output.len() * self.ranks];
        self.exchange_blocks(call, input, counts, &mut operands, &own)?;
        reduce_blocks_of(op, output, &operands, self.ranks);
        Ok(())
    }

    /// Ranks to send to and to receive from, step by step: each rank is the partner of one other in a step.
    fn partners(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (rank, ranks) = (self.rank, self.ranks);
        (1..ranks).map(move |distance| ((rank + distance) % ranks, (rank + ranks - distance) % ranks))
    }

    /// Sends a message and receives one, at the same time.
    fn exchange(
        &mut self,
        call: Call,
        send: Option<(usize, &[u8])>,
        receive: Option<(usize, &mut [u8])>,
    ) -> Result<(), CollectiveError> {
        check_group(&self.segment, call)?;
        let mut sending = send.map(|(to, bytes)| Sending { to, bytes, done: 0, state: SendState::Nothing });
        let mut receiving = receive.map(|(from, bytes)| Receiving { from, bytes, done: 0, is_over: false });
        loop {
            if let Some(sending) = &mut sending {
                self.send_pieces(call, sending);
            }
            if let Some(receiving) = &mut receiving {
                self.take_pieces(call, receiving)?;
            }
            let room = sending.as_ref().and_then(|sending| self.awaited_room(call, sending));
            let piece = receiving.as_ref().and_then(|receiving| self.awaited_piece(call, receiving));
            match (&room, &piece) {
                (None, None) => return Ok(()),
                (Some(one), None) | (None, Some(one)) => self.waiting.wait_for_any(&[one])?,
                (Some(room), Some(piece)) => self.waiting.wait_for_any(&[room, piece])?,
            }
        }
    }

    /// Sends what fits the free slots.
    fn send_pieces(&mut self, call: Call, message: &mut Sending<'_>) {
        let way = Way { from: self.rank, to: message.to };
        let pair = self.segment.pair(way);
        let counts = &mut self.messages[message.to];
        let len = message.bytes.len();
        let taken = || pair.taken.flag.load(Ordering::Acquire);
        if message.state == SendState::Address {
            if taken() == counts.sent {
                message.state = SendState::All;
            }
            return;
        }
        while message.state != SendState::All && counts.sent.wrapping_sub(taken()) < MESSAGE_SLOTS as u32 {
            let is_long = self.single_copy_bytes.is_some_and(|least| len >= least);
            let address = if is_long { remote::address(message.bytes) } else { 0 };
            let rest = if is_long { 0 } else { len - message.done };
            let piece = &message.bytes[message.done..][..rest.min(self.segment.message_piece_bytes())];
            let numbers = MessageNumbers { call: call.code(), len: len as u64, address };
            self.segment.write_message(way, counts.sent, numbers, piece);
            counts.sent = counts.sent.wrapping_add(1);
            raise(&pair.sent, counts.sent);
            message.done += piece.len();
            message.state = match is_long {
                true => SendState::Address,
                false if message.done == len => SendState::All,
                false => SendState::SomePieces,
            };
            if is_long {
                return;
            }
        }
    }

    /// Takes the pieces that have come.
    fn take_pieces(&mut self, call: Call, message: &mut Receiving<'_>) -> Result<(), CollectiveError> {
        let way = Way { from: message.from, to: self.rank };
        while !message.is_over {
            let pair = self.segment.pair(way);
            let number = self.messages[message.from].taken;
            if pair.sent.flag.load(Ordering::Acquire) == number {
                return Ok(());
            }
            let found = self.segment.message_numbers(way, number);
            self.check_numbers(call, message, found)?;
            if found.address == 0 {
                let rest = message.bytes.len() - message.done;
                let piece =
                    &mut message.bytes[message.done..][..rest.min(self.segment.message_piece_bytes())];
                self.segment.read_message(way, number, piece);
                message.done += piece.len();
                message.is_over = message.done == message.bytes.len();
            } else {
                let process = self.segment.pulse(message.from).process.load(Ordering::Relaxed);
                remote::read(process, found.address, message.bytes)
                    .or_else(|why| self.unreadable(call, message.from, &why))?;
                check_reads(&self.segment, call)?;
                message.is_over = true;
            }
            let taken = number.wrapping_add(1);
            self.messages[message.from].taken = taken;
            raise(&self.segment.pair(way).taken, taken);
        }
        Ok(())
    }

    fn check_numbers(
        &self,
        call: Call,
        message: &Receiving<'_>,
        found: MessageNumbers,
    ) -> Result<(), CollectiveError> {
        let (rank, theirs) = (message.from, Call::from_code(found.call));
        if theirs != call {
            fail(&self.segment, rank, FailureCause::Mismatch);
            return Err(CollectiveError::Mismatch { rank, theirs, ours: call });
        }
        if found.len != message.bytes.len() as u64 {
            fail(&self.segment, rank, FailureCause::Unexpected);
            return check_group(&self.segment, call);
        }
        Ok(())
    }

    /// The flag that must be raised before a message can go on; `None` if it is done.
    fn awaited_room(&self, call: Call, message: &Sending<'_>) -> Option<Awaited<'_>> {
        let sent = self.messages[message.to].sent;
        let pieces = match message.state {
            SendState::All => return None,
            SendState::Address => sent,
            SendState::Nothing | SendState::SomePieces => sent.wrapping_sub(MESSAGE_SLOTS as u32 - 1),
        };
        let line = &self.segment.pair(Way { from: self.rank, to: message.to }).taken;
        Some(Awaited { segment: &self.segment, rank: message.to, line, pieces, call, operation: None })
    }

    fn awaited_piece(&self, call: Call, message: &Receiving<'_>) -> Option<Awaited<'_>> {
        if message.is_over {
            return None;
        }
        let line = &self.segment.pair(Way { from: message.from, to: self.rank }).sent;
        let pieces = self.messages[message.from].taken.wrapping_add(1);
        Some(Awaited { segment: &self.segment, rank: message.from, line, pieces, call, operation: None })
    }
}
