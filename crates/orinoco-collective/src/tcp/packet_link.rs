//! Packets of a fixed length over a connection, outside operations.

use std::io::IoSlice;
use std::net::Shutdown;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::connection::Connection;
use crate::clock::pause;
use crate::message::Moved;

/// A connection for packets. It never blocks.
pub(crate) struct PacketLink {
    connection: Connection,
    /// Bytes of packets that have come.
    pending: Vec<u8>,
    unsent: Vec<u8>,
    is_closed: bool,
}

/// Bytes that are read at once.
const READ_BYTES: usize = 2048;
/// Most bytes of packets that wait for a peer that does not take them. Beyond it, packets are left out that may be. It has room for all that a
/// rank of 64 tells at once: each of its waits, and each rank that it blocks.
const UNSENT_MAX: usize = 8192;
/// Bytes of packets beyond which the peer will never take them: the link is closed. Peers read all the time.
const UNSENT_CLOSED: usize = 64 << 10;

impl PacketLink {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection, pending: Vec::new(), unsent: Vec::new(), is_closed: false }
    }

    /// Whether nothing comes any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Events to wait for, unless the link is closed.
    pub(crate) fn poll_fd(&self) -> Option<PollFd<'_>> {
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, !self.unsent.is_empty());
        (!self.is_closed).then(|| PollFd::new(&self.connection, flags))
    }

    /// Adds a packet to those that are to be sent. Signs of life, of which a later one says the same, may be left out. The link is
    /// closed if its peer takes nothing while much that may not be left out waits for it.
    pub(crate) fn push(&mut self, packet: &[u8], may_be_left_out: bool) {
        if self.unsent.len() >= UNSENT_CLOSED {
            self.unsent = Vec::new();
            self.is_closed = true;
        }
        if !self.is_closed && (!may_be_left_out || self.unsent.len() < UNSENT_MAX) {
            self.unsent.extend_from_slice(packet);
        }
    }

    /// Sends what the connection takes.
    pub(crate) fn flush(&mut self) {
        while !self.unsent.is_empty() && !self.is_closed {
            match self.connection.write(&[IoSlice::new(&self.unsent)]) {
                Moved::Bytes(bytes) => drop(self.unsent.drain(..bytes)),
                Moved::Later => return,
                // What the peer sent before is still read: its end shows there.
                Moved::Closed | Moved::Damaged => self.unsent.clear(),
            }
        }
    }

    /// Reads some bytes: a peer that sends without end waits then, until others were read.
    pub(crate) fn read(&mut self) -> Moved {
        if self.is_closed {
            return Moved::Closed;
        }
        let mut bytes = [0; READ_BYTES];
        let moved = self.connection.read(&mut bytes);
        match moved {
            Moved::Bytes(count) => self.pending.extend_from_slice(&bytes[..count]),
            Moved::Later => {}
            Moved::Closed | Moved::Damaged => self.is_closed = true,
        }
        moved
    }

    /// Takes the packets that have come whole.
    pub(crate) fn packets<const BYTES: usize>(&mut self) -> Vec<[u8; BYTES]> {
        let (packets, _) = self.pending.as_chunks::<BYTES>();
        let packets = packets.to_vec();
        self.pending.drain(..packets.len() * BYTES);
        packets
    }

    /// Drops what has come.
    pub(crate) fn clear(&mut self) {
        self.pending.clear();
    }

    /// Sends nothing more.
    pub(crate) fn shut_down(&self) {
        // It fails if the other end is closed, which is as good.
        let _ = self.connection.stream().shutdown(Shutdown::Write);
    }
}

/// Pauses of a thread that reads packets, without which a peer that floods it would keep its core: the thread may have real-time
/// priority. If packets come one by one, just when the thread waits for them, only the kernel's limit for threads of such priority
/// (`sched_rt_runtime_us`, 95 % of the time by default) leaves the core to others.
#[derive(Default)]
pub(crate) struct Pauses {
    /// Consecutive rounds in which something was read, since the last pause.
    rounds: u32,
}

impl Pauses {
    /// Consecutive rounds of reading before a pause. Peers that follow the protocol send far less.
    const ROUNDS_MAX: u32 = 64;
    /// Much less than the time between two signs of life.
    const PAUSE: Duration = Duration::from_millis(1);

    /// Pauses after a round of reading if it is time for that. Returns whether it has.
    pub(crate) fn after_round(&mut self, has_more: bool) -> bool {
        self.rounds = if has_more { self.rounds + 1 } else { 0 };
        let is_due = self.rounds >= Self::ROUNDS_MAX;
        if is_due {
            self.rounds = 0;
            pause(Self::PAUSE);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: [u8; 24] = [7; 24];

    /// A link, and its other end.
    fn link() -> (PacketLink, Connection) {
        let [near, far] = Connection::pair();
        (PacketLink::new(near), far)
    }

    #[test]
    fn a_peer_that_takes_nothing_is_given_up() {
        let (mut link, _far) = link();
        // The system itself takes some megabytes.
        let mut pushed = 0;
        while !link.is_closed() {
            link.push(&PACKET, false);
            link.flush();
            pushed += PACKET.len();
            assert!(link.unsent.len() <= UNSENT_CLOSED + PACKET.len(), "{} bytes wait", link.unsent.len());
            assert!(pushed < 1 << 30, "{pushed} bytes were taken");
        }
        assert_eq!(link.read(), Moved::Closed);
    }

    #[test]
    fn signs_of_life_wait_for_a_slow_peer_without_end() {
        let (mut link, _far) = link();
        for _ in 0..1_000_000 {
            link.push(&PACKET, true);
            link.flush();
        }
        assert!(!link.is_closed());
        assert!(link.unsent.len() <= UNSENT_MAX + PACKET.len(), "{} bytes wait", link.unsent.len());
    }

    #[test]
    fn a_peer_that_sends_without_end_is_read_with_pauses() {
        let (mut link, mut far) = link();
        let bytes = [7; READ_BYTES];
        let mut pauses = Pauses::default();
        let mut read = |is_sent: bool| {
            let mut has_paused = 0;
            for _ in 0..1000 {
                if is_sent {
                    assert_eq!(far.write(&[IoSlice::new(&bytes)]), Moved::Bytes(READ_BYTES));
                }
                let has_more = matches!(link.read(), Moved::Bytes(_));
                assert_eq!(has_more, is_sent);
                link.clear();
                has_paused += u32::from(pauses.after_round(has_more));
            }
            has_paused
        };
        assert_eq!(read(true), 1000 / Pauses::ROUNDS_MAX);
        assert_eq!(read(false), 0);
    }

    #[test]
    fn a_peer_that_sends_now_and_then_is_read_without_pauses() {
        let mut pauses = Pauses::default();
        let mut rounds = (1..10_000).map(|round| round % Pauses::ROUNDS_MAX != 0);
        assert!(!rounds.any(|has_more| pauses.after_round(has_more)));
    }
}
