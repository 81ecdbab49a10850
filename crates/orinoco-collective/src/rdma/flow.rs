//! Flow of bytes over one link: which bytes of the peer's ring are free, and which of this rank's own can be read.
//!
//! Each direction of a link is a ring in the receiver's memory. The sender writes pieces of at most [`CHUNK_BYTES`] into it, one
//! after the other, each with [`Immediate`] data. When the receiver has read whole writes, it returns a credit for each, with its
//! next write or, before the sender can run out of them, with one of its own. Here are the numbers only, without memory.

use std::collections::VecDeque;

use thiserror::Error;

use super::immediate::{CREDITS_MAX, Immediate, LEN_MAX, Number};
use crate::HEADER_BYTES;

/// Most bytes of one write: at 10 Gb/s they take 200 us, long enough that what a write costs at both ends does not count. A message of 512 KiB,
/// the usual piece, takes two writes with its header.
pub(super) const CHUNK_BYTES: usize = (256 << 10) + HEADER_BYTES;
/// Bytes of a ring: a window of four chunks.
pub(super) const RING_BYTES: usize = 4 * CHUNK_BYTES;
/// Most writes without a credit, for short ones.
pub(super) const WRITES_MAX: usize = 64;
/// Writes after which credits are returned by a write of their own; or the bytes of a chunk.
const CREDITS_DUE: usize = WRITES_MAX / 4;
/// Most writes that the peer may make before this rank looks: those with bytes, those that only return credits (a quarter of the
/// window each), and the last one of a rank that leaves.
pub(super) const ARRIVALS_MAX: usize = WRITES_MAX + WRITES_MAX / CREDITS_DUE + RING_BYTES / CHUNK_BYTES + 1;

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
    /// Bytes of the writes without a credit, the oldest first.
    writes: VecDeque<usize>,
}

/// This rank's ring.
#[derive(Default)]
struct Incoming {
    next: usize,
    unread: usize,
    /// Bytes of the writes that are not read to their end.
    writes: VecDeque<usize>,
    /// Bytes that are read of the first of them.
    read: usize,
    /// Writes that are read, for which credits are to be returned, and their bytes.
    credits: usize,
    credit_bytes: usize,
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
        outgoing.writes.push_back(area.len);
        self.immediate(area.len)
    }

    /// Immediate data of a write that only returns credits, if so many are due that the peer might wait for them.
    pub(super) fn due_credits(&mut self) -> Option<Immediate> {
        let Incoming { credits, credit_bytes, .. } = self.incoming;
        (credits >= CREDITS_DUE || credit_bytes >= CHUNK_BYTES).then(|| self.immediate(0))
    }

    /// Immediate data of a write without bytes, whether credits are due or not.
    pub(super) fn last(&mut self) -> Immediate {
        self.immediate(0)
    }

    fn immediate(&mut self, len: usize) -> Immediate {
        let number = self.next_sent;
        self.next_sent = number.next();
        self.incoming.credit_bytes = 0;
        Immediate { len, credits: std::mem::take(&mut self.incoming.credits), number }
    }

    /// Notes a write of the peer.
    ///
    /// # Errors
    /// If the peer cannot have made it: it comes from elsewhere, or the peer does not do as this version does.
    pub(super) fn arrived(&mut self, immediate: Immediate) -> Result<(), Impossible> {
        let Immediate { len, credits, number } = immediate;
        let Self { outgoing, incoming, .. } = self;
        let end = (incoming.next + incoming.unread) % RING_BYTES;
        let held = incoming.unread + incoming.read + incoming.credit_bytes;
        let is_possible = number == self.next_received
            && credits <= outgoing.writes.len()
            && len <= CHUNK_BYTES.min(RING_BYTES - end)
            && held + len <= RING_BYTES
            && (len == 0 || incoming.writes.len() + incoming.credits < WRITES_MAX);
        if !is_possible {
            return Err(Impossible(immediate));
        }
        self.next_received = number.next();
        outgoing.used -= outgoing.writes.drain(..credits).sum::<usize>();
        if len > 0 {
            incoming.writes.push_back(len);
            incoming.unread += len;
        }
        Ok(())
    }

    /// The next bytes that can be read at once, up to the ring's end. Empty if there are none.
    pub(super) fn readable(&self) -> Area {
        let Incoming { next, unread, .. } = self.incoming;
        Area { start: next, len: unread.min(RING_BYTES - next) }
    }

    /// Notes that so many of the readable bytes are read.
    pub(super) fn read(&mut self, len: usize) {
        assert!(len <= self.readable().len, "{len} bytes are not readable");
        let incoming = &mut self.incoming;
        incoming.next = (incoming.next + len) % RING_BYTES;
        incoming.unread -= len;
        incoming.read += len;
        while let Some(write) = incoming.writes.front().copied().filter(|write| *write <= incoming.read) {
            incoming.writes.pop_front();
            incoming.read -= write;
            incoming.credits += 1;
            incoming.credit_bytes += write;
        }
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
            end.flow.arrived(Immediate::decode(immediate.encode())).expect("a possible write");
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
        Receive(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<(bool, Step)>> {
        let len = prop_oneof![1usize..200, 1usize..3 * CHUNK_BYTES];
        let step = prop_oneof![len.clone().prop_map(Step::Send), len.prop_map(Step::Receive)];
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
                    Step::Receive(most) => receive(end, peer, most),
                }
            }
            // Whatever was done before, both can send again once all is read.
            let [first, second] = &mut ends;
            for _ in 0..4 {
                receive(first, second, RING_BYTES);
                receive(second, first, RING_BYTES);
            }
            prop_assert_eq!((first.received, second.received), (second.sent, first.sent));
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
        let credit = Immediate { len: 0, credits: WRITES_MAX + 1, number: first };
        assert_eq!(flow.arrived(credit), Err(Impossible(credit)), "more credits than writes");
        flow.arrived(Immediate { credits: 1, ..credit }).expect("one credit");
        assert_eq!(flow.free(48), Some(Area { start: 48 * WRITES_MAX, len: 48 }));
    }

    #[test]
    fn writes_that_cannot_be_are_refused() {
        let good = Immediate { len: CHUNK_BYTES, credits: 0, number: Number::default() };
        for bad in [
            Immediate { number: good.number.next(), ..good },
            Immediate { credits: 1, ..good },
            Immediate { len: CHUNK_BYTES + 1, ..good },
        ] {
            assert_eq!(Flow::default().arrived(bad), Err(Impossible(bad)));
        }
        let mut flow = Flow::default();
        let mut number = Number::default();
        for _ in 0..4 {
            flow.arrived(Immediate { number, ..good }).expect("a window");
            number = number.next();
        }
        let fifth = Immediate { number, len: 1, ..good };
        assert_eq!(flow.arrived(fifth), Err(Impossible(fifth)));
        // What is read stays in use until its credit is returned.
        flow.read(CHUNK_BYTES);
        assert_eq!(flow.arrived(fifth), Err(Impossible(fifth)));
        assert!(flow.due_credits().is_some_and(|immediate| immediate.credits == 1));
        flow.arrived(fifth).expect("a byte after a credit");
    }
}
