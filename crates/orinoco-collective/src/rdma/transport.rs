use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::announcement::DIRECT_BYTES;
use super::error::RdmaError;
use super::links::Links;
use super::port::RdmaLink;
use super::verbs::{RdmaCounters, Verbs};
use crate::clock::{Ticks, pause};
use crate::message::{Engine, Health, LinkFault, MappedMemory, Memory, Transport};
use crate::tcp::{Pulse, wait_for};

/// Missing bytes from which a rank sleeps until more come, as over TCP.
const BULK_BYTES: u64 = 64 << 10;
/// Time between two looks for the last completions of a rank that leaves.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// One rank's queue pairs.
///
/// Vectors travel as plain text, without authentication: whoever can send packets in the network of the RDMA devices can read and
/// change them. Ranks are authenticated when they join, and each rkey is valid on one peer's queue pair only.
///
/// A message with a payload of 32 KiB or more is zero-copy if source and destination are each one contiguous range of registered memory (vectors that
/// the group has [allocated](crate::Communicator::allocate), and its working memory), and the receiver has reached the round that needs it. It is
/// written through a memory window that is open until it has arrived. All other messages are copied by the sender into registered memory, and by the
/// receiver out of its ring. Memory is registered when ranks join, and when vectors or working memory are allocated.
pub struct Rdma {
    links: Links,
    verbs: Verbs,
    pulse: Arc<Pulse>,
    silence: Duration,
    port: RdmaLink,
}

impl Rdma {
    /// Creates the transport of a rank whose queue pairs are connected.
    pub(super) fn new(
        verbs: Verbs,
        peers: impl Iterator<Item = Option<usize>>,
        pulse: Arc<Pulse>,
        silence: Duration,
        port: RdmaLink,
    ) -> Self {
        Self { links: Links::new(peers), verbs, pulse, silence, port }
    }

    /// The port that this rank uses, and why no other.
    pub fn link(&self) -> &RdmaLink {
        &self.port
    }

    /// Counters since this rank joined.
    pub fn counters(&self) -> RdmaCounters {
        self.verbs.counters
    }

    /// Closes the links of ranks that have left. A queue pair does not report that its peer has left. All that they sent has arrived before they said so.
    fn close_left(&mut self) {
        let gone: Vec<usize> = self
            .pulse
            .health(|health| (0..self.links.ranks()).filter(|rank| health.gone(*rank).is_some()).collect());
        if !gone.is_empty() {
            self.links.collect(&mut self.verbs);
        }
        gone.into_iter().for_each(|rank| self.links.close(rank));
    }

    /// Waits until all writes have arrived at ranks that are still there, but no longer than a rank may be silent.
    fn finish(&mut self) {
        let start = Ticks::now();
        while Ticks::now().since(start) < self.silence && self.links.finish(&mut self.verbs) {
            if !self.links.collect(&mut self.verbs) {
                pause(LAST_LOOK);
                self.close_left();
            }
        }
    }
}

impl Transport for Rdma {
    fn carry(&mut self, engine: &mut Engine, memory: &mut Memory<'_>) -> Result<bool, LinkFault> {
        self.links.carry(engine, memory, &mut self.verbs)
    }

    fn wait(&mut self, _: &Engine, time: Duration) {
        self.close_left();
        self.verbs.quiet();
        self.verbs.notify();
        // What came before does not make the descriptor readable.
        if self.links.collect(&mut self.verbs) {
            return;
        }
        let descriptor = self.verbs.descriptor();
        let mut awaited = [
            PollFd::from_borrowed_fd(self.pulse.failed().as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(descriptor, PollFlags::IN),
        ];
        wait_for(&mut awaited, time);
    }

    fn is_bulk(&self) -> bool {
        self.links.is_bulk(BULK_BYTES)
    }

    /// Packets have checksums, but not from memory to memory.
    fn keeps_whole(&self, _: usize) -> bool {
        false
    }

    fn expected_bytes(&self) -> Option<usize> {
        Some(DIRECT_BYTES)
    }

    fn register(&mut self, memory: &Arc<MappedMemory>) -> Result<(), RdmaError> {
        // A device may have to send a write once more, and must not find its memory gone.
        self.finish();
        self.verbs.register_vectors(memory)
    }

    fn leave_vectors(&mut self) {
        if self.links.hold_vectors() {
            self.verbs.halt();
            (0..self.links.ranks()).for_each(|rank| self.links.close(rank));
        }
    }

    fn has_machines(&self) -> bool {
        self.pulse.has_machines()
    }

    fn health<R>(&self, look: impl FnOnce(&mut Health) -> R) -> R {
        self.pulse.health(look)
    }
}

impl Drop for Rdma {
    fn drop(&mut self) {
        // After a failure, nobody counts on what is still on its way.
        if self.pulse.health(|health| health.failure().is_none()) {
            self.finish();
        }
        self.pulse.leave();
    }
}
