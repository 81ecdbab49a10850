//! Flow of bytes over one link: which bytes of the peer's ring are free, and which of this rank's own can be read.
//!
//! Each direction of a link is a ring in the receiver's memory. The sender writes pieces of at most [`CHUNK_BYTES`] into it, one
//! after the other, each with [`Immediate`] data. When the receiver has read whole writes, it returns a credit for each, with its
//! next write or, before the sender can run out of them, with one that only carries credits. This module does the accounting, without memory.
//!
//! Between two writes into the ring there may be direct writes: parts of a payload that go to its destination at once. They take no bytes of the
//! ring, and are consumed in order with the writes into it. The credit for the last one of a message is returned immediately, since the sender waits for
//! it: until then, the sender's vector must not change.

use std::collections::VecDeque;

use thiserror::Error;

use super::immediate::{CREDITS_MAX, Content, Immediate, LEN_MAX, Number};
use crate::HEADER_BYTES;

/// Most bytes of one write: at 10 Gb/s they take 200 us, long enough that what a write costs at both ends does not count. A payload of 512 KiB,
/// the usual piece, takes two writes, directly or through the ring.
pub(super) const CHUNK_BYTES: usize = PART_BYTES + HEADER_BYTES;
/// Most bytes of a payload in one write. Tests have short vectors, and as many writes.
pub(super) const PART_BYTES: usize = if cfg!(test) { 1 << 10 } else { 256 << 10 };
/// Bytes of a ring: a window of four chunks.
pub(super) const RING_BYTES: usize = 4 * CHUNK_BYTES;
/// Most writes without a credit, for short ones.
pub(super) const WRITES_MAX: usize = 64;
/// Writes after which credits are returned by a write of their own; or the bytes of a chunk.
const CREDITS_DUE: usize = WRITES_MAX / 4;
/// Most writes that the peer may make before this rank looks: those of a window, those that only return credits (one for each write of
/// this rank at most), announcements; and after each of them one that asks for a completion, when memory is registered or the peer leaves.
pub(super) const ARRIVALS_MAX: usize = 2 * (2 * WRITES_MAX + ANNOUNCEMENTS_MAX);
/// Most announcements of messages that have not arrived.
pub(super) const ANNOUNCEMENTS_MAX: usize = if cfg!(test) { 2 } else { 16 };
/// Bytes from one place of announcements to the next: a cache line.
pub(super) const ANNOUNCEMENT_STRIDE: usize = 64;
/// Bytes that a peer writes to: the ring, and the places of announcements behind it.
pub(super) const TARGET_BYTES: usize = RING_BYTES + ANNOUNCEMENTS_MAX * ANNOUNCEMENT_STRIDE;

const _: () = assert!(CHUNK_BYTES <= LEN_MAX && WRITES_MAX <= CREDITS_MAX);

/// Bytes of a ring that one write fills, or one read takes. They do not wrap around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) start: usize,
    pub(super) len: usize,
}

/// Immediate data that the peer cannot have sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("immediate data {0:?}, which no rank of this version would send now")]
pub(super) struct Impossible(Immediate);

/// Both directions of one link.
#[derive(Default)]
pub(super) struct Flow {
    outgoing: Outgoing,
    incoming: Incoming,
    /// Numbers of the next writes in each direction.
    next_sent: Number,
    next_received: Number,
}

/// The peer's ring, as this rank knows it.
#[derive(Default)]
struct Outgoing {
    next: usize,
    used: usize,
    /// The writes without a credit, the oldest first.
    writes: VecDeque<Written>,
}

/// A write without a credit.
#[derive(Clone, Copy)]
enum Written {
    /// So many bytes of the ring.
    Ring(usize),
    /// A direct write, and whether it is the last one of its message.
    Direct { is_last: bool },
}

/// This rank's ring.
#[derive(Default)]
struct Incoming {
    next: usize,
    unread: usize,
    /// The writes that are not read to their end.
    writes: VecDeque<Arrived>,
    /// Bytes that are read of the first of them.
    read: usize,
    /// Writes that are read, for which credits are to be returned, and their bytes.
    credits: usize,
    credit_bytes: usize,
    /// Whether the last part of a direct message is among them, so that the peer waits for them.
    is_awaited: bool,
}

/// A write that is not read.
#[derive(Clone, Copy)]
enum Arrived {
    /// So many bytes of the ring.
    Ring(usize),
    Direct,
}

