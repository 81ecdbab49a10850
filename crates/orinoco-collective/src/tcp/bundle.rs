use std::io::IoSlice;
use std::net::Shutdown;

use rustix::event::{PollFd, PollFlags};

use super::connection::Connection;
use crate::message::{Moved, SLICES_MAX};

/// Connections with one rank that carry one stream of bytes: blocks of it go over them in turn. One TCP connection may not fill a fast
/// link, or one with a long delay, by itself.
pub(crate) struct Bundle {
    connections: Vec<Connection>,
    sending: Turn,
    receiving: Turn,
}

/// Bytes of a block: a few packets of the largest size, so that short messages seldom lie in two blocks.
const BLOCK_BYTES: usize = 128 << 10;

/// Connection with the next byte of a direction, and bytes that are left of its block.
#[derive(Debug, Clone, Copy)]
struct Turn {
    at: usize,
    left: usize,
}

impl Turn {
    const FIRST: Self = Self { at: 0, left: BLOCK_BYTES };

    fn advance(&mut self, bytes: usize, connections: usize) {
        self.left -= bytes;
        if self.left == 0 {
            *self = Self { at: (self.at + 1) % connections, left: BLOCK_BYTES };
        }
    }
}

impl Bundle {
    /// Creates the bundle of one or more connections. Both ends have them in the same order.
    pub(crate) fn new(connections: Vec<Connection>) -> Self {
        assert!(!connections.is_empty(), "a bundle of one or more connections");
        Self { connections, sending: Turn::FIRST, receiving: Turn::FIRST }
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.connections.iter().all(Connection::is_sealed)
    }

    /// Whether bytes arrive as they were sent, or not at all.
    pub(crate) fn keeps_whole(&self) -> bool {
        self.connections.iter().all(Connection::keeps_whole)
    }

    /// Sends the beginning of some slices. Until they have moved, the same bytes must be offered again.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> Moved {
        if let [only] = &mut self.connections[..] {
            return only.write(slices);
        }
        let Turn { at, left } = self.sending;
        let slices = first_bytes(slices, left);
        let moved = self.connections[at].write(&slices);
        if let Moved::Bytes(bytes) = moved {
            self.sending.advance(bytes, self.connections.len());
        }
        moved
    }

    pub(crate) fn read(&mut self, into: &mut [u8]) -> Moved {
        if let [only] = &mut self.connections[..] {
            return only.read(into);
        }
        let Turn { at, left } = self.receiving;
        let len = into.len().min(left);
        let moved = self.connections[at].read(&mut into[..len]);
        if let Moved::Bytes(bytes) = moved {
            self.receiving.advance(bytes, self.connections.len());
        }
        moved
    }

    /// Events to wait for: `IN` until something can be read, `OUT` until something can be written.
    pub(crate) fn poll_fds(&self, flags: PollFlags) -> impl Iterator<Item = PollFd<'_>> {
        let ends = [(self.receiving, PollFlags::IN), (self.sending, PollFlags::OUT)];
        let of = move |(turn, flag): (Turn, PollFlags)| {
            flags.contains(flag).then(|| PollFd::new(&self.connections[turn.at], flag))
        };
        ends.into_iter().filter_map(of)
    }

    /// Sends nothing more.
    pub(crate) fn shut_down(&self) {
        for connection in &self.connections {
            // It fails if the other end is closed, which is as good.
            let _ = connection.stream().shutdown(Shutdown::Write);
        }
    }
}

/// The first slices, and no more than so many bytes of them.
fn first_bytes<'b>(slices: &'b [IoSlice<'_>], mut left: usize) -> [IoSlice<'b>; SLICES_MAX] {
    let mut first = [IoSlice::new(&[]); SLICES_MAX];
    for (first, slice) in first.iter_mut().zip(slices) {
        let len = slice.len().min(left);
        *first = IoSlice::new(&slice[..len]);
        left -= len;
    }
    first
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use orinoco_core::Rng;

    use super::*;

    /// Two ends with so many connections between them.
    fn bundles(connections: usize) -> [Bundle; 2] {
        let (near, far) = (0..connections).map(|_| Connection::pair().into()).unzip();
        [near, far].map(Bundle::new)
    }

    #[test]
    fn bytes_come_in_the_order_in_which_they_were_sent() {
        for (connections, seed) in [(1, 1), (2, 2), (3, 3), (8, 4)] {
            let mut rng = Rng::with_seed(seed);
            let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(3_000_000).collect();
            let [mut near, mut far] = bundles(connections);
            let (mut sent, mut received) = (0, Vec::new());
            let mut into = vec![0; 200_000];
            while received.len() < bytes.len() {
                let len = rng.usize(..=300_000).min(bytes.len() - sent);
                let (header, payload) = bytes[sent..sent + len].split_at(rng.usize(..=len));
                let (first, second) = payload.split_at(rng.usize(..=payload.len()));
                if len > 0
                    && let Moved::Bytes(moved) = near.write(&[header, first, second].map(IoSlice::new))
                {
                    sent += moved;
                }
                let len = rng.usize(1..=into.len());
                if let Moved::Bytes(moved) = far.read(&mut into[..len]) {
                    received.extend_from_slice(&into[..moved]);
                }
            }
            assert!(received == bytes, "{connections} connections, seed {seed}");
            near.shut_down();
            assert_eq!(far.read(&mut into), Moved::Closed);
        }
    }

    #[test]
    fn both_directions_are_waited_for_where_they_go_on() {
        let [mut near, _far] = bundles(2);
        let block = vec![7; BLOCK_BYTES];
        let mut left = &block[..];
        while let Moved::Bytes(moved) = near.write(&[IoSlice::new(left)]) {
            left = &left[moved..];
            if left.is_empty() {
                break;
            }
        }
        assert!(left.is_empty(), "a block fits into the buffers of a connection");
        let of = |flags| near.poll_fds(flags).map(|fd| fd.as_fd().as_raw_fd()).collect::<Vec<_>>();
        let fds: Vec<_> = near.connections.iter().map(|c| c.as_fd().as_raw_fd()).collect();
        assert_eq!(of(PollFlags::IN), [fds[0]]);
        assert_eq!(of(PollFlags::OUT), [fds[1]]);
        assert_eq!(of(PollFlags::IN | PollFlags::OUT), fds);
        assert_eq!(of(PollFlags::empty()), []);
    }
}
