//! Messages over byte streams: each direction of a link is one, and takes or gives any number of bytes at a time.

use std::io::IoSlice;

use super::engine::{Engine, Refusal};
use super::header::{HEADER_BYTES, Header};
use super::memory::Memory;
use super::transport::LinkFault;

/// Answer of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// So many bytes moved, one or more.
    Bytes(usize),
    /// None can move now.
    Later,
    /// None will ever move again.
    Closed,
    /// They were damaged on their way, or are not those of the peer.
    Damaged,
}

/// Most bytes of a payload that is sent in one piece with its header: copying it takes less time than a second slice.
pub(crate) const INLINE_BYTES: usize = 512;

/// Most slices that are offered to a stream at once: a header, and regions of its payload.
pub(crate) const SLICES_MAX: usize = 8;

/// Sends a rank's messages to one peer.
pub struct StreamSender {
    peer: usize,
    /// Bytes of the message's header and payload that are sent.
    offset: usize,
    is_closed: bool,
}

impl StreamSender {
    /// Creates the sender of a stream to a peer.
    pub fn new(peer: usize) -> Self {
        Self { peer, offset: 0, is_closed: false }
    }

    /// Sends what the stream takes. Returns whether anything moved. `write` sends the beginning of some slices.
    ///
    /// # Errors
    /// If the stream is closed and there is a message to send.
    pub fn send(
        &mut self,
        engine: &mut Engine,
        memory: &mut Memory<'_>,
        mut write: impl FnMut(&[IoSlice<'_>]) -> Moved,
    ) -> Result<bool, LinkFault> {
        let mut has_moved = false;
        while let Some(header) = engine.next_message(self.peer, memory) {
            if self.is_closed {
                return Err(LinkFault::Closed { peer: self.peer });
            }
            let end = HEADER_BYTES as u64 + header.payload_len();
            let header = header.encode();
            let mut slices = [IoSlice::new(&header[self.offset.min(HEADER_BYTES)..]); SLICES_MAX];
            let (mut count, mut offset) = (1, self.offset.saturating_sub(HEADER_BYTES));
            for slice in &mut slices[1..] {
                *slice = IoSlice::new(engine.payload(self.peer, memory, offset));
                if slice.is_empty() {
                    break;
                }
                (count, offset) = (count + 1, offset + slice.len());
            }
            let slices = &slices[..count];
            let mut inline = [0; HEADER_BYTES + INLINE_BYTES];
            match write_inline(slices, &mut inline, &mut write) {
                Moved::Bytes(bytes) => {
                    self.offset += bytes;
                    has_moved = true;
                    if self.offset as u64 == end {
                        engine.sent(self.peer, memory);
                        self.offset = 0;
                    }
                }
                Moved::Later => break,
                Moved::Closed | Moved::Damaged => self.is_closed = true,
            }
        }
        Ok(has_moved)
    }
}

/// Writes the rest of a header and what follows of its payload, as one slice if they are short.
pub(crate) fn write_inline(
    slices: &[IoSlice<'_>],
    inline: &mut [u8; HEADER_BYTES + INLINE_BYTES],
    write: &mut impl FnMut(&[IoSlice<'_>]) -> Moved,
) -> Moved {
    let payload: usize = slices[1..].iter().map(|slice| slice.len()).sum();
    if payload > INLINE_BYTES || slices[0].is_empty() {
        return write(slices);
    }
    let mut len = 0;
    for slice in slices {
        inline[len..len + slice.len()].copy_from_slice(slice);
        len += slice.len();
    }
    write(&[IoSlice::new(&inline[..len])])
}

/// Receives one peer's messages.
pub struct StreamReceiver {
    peer: usize,
    /// Bytes that were read and not used: those at `start..end`.
    staging: Box<[u8]>,
    start: usize,
    end: usize,
    state: State,
    is_closed: bool,
}

enum State {
    Header,
    /// A header that the engine does not take yet.
    Parked(Header),
    /// Bytes of the payload that have come, of so many.
    Payload(usize, u64),
}

/// Bytes that are read at once while a header is awaited: small messages come whole, several at a time.
const STAGING_BYTES: usize = 16 << 10;

impl StreamReceiver {
    /// Creates the receiver of a stream from a peer.
    pub fn new(peer: usize) -> Self {
        let staging = vec![0; STAGING_BYTES].into_boxed_slice();
        Self { peer, staging, start: 0, end: 0, state: State::Header, is_closed: false }
    }

    /// Whether a message has come whose turn it is not.
    pub fn is_parked(&self) -> bool {
        matches!(self.state, State::Parked(_))
    }

    /// Bytes that were read and not used.
    pub(crate) fn into_unused(self) -> Vec<u8> {
        let header = match self.state {
            State::Parked(header) => header.encode().to_vec(),
            State::Header | State::Payload(..) => Vec::new(),
        };
        [&header[..], &self.staging[self.start..self.end]].concat()
    }

    /// Notes that so many bytes of the message under way, the next ones, have come to their destination without this receiver.
    ///
    /// # Errors
    /// If no message is under way that is so long.
    pub(crate) fn placed(&mut self, bytes: usize) -> Result<(), Refusal> {
        match &mut self.state {
            State::Payload(offset, len) if bytes as u64 <= len.saturating_sub(*offset as u64) => {
                *offset += bytes;
                Ok(())
            }
            _ => Err(Refusal::Unexpected),
        }
    }

    /// Bytes that are missing of the message under way.
    pub fn missing(&self) -> u64 {
        match self.state {
            State::Payload(offset, len) => len.saturating_sub(offset as u64),
            State::Header | State::Parked(_) => 0,
        }
    }

    /// Receives while the engine waits for this peer and the stream has something. Returns whether anything moved. `read` fills the
    /// beginning of a slice.
    ///
    /// # Errors
    /// If the engine refuses a message, or if the stream is closed and the engine waits for its messages.
    pub fn receive(
        &mut self,
        engine: &mut Engine,
        memory: &mut Memory<'_>,
        mut read: impl FnMut(&mut [u8]) -> Moved,
    ) -> Result<bool, LinkFault> {
        let mut has_moved = false;
        while engine.awaits(self.peer) {
            let progress = self.step(engine, memory, &mut read).map_err(|refusal| {
                let peer = self.peer;
                LinkFault::Refused { peer, refusal }
            })?;
            match progress {
                Moved::Bytes(_) => has_moved = true,
                Moved::Later => break,
                Moved::Closed => return Err(LinkFault::Closed { peer: self.peer }),
                Moved::Damaged => {
                    return Err(LinkFault::Refused { peer: self.peer, refusal: Refusal::Damaged });
                }
            }
        }
        Ok(has_moved)
    }

    fn step(
        &mut self,
        engine: &mut Engine,
        memory: &mut Memory<'_>,
        read: &mut impl FnMut(&mut [u8]) -> Moved,
    ) -> Result<Moved, Refusal> {
        match self.state {
            State::Header => {
                let Some(bytes) = self.staging[self.start..self.end].first_chunk::<HEADER_BYTES>() else {
                    return Ok(self.fill(read));
                };
                let header = Header::decode(bytes).ok_or(Refusal::Damaged)?;
                self.start += HEADER_BYTES;
                self.state = State::Parked(header);
                Ok(Moved::Bytes(HEADER_BYTES))
            }
            State::Parked(header) => {
                if !engine.accept(self.peer, &header)? {
                    return Ok(Moved::Later);
                }
                self.state = State::Payload(0, header.payload_len());
                Ok(Moved::Bytes(0))
            }
            State::Payload(offset, len) if offset as u64 == len => {
                engine.arrived(self.peer, memory)?;
                self.state = State::Header;
                Ok(Moved::Bytes(0))
            }
            State::Payload(offset, len) => {
                let moved = self.payload(engine.destination(self.peer, memory, offset), read);
                if let Moved::Bytes(bytes) = moved {
                    self.state = State::Payload(offset + bytes, len);
                }
                Ok(moved)
            }
        }
    }

    /// Receives the next bytes of a payload into their destination.
    fn payload(&mut self, into: &mut [u8], read: &mut impl FnMut(&mut [u8]) -> Moved) -> Moved {
        let staged = &self.staging[self.start..self.end];
        if !staged.is_empty() {
            let len = staged.len().min(into.len());
            into[..len].copy_from_slice(&staged[..len]);
            self.start += len;
            return Moved::Bytes(len);
        }
        if into.len() >= STAGING_BYTES {
            return read_open(&mut self.is_closed, into, read);
        }
        match self.fill(read) {
            // They are staged, and do not count yet.
            Moved::Bytes(_) => Moved::Bytes(0),
            other => other,
        }
    }

    /// Reads more into the staging buffer.
    fn fill(&mut self, read: &mut impl FnMut(&mut [u8]) -> Moved) -> Moved {
        self.staging.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let moved = read_open(&mut self.is_closed, &mut self.staging[self.end..], read);
        if let Moved::Bytes(bytes) = moved {
            self.end += bytes;
        }
        moved
    }
}

/// Reads, unless the stream was closed before.
fn read_open(is_closed: &mut bool, into: &mut [u8], read: &mut impl FnMut(&mut [u8]) -> Moved) -> Moved {
    if *is_closed {
        return Moved::Closed;
    }
    let moved = read(into);
    *is_closed = moved == Moved::Closed;
    moved
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use zerocopy::IntoBytes;

    use super::*;
    use crate::call::{Call, Operation};
    use crate::element::kernel;
    use crate::message::OperationPlan;
    use crate::{Algorithm, Collective, DataType, ReduceOp, Topology};

    const RANKS: usize = 4;

    /// Slices of each write of the first message of an all-to-all, in which it has two regions.
    fn writes(count: usize) -> Vec<Vec<usize>> {
        let collective = Collective::all_to_all(RANKS, count);
        let (topology, kernel) = (Topology::flat(RANKS), kernel::<i64>(ReduceOp::Sum));
        let plan =
            OperationPlan::new(&collective, Algorithm::Bruck, &topology, 0, kernel, usize::MAX).unwrap();
        let words = |bytes: usize| vec![0u64; bytes.div_ceil(8)];
        let (input, mut output) = (words(8 * RANKS * count), words(8 * RANKS * count));
        let (mut scratch, mut partial) = (words(plan.scratch_bytes()), words(plan.partial_bytes()));
        let mut memory = Memory {
            input: Some(input.as_bytes()),
            output: output.as_mut_bytes(),
            scratch: scratch.as_mut_bytes(),
            partial: partial.as_mut_bytes(),
        };
        let mut engine = Engine::new(0, RANKS, 1);
        engine.begin(
            Call::new(Operation::AllToAll, Some(DataType::I64), None, 0, count),
            Arc::new(plan),
            &mut memory,
        );
        let peer = (1..RANKS).find(|peer| engine.has_message(*peer)).expect("a message is to be sent");
        let mut writes = Vec::new();
        let write = |slices: &[IoSlice<'_>]| {
            writes.push(slices.iter().map(|slice| slice.len()).collect::<Vec<_>>());
            Moved::Bytes(slices.iter().map(|slice| slice.len()).sum())
        };
        assert_eq!(StreamSender::new(peer).send(&mut engine, &mut memory, write).ok(), Some(true));
        writes
    }

    #[test]
    fn all_regions_of_a_message_are_written_at_once() {
        assert_eq!(writes(3), [[HEADER_BYTES + 2 * 24]]);
        assert_eq!(writes(1000), [[HEADER_BYTES, 8000, 8000]]);
    }
}
