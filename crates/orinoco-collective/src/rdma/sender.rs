//! Sends a rank's messages to one peer: short ones through its ring, and long payloads directly to the destination that the peer announced, if
//! possible.

use std::collections::VecDeque;
use std::io::IoSlice;

use super::announcement::{DIRECT_BYTES, Destination};
use super::device::{Device, Direct};
use super::flow::PART_BYTES;
use super::wire::Wire;
use crate::message::{
    Engine, HEADER_BYTES, Header, INLINE_BYTES, LinkFault, Memory, Moved, Refusal, write_inline,
};

/// Sends a rank's messages to one peer.
pub(super) struct Sender {
    peer: usize,
    /// Bytes of the current message, header included, that are already posted.
    offset: usize,
    /// Way of a long message's payload, once the peer has announced it.
    way: Option<Way>,
    /// Messages posted but not yet reported as sent, the oldest first; `true` once their memory may be reused.
    handed: VecDeque<bool>,
}

/// Way of a payload.
#[derive(Clone, Copy)]
enum Way {
    Ring,
    /// From memory with this key.
    Direct {
        from_key: u32,
        to: Destination,
    },
}

impl Sender {
    pub(super) fn new(peer: usize) -> Self {
        Self { peer, offset: 0, way: None, handed: VecDeque::new() }
    }

    /// Whether the device may still read memory of an unfinished message.
    pub(super) fn holds_vectors(&self) -> bool {
        !self.handed.is_empty() || matches!(self.way, Some(Way::Direct { .. }))
    }

    /// Sends what can be sent. Returns whether anything moved.
    ///
    /// # Errors
    /// If the link is closed or damaged, and there is a message to send, or a direct one that the peer has not credited.
    pub(super) fn send(
        &mut self,
        engine: &mut Engine,
        memory: &mut Memory<'_>,
        wire: &mut Wire,
        device: &mut impl Device,
    ) -> Result<bool, LinkFault> {
        let mut has_moved = self.settle(engine, memory, wire);
        while let Some(header) = engine.next_message(self.peer, memory) {
            match self.step(&header, engine, memory, wire, device) {
                Moved::Bytes(bytes) => {
                    self.offset += bytes;
                    has_moved = true;
                }
                Moved::Later => break,
                Moved::Closed => return Err(LinkFault::Closed { peer: self.peer }),
                Moved::Damaged => return Err(self.damaged()),
            }
            if self.offset == HEADER_BYTES + payload_len(&header) {
                self.hand_over(engine);
                has_moved |= self.settle(engine, memory, wire);
            }
        }
        match wire.standstill() {
            Moved::Closed if !self.handed.is_empty() => Err(LinkFault::Closed { peer: self.peer }),
            Moved::Damaged if !self.handed.is_empty() => Err(self.damaged()),
            _ => Ok(has_moved),
        }
    }

    fn damaged(&self) -> LinkFault {
        LinkFault::Refused { peer: self.peer, refusal: Refusal::Damaged }
    }

    /// The message is with the device. Its memory may change at once, unless the device reads it.
    fn hand_over(&mut self, engine: &mut Engine) {
        engine.handed_over(self.peer);
        self.handed.push_back(!matches!(self.way, Some(Way::Direct { .. })));
        (self.offset, self.way) = (0, None);
    }

    /// Reports messages as sent, in order, once their memory may be reused. Returns whether there were any.
    fn settle(&mut self, engine: &mut Engine, memory: &mut Memory<'_>, wire: &mut Wire) -> bool {
        let read = wire.take_read();
        self.handed.iter_mut().filter(|may_change| !**may_change).take(read).for_each(|may| *may = true);
        let mut has_moved = false;
        while self.handed.pop_front_if(|may_change| *may_change).is_some() {
            engine.sent(self.peer, memory);
            has_moved = true;
        }
        has_moved
    }

    /// Sends the next part of a message.
    fn step(
        &mut self,
        header: &Header,
        engine: &Engine,
        memory: &Memory<'_>,
        wire: &mut Wire,
        device: &mut impl Device,
    ) -> Moved {
        let bytes = header.encode();
        let unsent = &bytes[self.offset.min(HEADER_BYTES)..];
        let payload = engine.payload(self.peer, memory, self.offset.saturating_sub(HEADER_BYTES));
        if payload_len(header) < DIRECT_BYTES {
            let mut inline = [0; HEADER_BYTES + INLINE_BYTES];
            let slices = [IoSlice::new(unsent), IoSlice::new(payload)];
            return write_inline(&slices, &mut inline, &mut |slices| wire.write(device, slices));
        }
        if !unsent.is_empty() {
            return wire.write(device, &[IoSlice::new(unsent)]);
        }
        let way = match self.way {
            Some(way) => way,
            None => {
                let Some(announced) = wire.take_announcement(header.id()) else {
                    return wire.standstill();
                };
                let way = way(self.peer, payload, header, announced.destination, device);
                *self.way.insert(way)
            }
        };
        match way {
            Way::Ring => wire.write(device, &[IoSlice::new(payload)]),
            Way::Direct { from_key, to } => {
                let sent = (self.offset - HEADER_BYTES) as u64;
                let len = payload.len().min(PART_BYTES);
                let from = payload.as_ptr().addr() as u64;
                let direct = Direct { from, from_key, to: to.address + sent, to_key: to.key, len };
                wire.write_direct(device, direct, len == payload.len())
            }
        }
    }
}

/// The way of a payload: directly if the peer has announced a destination and the payload is contiguous registered memory.
fn way(
    peer: usize,
    payload: &[u8],
    header: &Header,
    destination: Option<Destination>,
    device: &impl Device,
) -> Way {
    let is_whole = |to: &Destination| to.len == header.payload_len() && payload.len() == payload_len(header);
    let direct = |to| Some(Way::Direct { from_key: device.key(peer, payload)?, to });
    destination.filter(is_whole).and_then(direct).unwrap_or(Way::Ring)
}

fn payload_len(header: &Header) -> usize {
    usize::try_from(header.payload_len()).expect("a payload in memory")
}
