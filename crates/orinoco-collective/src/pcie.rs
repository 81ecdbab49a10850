//! Messages through a mapped PCI window, or any other memory that ranks can map: a BAR that boards share, a non-transparent bridge's
//! or an endpoint's window, a file in `/dev/shm`.
//!
//! Each rank has an inbox in the window, with a byte ring for the messages and one for the notices of every other rank. What is in
//! an inbox is written by others and read by its owner alone, each word by one rank ([`layout`]). So the data path consists of
//! posted writes into others' inboxes and of reads in the own one: nothing is read from another's inbox, nothing is read, changed and
//! written back, and no lock or atomic exchange crosses the bus. A rank that waits looks again and again, and then sleeps in between:
//! there are no doorbells.
//!
//! Ranks are authenticated when they join. After that, messages are **not encrypted**: whoever can map the window, or listens on the
//! bus, can read and change them. Checksums find what was damaged by accident.

mod hello;
mod join;
mod layout;
mod mapping;
mod meeting;
#[cfg(test)]
mod posted;
mod pulse;
mod settings;
#[cfg(test)]
mod simulated;
mod window;
mod window_ring;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Ticks, pause};
use crate::message::{
    Engine, Health, LinkFault, Memory, MessageGroup, MessageSettings, Moved, Refusal, StreamReceiver,
    StreamSender, Transport,
};
use crate::silence::check_silence;
use crate::tcp::EPOCH;
use crate::{JoinError, Topology};
use layout::RANKS_MAX;
use mapping::Mapping;
use pulse::Pulse;
use window_ring::{Ends, Rings};

pub use settings::PcieSettings;

/// Operations among ranks that exchange messages through a PCI window, as one of them.
pub type PcieGroup = MessageGroup<Pcie>;

/// First sleep of a rank that waits.
const SLEEP_MIN: Duration = Duration::from_micros(20);
/// Longest sleep between two looks: each doubles the one before.
const SLEEP_MAX: Duration = Duration::from_millis(1);

impl PcieGroup {
    /// Joins a group as one of its ranks, through a window that all name: a PCI BAR (`/sys/bus/pci/devices/*/resource2`, or
    /// `resource2_wc`), or a file. Returns when all have joined. A file that does not exist is made by rank 0 and removed when all have
    /// joined; one that exists must be empty memory, or have served such a group before, and keeps its name until all have joined.
    /// It must belong to this user, nobody else may write to it, and it must not be a symbolic link.
    ///
    /// # Errors
    /// If the window cannot be mapped or is too small, if another user can write to its file, if it leads to other machines and there
    /// are no keys, if a rank has other settings or another key, or if not all join before the deadline.
    pub fn join(path: &Path, rank: usize, ranks: usize, settings: PcieSettings) -> Result<Self, JoinError> {
        if rank >= ranks || ranks > RANKS_MAX {
            return Err(JoinError::Ranks { rank, ranks, max: RANKS_MAX });
        }
        check_silence(settings.messages.silence)?;
        let (mapping, joined) = join::join(path, rank, ranks, &settings)?;
        let pcie = Pcie::new(rank, mapping, joined, &settings.messages).map_err(JoinError::System)?;
        Ok(Self::joined(pcie, Topology::flat(ranks), rank, EPOCH, settings.messages)?)
    }
}

/// One rank's ends of the rings.
pub struct Pcie {
    window: Arc<Mapping>,
    /// By peer; none for this rank itself.
    links: Vec<Option<Link>>,
    pulse: Pulse,
}

struct Link {
    peer: usize,
    ends: Ends,
    sender: StreamSender,
    receiver: StreamReceiver,
}

impl Pcie {
    fn new(
        rank: usize,
        mapping: Mapping,
        joined: Vec<Option<Rings>>,
        settings: &MessageSettings,
    ) -> std::io::Result<Self> {
        let window = Arc::new(mapping);
        let (links, notices) = joined.into_iter().enumerate().map(|(peer, rings)| split(peer, rings)).unzip();
        let pulse = Pulse::start(rank, EPOCH, Arc::clone(&window), notices, settings)?;
        Ok(Self { window, links, pulse })
    }

    /// Whether something can be done for the operation: a message has come, or one can be sent.
    fn is_ready(&mut self, engine: &Engine) -> bool {
        let window = &*self.window;
        self.links.iter_mut().flatten().any(|link| {
            let is_gone = self.pulse.is_gone(link.peer);
            let has_input = engine.awaits(link.peer) && !link.receiver.is_parked();
            (has_input && (is_gone || link.ends.incoming.has_input(window)))
                || (engine.has_message(link.peer) && (is_gone || link.ends.outgoing.has_room(window)))
        })
    }
}

/// A link and its ends for notices, if there is a peer.
fn split(peer: usize, rings: Option<Rings>) -> (Option<Link>, Option<Ends>) {
    let Some(Rings { messages, notices }) = rings else { return (None, None) };
    let (sender, receiver) = (StreamSender::new(peer), StreamReceiver::new(peer));
    (Some(Link { peer, ends: messages, sender, receiver }), Some(notices))
}

impl Link {
    /// Sends and receives what can be at once.
    fn carry(
        &mut self,
        window: &Mapping,
        is_gone: bool,
        engine: &mut Engine,
        memory: &mut Memory<'_>,
    ) -> Result<bool, LinkFault> {
        // A ring has no end. A peer that has left fills none any more, and empties none.
        let or_closed = |moved| if is_gone && moved == Moved::Later { Moved::Closed } else { moved };
        let Ends { outgoing, incoming } = &mut self.ends;
        let mut is_damaged = false;
        let sent = self.sender.send(engine, memory, |slices| {
            let moved = outgoing.write(window, slices);
            is_damaged |= moved == Moved::Damaged;
            or_closed(moved)
        });
        if is_damaged {
            return Err(LinkFault::Refused { peer: self.peer, refusal: Refusal::Unexpected });
        }
        let received =
            self.receiver.receive(engine, memory, |into| or_closed(incoming.read(window, into)))?;
        Ok(sent? | received)
    }
}

impl Transport for Pcie {
    fn carry(&mut self, engine: &mut Engine, memory: &mut Memory<'_>) -> Result<bool, LinkFault> {
        let mut has_moved = false;
        for link in self.links.iter_mut().flatten() {
            // Asked before the rings are looked at: what the peer has sent before it left is in them then.
            let is_gone = self.pulse.is_gone(link.peer);
            has_moved |= link.carry(&self.window, is_gone, engine, memory)?;
        }
        Ok(has_moved)
    }

    fn wait(&mut self, engine: &Engine, time: Duration) {
        let start = Ticks::now();
        let mut sleep = SLEEP_MIN;
        while !self.is_ready(engine) && !self.pulse.has_failed() {
            let waited = Ticks::now().since(start);
            if waited >= time {
                return;
            }
            pause(sleep.min(time - waited));
            sleep = (2 * sleep).min(SLEEP_MAX);
        }
    }

    /// Never: the core that sleeps is the one that would carry the rest.
    fn is_bulk(&self) -> bool {
        false
    }

    /// Never: what crosses a bus and a bridge has a checksum.
    fn keeps_whole(&self, _: usize) -> bool {
        false
    }

    fn health<R>(&self, look: impl FnOnce(&mut Health) -> R) -> R {
        self.pulse.health(look)
    }
}
