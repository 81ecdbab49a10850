use std::mem;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::port::RdmaLink;
use super::verbs::{COLLECTED_MAX, Completion, RdmaCounters, Verbs};
use super::wire::Wire;
use crate::clock::{Ticks, pause};
use crate::message::{Engine, Health, LinkFault, Memory, StreamReceiver, StreamSender, Transport};
use crate::tcp::{Pulse, wait_for};

/// Missing bytes from which a rank sleeps until more come, as over TCP.
const BULK_BYTES: u64 = 64 << 10;
/// Time between two looks for the last completions of a rank that leaves.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// One rank's queue pairs.
///
/// Vectors travel as plain text, without authentication: whoever can send packets in the network of the RDMA devices can read and
/// change them. Ranks are authenticated when they join, and the key of each ring is of use on the queue pair of one peer only.
///
/// A vector is copied twice: by the sender into registered memory, and by the receiver out of its ring. Memory is registered when
/// ranks join, and never again.
pub struct Rdma {
    /// By peer; none for this rank itself.
    links: Vec<Option<Link>>,
    verbs: Verbs,
    completions: Vec<Completion>,
    pulse: Arc<Pulse>,
    silence: Duration,
    port: RdmaLink,
}

struct Link {
    wire: Wire,
    sender: StreamSender,
    receiver: StreamReceiver,
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
        let link = |peer: usize| Link {
            wire: Wire::new(peer),
            sender: StreamSender::new(peer),
            receiver: StreamReceiver::new(peer),
        };
        let links = peers.map(|peer| peer.map(link)).collect();
        Self { links, verbs, completions: Vec::with_capacity(COLLECTED_MAX), pulse, silence, port }
    }

    /// The port that this rank uses, and why no other.
    pub fn link(&self) -> &RdmaLink {
        &self.port
    }

    /// Counters since this rank joined.
    pub fn counters(&self) -> RdmaCounters {
        self.verbs.counters
    }

    /// Takes all completions that have come. Returns whether there were any.
    fn collect(&mut self) -> bool {
        let mut has_come = false;
        let mut completions = mem::take(&mut self.completions);
        loop {
            let count = self.verbs.collect(&mut completions);
            for completion in completions.drain(..) {
                self.note(completion);
            }
            has_come |= count > 0;
            if count < COLLECTED_MAX {
                break;
            }
        }
        self.completions = completions;
        has_come
    }

    fn note(&mut self, completion: Completion) {
        let (Completion::Written { peer, .. }
        | Completion::Arrived { peer, .. }
        | Completion::Broken { peer }) = completion;
        let Some(link) = self.links[peer].as_mut() else { return };
        match completion {
            Completion::Written { freed, .. } => link.wire.written(freed),
            Completion::Arrived { immediate, .. } => link.wire.arrived(&mut self.verbs, immediate),
            Completion::Broken { .. } => link.wire.close(),
        }
    }

    /// Closes the links of ranks that have left. A queue pair does not tell. All that they sent has arrived before they said so.
    fn close_left(&mut self) {
        let gone: Vec<usize> = self
            .pulse
            .health(|health| (0..self.links.len()).filter(|rank| health.gone(*rank).is_some()).collect());
        if !gone.is_empty() {
            self.collect();
        }
        for rank in gone {
            if let Some(link) = &mut self.links[rank] {
                link.wire.close();
            }
        }
    }

    /// Waits until all writes have arrived at ranks that are still there, but no longer than a rank may be silent.
    fn finish(&mut self) {
        let start = Ticks::now();
        while Ticks::now().since(start) < self.silence {
            for link in self.links.iter_mut().flatten() {
                link.wire.finish(&mut self.verbs);
            }
            if !self.links.iter().flatten().any(|link| link.wire.is_busy()) {
                return;
            }
            if !self.collect() {
                pause(LAST_LOOK);
                self.close_left();
            }
        }
    }
}

impl Transport for Rdma {
    fn carry(&mut self, engine: &mut Engine, memory: &mut Memory<'_>) -> Result<bool, LinkFault> {
        let mut has_moved = false;
        self.collect();
        let verbs = &mut self.verbs;
        for Link { wire, sender, receiver } in self.links.iter_mut().flatten() {
            has_moved |= sender.send(engine, memory, |slices| wire.write(verbs, slices))?;
            has_moved |= receiver.receive(engine, memory, |into| wire.read(verbs, into))?;
            wire.return_credits(verbs);
        }
        Ok(has_moved)
    }

    fn wait(&mut self, _: &Engine, time: Duration) {
        self.close_left();
        self.verbs.quiet();
        self.verbs.notify();
        // What came before does not make the descriptor readable.
        if self.collect() {
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
        let is_bulk = |link: &Link| link.receiver.missing() >= BULK_BYTES || link.wire.is_full();
        self.links.iter().flatten().any(is_bulk)
    }

    /// Packets have checksums, but not from memory to memory.
    fn keeps_whole(&self, _: usize) -> bool {
        false
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