impl Flow {
    /// Free bytes of the peer's ring for the next of `wanted` bytes. `None` if there are too few to be worth a write.
    pub(super) fn free(&self, wanted: usize) -> Option<Area> {
        let Outgoing { next, used, writes } = &self.outgoing;
        let free = RING_BYTES - used;
        // Whoever fills each gap with a small write never gets to write a large one.
        let is_worth_it = free >= wanted || free >= CHUNK_BYTES / 2;
        let len = wanted.min(free).min(CHUNK_BYTES).min(RING_BYTES - next);
        (len > 0 && is_worth_it && writes.len() < WRITES_MAX).then_some(Area { start: *next, len })
    }

    /// Notes a write of free bytes. Returns its immediate data, which returns credits, too.
    pub(super) fn write(&mut self, area: Area) -> Immediate {
        let outgoing = &mut self.outgoing;
        assert!(
            area.start == outgoing.next && outgoing.used + area.len <= RING_BYTES,
            "{area:?} is not free"
        );
        outgoing.next = (outgoing.next + area.len) % RING_BYTES;
        outgoing.used += area.len;
        outgoing.writes.push_back(Written::Ring(area.len));
        self.immediate(Content::Ring(area.len))
    }

    /// Notes a direct write. Returns its immediate data, or `None` if the window is used up.
    pub(super) fn direct(&mut self, is_last: bool) -> Option<Immediate> {
        if self.outgoing.writes.len() >= WRITES_MAX {
            return None;
        }
        self.outgoing.writes.push_back(Written::Direct { is_last });
        Some(self.immediate(Content::Direct))
    }

    /// Immediate data of an announcement.
    pub(super) fn announcement(&mut self) -> Immediate {
        self.immediate(Content::Announcement)
    }

    /// Immediate data of a write that only returns credits, if so many are due that the peer might wait for them.
    pub(super) fn due_credits(&mut self) -> Option<Immediate> {
        let Incoming { credits, credit_bytes, is_awaited, .. } = self.incoming;
        let is_due = is_awaited || credits >= CREDITS_DUE || credit_bytes >= CHUNK_BYTES;
        is_due.then(|| self.immediate(Content::Ring(0)))
    }

    /// Immediate data of a write without bytes, whether credits are due or not.
    pub(super) fn last(&mut self) -> Immediate {
        self.immediate(Content::Ring(0))
    }

    fn immediate(&mut self, content: Content) -> Immediate {
        let number = self.next_sent;
        self.next_sent = number.next();
        (self.incoming.credit_bytes, self.incoming.is_awaited) = (0, false);
        Immediate { content, credits: std::mem::take(&mut self.incoming.credits), number }
    }

    /// Notes a write of the peer. Returns how many direct messages of this rank it has read.
    ///
    /// # Errors
    /// If the peer cannot have made it: it comes from elsewhere, or the peer does not do as this version does.
    pub(super) fn arrived(&mut self, immediate: Immediate) -> Result<usize, Impossible> {
        let Immediate { content, credits, number } = immediate;
        let Self { outgoing, incoming, .. } = self;
        let has_room = incoming.writes.len() + incoming.credits < WRITES_MAX;
        let is_content_possible = match content {
            Content::Announcement | Content::Ring(0) => true,
            Content::Direct => has_room,
            Content::Ring(len) => {
                let end = (incoming.next + incoming.unread) % RING_BYTES;
                let held = incoming.unread + incoming.read + incoming.credit_bytes;
                has_room && len <= CHUNK_BYTES.min(RING_BYTES - end) && held + len <= RING_BYTES
            }
        };
        if number != self.next_received || credits > outgoing.writes.len() || !is_content_possible {
            return Err(Impossible(immediate));
        }
        self.next_received = number.next();
        match content {
            Content::Announcement | Content::Ring(0) => {}
            Content::Direct => incoming.writes.push_back(Arrived::Direct),
            Content::Ring(len) => {
                incoming.writes.push_back(Arrived::Ring(len));
                incoming.unread += len;
            }
        }
        let mut messages = 0;
        for write in outgoing.writes.drain(..credits) {
            match write {
                Written::Ring(len) => outgoing.used -= len,
                Written::Direct { is_last } => messages += usize::from(is_last),
            }
        }
        Ok(messages)
    }

