//! The links of one rank with all others.

use std::mem;

use super::announcer::Announcer;
use super::device::{COLLECTED_MAX, Completion, Device};
use super::flow::PART_BYTES;
use super::sender::Sender;
use super::wire::Wire;
use crate::message::{Engine, LinkFault, Memory, Refusal, StreamReceiver};

/// Links with all other ranks, by rank; none for this rank itself.
pub(super) struct Links {
    links: Vec<Option<Link>>,
    completions: Vec<Completion>,
}

struct Link {
    wire: Wire,
    sender: Sender,
    announcer: Announcer,
    receiver: StreamReceiver,
}

impl Links {
    pub(super) fn new(peers: impl Iterator<Item = Option<usize>>) -> Self {
        let link = |peer: usize| Link {
            wire: Wire::new(peer),
            sender: Sender::new(peer),
            announcer: Announcer::new(peer),
            receiver: StreamReceiver::new(peer),
        };
        let links = peers.map(|peer| peer.map(link)).collect();
        Self { links, completions: Vec::with_capacity(COLLECTED_MAX) }
    }

    pub(super) fn ranks(&self) -> usize {
        self.links.len()
    }

    /// Takes all completions that have come. Returns whether there were any.
    pub(super) fn collect(&mut self, device: &mut impl Device) -> bool {
        let mut has_come = false;
        let mut completions = mem::take(&mut self.completions);
        loop {
            let count = device.collect(&mut completions);
            for completion in completions.drain(..) {
                self.note(completion, device);
            }
            has_come |= count > 0;
            if count < COLLECTED_MAX {
                break;
            }
        }
        self.completions = completions;
        has_come
    }

    fn note(&mut self, completion: Completion, device: &mut impl Device) {
        let (Completion::Written { peer, .. }
        | Completion::Arrived { peer, .. }
        | Completion::Broken { peer }) = completion;
        let Some(link) = self.links[peer].as_mut() else { return };
        match completion {
            Completion::Written { freed, .. } => link.wire.written(freed),
            Completion::Arrived { immediate, .. } => link.wire.arrived(device, immediate),
            Completion::Broken { .. } => link.wire.close(),
        }
    }

    /// Sends and receives what it can without waiting. Returns whether anything moved.
    pub(super) fn carry(
        &mut self,
        engine: &mut Engine,
        memory: &mut Memory<'_>,
        device: &mut impl Device,
    ) -> Result<bool, LinkFault> {
        let mut has_moved = false;
        self.collect(device);
        for link in self.links.iter_mut().flatten() {
            link.announcer.announce(engine, memory, &mut link.wire, device)?;
            has_moved |= link.sender.send(engine, memory, &mut link.wire, device)?;
            has_moved |= link.receive(engine, memory, device)?;
            link.announcer.announce(engine, memory, &mut link.wire, device)?;
            link.wire.return_credits(device);
        }
        Ok(has_moved)
    }

    /// Whether at least so many bytes of an incoming payload are missing, or the send window of some peer is used up.
    pub(super) fn is_bulk(&self, bytes: u64) -> bool {
        let is_bulk = |link: &Link| link.receiver.missing() >= bytes || link.wire.is_full();
        self.links.iter().flatten().any(is_bulk)
    }

    /// Whether this rank's device may still read, or a peer's device still write, memory of the operation.
    pub(super) fn hold_vectors(&self) -> bool {
        let hold = |link: &Link| link.sender.holds_vectors() || link.announcer.lends_vectors();
        self.links.iter().flatten().any(hold)
    }

    pub(super) fn close(&mut self, peer: usize) {
        if let Some(link) = &mut self.links[peer] {
            link.wire.close();
        }
    }

    /// Makes sure that a completion comes when all writes have arrived and all windows are closed. Returns whether something is on its way.
    pub(super) fn finish(&mut self, device: &mut impl Device) -> bool {
        let mut is_busy = false;
        for Link { wire, announcer, .. } in self.links.iter_mut().flatten() {
            let is_closed = announcer.close_windows(wire, device);
            wire.return_credits(device);
            wire.finish(device);
            is_busy |= wire.is_busy() || (wire.is_open() && !is_closed);
        }
        is_busy
    }
}

impl Link {
    fn receive(
        &mut self,
        engine: &mut Engine,
        memory: &mut Memory<'_>,
        device: &mut impl Device,
    ) -> Result<bool, LinkFault> {
        let mut has_moved = false;
        loop {
            has_moved |= self.receiver.receive(engine, memory, |into| self.wire.read(device, into))?;
            let can_return_credits = self.wire.has_slots(1) || !self.wire.is_open();
            if !self.wire.is_direct_next() || self.receiver.is_parked() || !can_return_credits {
                return Ok(has_moved);
            }
            self.read_direct(engine)?;
            // The sender waits for them; checksum and reduction would delay them.
            self.wire.return_credits(device);
            has_moved = true;
        }
    }

    /// Accounts for a direct write of the peer: the next part of the current payload.
    fn read_direct(&mut self, engine: &Engine) -> Result<(), LinkFault> {
        let peer = self.wire.peer();
        let refused = |refusal| LinkFault::Refused { peer, refusal };
        let is_announced = engine.incoming_id(peer).is_some_and(|id| self.announcer.is_direct(id));
        let missing = usize::try_from(self.receiver.missing()).unwrap_or(usize::MAX);
        if !is_announced || missing == 0 {
            return Err(refused(Refusal::Unexpected));
        }
        let part = missing.min(PART_BYTES);
        self.receiver.placed(part).map_err(refused)?;
        self.wire.read_direct(part == missing);
        Ok(())
    }
}