    /// The next bytes of the ring that can be read at once, up to its end or to a direct write. Empty if there are none.
    pub(super) fn readable(&self) -> Area {
        let Incoming { next, read, .. } = self.incoming;
        let writes = self.incoming.writes.iter().map_while(|write| match write {
            Arrived::Ring(len) => Some(*len),
            Arrived::Direct => None,
        });
        let unread = writes.sum::<usize>() - read;
        Area { start: next, len: unread.min(RING_BYTES - next) }
    }

    /// Notes that so many of the readable bytes are read.
    pub(super) fn read(&mut self, len: usize) {
        assert!(len <= self.readable().len, "{len} bytes are not readable");
        let incoming = &mut self.incoming;
        incoming.next = (incoming.next + len) % RING_BYTES;
        incoming.unread -= len;
        incoming.read += len;
        while let Some(Arrived::Ring(write)) = incoming.writes.front().copied() {
            if write > incoming.read {
                break;
            }
            incoming.writes.pop_front();
            incoming.read -= write;
            incoming.credits += 1;
            incoming.credit_bytes += write;
        }
    }

    /// Whether a direct write comes next.
    pub(super) fn is_direct_next(&self) -> bool {
        matches!(self.incoming.writes.front(), Some(Arrived::Direct))
    }

    /// Notes that the direct write that came next is read. `is_last`: it was the last one of its message.
    pub(super) fn read_direct(&mut self, is_last: bool) {
        assert!(self.is_direct_next(), "no direct write comes next");
        let incoming = &mut self.incoming;
        incoming.writes.pop_front();
        incoming.credits += 1;
        incoming.is_awaited |= is_last;
    }

    /// Whether the window is used up, so that the peer's credits are awaited.
    pub(super) fn is_full(&self) -> bool {
        self.free(CHUNK_BYTES).is_none()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two ends of a link with their memory, and the writes that are on their way.
    #[derive(Default)]
    struct End {
        flow: Flow,
        ring: Vec<u8>,
        arrivals: VecDeque<Immediate>,
        sent: usize,
        received: usize,
        /// Direct messages that were sent, of which is known that they were read, and that were received.
        direct_sent: usize,
        direct_read: usize,
        direct_received: usize,
    }

    /// The byte at a place of a stream.
    fn byte(place: usize) -> u8 {
        (place ^ place >> 8 ^ place >> 16) as u8
    }

    fn send(from: &mut End, to: &mut End, wanted: usize) -> bool {
        let Some(area) = from.flow.free(wanted) else { return false };
        for (at, cell) in to.ring[area.start..area.start + area.len].iter_mut().enumerate() {
            *cell = byte(from.sent + at);
        }
        from.sent += area.len;
        to.arrivals.push_back(from.flow.write(area));
        true
    }

    fn receive(end: &mut End, peer: &mut End, most: usize) {
        assert!(end.arrivals.len() <= ARRIVALS_MAX, "{} writes at once", end.arrivals.len());
        while let Some(immediate) = end.arrivals.pop_front() {
            let read = end.flow.arrived(Immediate::decode(immediate.encode())).expect("a possible write");
            end.direct_read += read;
        }
        while end.flow.is_direct_next() {
            end.flow.read_direct(true);
            end.direct_received += 1;
        }
        let Area { start, len } = end.flow.readable();
        let len = len.min(most);
        for (at, cell) in end.ring[start..start + len].iter().enumerate() {
            assert_eq!(*cell, byte(end.received + at), "byte {}", end.received + at);
        }
        end.received += len;
        end.flow.read(len);
        peer.arrivals.extend(end.flow.due_credits());
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Send(usize),
        SendDirect,
        Announce,
        Receive(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<(bool, Step)>> {
        let len = prop_oneof![1usize..200, 1usize..3 * CHUNK_BYTES];
        let step = prop_oneof![
            len.clone().prop_map(Step::Send),
            len.prop_map(Step::Receive),
            Just(Step::SendDirect),
            Just(Step::Announce)
        ];
        prop::collection::vec((any::<bool>(), step), 1..400)
    }

    proptest! {
        #[test]
        fn bytes_come_whole_and_a_window_opens_again(steps in steps()) {
            let mut ends = [End::default(), End::default()];
            ends.iter_mut().for_each(|end| end.ring = vec![0; RING_BYTES]);
            for (is_second, step) in steps {
                let [first, second] = &mut ends;
                let (end, peer) = if is_second { (second, first) } else { (first, second) };
                match step {
                    Step::Send(wanted) => {
                        send(end, peer, wanted);
                    }
                    Step::SendDirect => {
                        let immediate = end.flow.direct(true);
                        end.direct_sent += usize::from(immediate.is_some());
                        peer.arrivals.extend(immediate);
                    }
                    // There is one at a time here.
                    Step::Announce if peer.arrivals.is_empty() => {
                        peer.arrivals.push_back(end.flow.announcement());
                    }
                    Step::Announce => {}
                    Step::Receive(most) => receive(end, peer, most),
                }
            }
            // Whatever was done before, both can send again once all is read.
            let [first, second] = &mut ends;
            for _ in 0..2 * WRITES_MAX {
                receive(first, second, RING_BYTES);
                receive(second, first, RING_BYTES);
            }
            prop_assert_eq!((first.received, second.received), (second.sent, first.sent));
            prop_assert_eq!((first.direct_received, second.direct_received), (second.direct_sent, first.direct_sent));
            prop_assert_eq!((first.direct_read, second.direct_read), (first.direct_sent, second.direct_sent));
            prop_assert!(send(first, second, CHUNK_BYTES) && send(second, first, CHUNK_BYTES));
        }

        #[test]
        fn any_bits_are_possible_or_refused(all in prop::collection::vec((any::<u32>(), any::<bool>(), 0usize..RING_BYTES), 1..300)) {
            let mut flow = Flow::default();
            for (bits, is_next, wanted) in all {
                let mut immediate = Immediate::decode(bits);
                if is_next {
                    immediate.number = flow.next_received;
                }
                let is_accepted = flow.arrived(immediate).is_ok();
                prop_assert!(!is_accepted || immediate.number.next() == flow.next_received);
                let area = flow.readable();
                prop_assert!(area.start + area.len <= RING_BYTES);
                flow.read(area.len.min(wanted));
                if flow.is_direct_next() {
                    flow.read_direct(bits & 1 == 0);
                }
                if let Some(area) = flow.free(wanted) {
                    prop_assert!(area.start + area.len <= RING_BYTES);
                    flow.write(area);
                }
            }
        }
    }

    #[test]
    fn a_window_is_four_chunks_or_its_writes() {
        let mut flow = Flow::default();
        let mut writes = 0;
        while let Some(area) = flow.free(CHUNK_BYTES) {
            flow.write(area);
            writes += 1;
        }
        assert_eq!(writes, 4);
        assert!(flow.is_full());
        let mut flow = Flow::default();
        let mut writes = 0;
        while let Some(area) = flow.free(48) {
            flow.write(area);
            writes += 1;
        }
        assert_eq!(writes, WRITES_MAX);
        let first = Number::default();
        let credit = Immediate { content: Content::Ring(0), credits: WRITES_MAX + 1, number: first };
        assert_eq!(flow.arrived(credit), Err(Impossible(credit)), "more credits than writes");
        flow.arrived(Immediate { credits: 1, ..credit }).expect("one credit");
        assert_eq!(flow.free(48), Some(Area { start: 48 * WRITES_MAX, len: 48 }));
    }

    #[test]
    fn writes_that_cannot_be_are_refused() {
        let good = Immediate { content: Content::Ring(CHUNK_BYTES), credits: 0, number: Number::default() };
        for bad in [
            Immediate { number: good.number.next(), ..good },
            Immediate { credits: 1, ..good },
            Immediate { content: Content::Ring(CHUNK_BYTES + 1), ..good },
        ] {
            assert_eq!(Flow::default().arrived(bad), Err(Impossible(bad)));
        }
        let mut flow = Flow::default();
        let mut number = Number::default();
        for _ in 0..4 {
            flow.arrived(Immediate { number, ..good }).expect("a window");
            number = number.next();
        }
        let fifth = Immediate { number, content: Content::Ring(1), ..good };
        assert_eq!(flow.arrived(fifth), Err(Impossible(fifth)));
        // What is read stays in use until its credit is returned.
        flow.read(CHUNK_BYTES);
        assert_eq!(flow.arrived(fifth), Err(Impossible(fifth)));
        assert!(flow.due_credits().is_some_and(|immediate| immediate.credits == 1));
        flow.arrived(fifth).expect("a byte after a credit");
    }
}
