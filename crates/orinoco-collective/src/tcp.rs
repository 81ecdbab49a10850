//! Messages over TCP: for each pair of ranks one connection or several for the messages of operations, and one for notices.
//!
//! The caller's thread sends and receives messages by itself, without a thread in between: a short message is on its way before the
//! call waits. A thread of the group exchanges notices, so that a rank that computes gives signs of life.

mod bundle;
mod connection;
mod contacts;
mod directory;
mod hello;
#[cfg(test)]
mod hostile;
mod join;
mod lobby;
#[cfg(test)]
mod negotiation;
mod offer;
mod packet_link;
mod port_sharing;
mod program_port;
mod pulse;
mod rendezvous;
mod settings;
mod shrink;
mod socket;
mod target;

use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use crate::message::{
    Engine, Health, LinkFault, Memory, MessageGroup, MessageSettings, StreamReceiver, StreamSender,
    TCP_CONNECTIONS_MAX, Transport, VOTING_RANKS_MAX,
};
use crate::silence::check_silence;
use crate::{JoinError, Topology};

pub(crate) use bundle::Bundle;
pub(crate) use connection::Connection;
pub(crate) use contacts::Contacts;
pub(crate) use hello::{Answer, ClusterHello, EPOCH, Hello, Use};
pub(crate) use join::{JoinAttempt, Joined, Links, PeerLinks, Place, digest};
pub(crate) use lobby::Lobby;
pub(crate) use offer::{Capabilities, Offer};
pub(crate) use packet_link::{PacketLink, Pauses};
pub(crate) use port_sharing::PortSharing;
pub(crate) use pulse::Pulse;
pub(crate) use socket::{flag, lower, raise, wait_for};

pub use rendezvous::{Rendezvous, SharedPorts};
pub use settings::TcpSettings;

/// Operations among ranks that are connected by TCP, as one of them.
pub type TcpGroup = MessageGroup<Tcp>;

/// Missing bytes from which a rank sleeps until more come: they take 50 us at 10 Gb/s, waking up about 10 us.
const BULK_BYTES: u64 = 64 << 10;
/// Most ranks of a group: each has two connections with every other.
const RANKS_MAX: usize = 64;

const _: () = assert!(RANKS_MAX <= VOTING_RANKS_MAX, "a bit of a vote for each rank");

impl TcpGroup {
    /// Joins a group as one of its ranks. Returns when all have joined.
    ///
    /// # Errors
    /// If an address is of another machine and there are no keys, if this rank cannot listen at its own address, if a rank has other
    /// settings or another key, or if not all join before the deadline.
    pub fn join(
        rendezvous: &Rendezvous,
        rank: usize,
        ranks: usize,
        settings: TcpSettings,
    ) -> Result<Self, JoinError> {
        let joined = join(rendezvous, rank, ranks, &settings)?;
        Self::of(joined, rank, EPOCH, settings.messages)
    }

    /// Creates the group of ranks that are connected already.
    pub(crate) fn of(
        joined: Joined,
        rank: usize,
        epoch: u32,
        settings: MessageSettings,
    ) -> Result<Self, JoinError> {
        let ranks = joined.links.len();
        let tcp = Tcp::start(joined, rank, epoch, &settings)?;
        Ok(Self::joined(tcp, Topology::flat(ranks), rank, epoch, settings)?)
    }

    /// Makes groups of this group's ranks, as `MPI_Comm_split` does. Ranks that name the same colour form one, in the order of
    /// their keys and then of their ranks here; a rank without a colour belongs to none, and gets `None`. All ranks must call it.
    ///
    /// The new group has the settings of this one, and connections of its own: each rank listens at the address it has here, at a
    /// port that the system chooses, or shares the port of its board's daemon again. A rank that has several addresses is reached at that of the connection that this group has with it. They are protected as this group's are: with a group key, by a new key, which the ranks of this
    /// group tell one another; with key pairs, by the same ones. The two groups are independent: a failure of one does not
    /// end the other, and each names ranks by its own numbers. Making a group takes two connections and handshakes with each of its
    /// ranks: make it once, and use it again and again.
    ///
    /// # Errors
    /// If this group has failed, if a rank of the new group fails before all have joined it, or if they cannot join it (see
    /// [`TcpGroup::join`]).
    pub fn split(&mut self, color: Option<u32>, key: i32) -> Result<Option<Self>, JoinError> {
        let (settings, contacts) = (self.settings(), self.transport().contacts.clone());
        let pulse = Arc::clone(self.transport().pulse());
        let Some((joined, rank)) = contacts.divide(self, &pulse, color, key, &settings)? else {
            return Ok(None);
        };
        Self::of(joined, rank, EPOCH, settings).map(Some)
    }
}

/// Connects a rank with all others.
pub(crate) fn join(
    rendezvous: &Rendezvous,
    rank: usize,
    ranks: usize,
    settings: &TcpSettings,
) -> Result<Joined, JoinError> {
    if rank >= ranks || ranks > RANKS_MAX {
        return Err(JoinError::Ranks { rank, ranks, max: RANKS_MAX });
    }
    check_connections(&settings.messages)?;
    check_silence(settings.messages.silence)?;
    join::join(rendezvous, rank, ranks, settings)
}

/// Checks that there can be as many connections between two ranks.
pub(crate) fn check_connections(settings: &MessageSettings) -> Result<(), JoinError> {
    let connections = settings.tcp_connections;
    match (1..=TCP_CONNECTIONS_MAX).contains(&connections) {
        true => Ok(()),
        false => Err(JoinError::Connections { connections, max: TCP_CONNECTIONS_MAX }),
    }
}

impl Joined {
    /// Starts the exchange of notices. Returns what exchanges them, and by rank the connections for messages.
    pub(crate) fn start(
        self,
        rank: usize,
        epoch: u32,
        settings: &MessageSettings,
    ) -> Result<(Arc<Pulse>, Vec<Vec<Connection>>), JoinError> {
        self.check_capabilities(settings)?;
        let common = Capabilities::in_common(&self.capabilities());
        let (notices, messages) = self.links.into_iter().map(PeerLinks::into_parts).unzip();
        let pulse = Pulse::start(rank, epoch, notices, common, settings).map_err(JoinError::System)?;
        Ok((pulse, messages))
    }
}

/// One rank's connections.
pub struct Tcp {
    /// By peer; none for this rank itself.
    links: Vec<Option<Link>>,
    pulse: Arc<Pulse>,
    contacts: Contacts,
}

struct Link {
    bundle: Bundle,
    sender: StreamSender,
    receiver: StreamReceiver,
}

impl Tcp {
    /// Starts the transport of a rank that has just joined.
    fn start(joined: Joined, rank: usize, epoch: u32, settings: &MessageSettings) -> Result<Self, JoinError> {
        let contacts = Contacts::of(&joined);
        let (pulse, messages) = joined.start(rank, epoch, settings)?;
        Ok(Self::new(pulse, messages, contacts, settings.tcp_encryption))
    }

    /// Creates the transport of a rank that is connected with all others. `is_encrypted`: whether messages are encrypted as the
    /// connections are so far.
    pub(crate) fn new(
        pulse: Arc<Pulse>,
        mut messages: Vec<Vec<Connection>>,
        contacts: Contacts,
        is_encrypted: bool,
    ) -> Self {
        for connection in messages.iter_mut().flatten() {
            match is_encrypted {
                true => connection.read_ahead(true),
                false => connection.unseal(),
            }
        }
        let link = |(peer, connections): (usize, Vec<Connection>)| {
            let (sender, receiver) = (StreamSender::new(peer), StreamReceiver::new(peer));
            (!connections.is_empty()).then(|| Link { bundle: Bundle::new(connections), sender, receiver })
        };
        Self { links: messages.into_iter().enumerate().map(link).collect(), pulse, contacts }
    }

    /// Takes the connections for messages out, by peer, with the bytes that were read from them and not used. No operation follows.
    pub(crate) fn take_bundles(&mut self) -> Vec<Option<(Bundle, Vec<u8>)>> {
        let links = std::mem::take(&mut self.links).into_iter();
        links.map(|link| link.map(|link| (link.bundle, link.receiver.into_unused()))).collect()
    }

    /// Whether messages are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.links.iter().flatten().all(|link| link.bundle.is_sealed())
    }

    pub(crate) fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }
}

impl Transport for Tcp {
    fn carry(&mut self, engine: &mut Engine, memory: &mut Memory<'_>) -> Result<bool, LinkFault> {
        let mut has_moved = false;
        for link in self.links.iter_mut().flatten() {
            let bundle = &mut link.bundle;
            has_moved |= link.sender.send(engine, memory, |slices| bundle.write(slices))?;
            has_moved |= link.receiver.receive(engine, memory, |into| bundle.read(into))?;
        }
        Ok(has_moved)
    }

    fn wait(&mut self, engine: &Engine, time: Duration) {
        let mut awaited = vec![PollFd::new(self.pulse.failed(), PollFlags::IN)];
        for (peer, link) in self.links.iter().enumerate() {
            let Some(link) = link else { continue };
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, engine.awaits(peer) && !link.receiver.is_parked());
            flags.set(PollFlags::OUT, engine.has_message(peer));
            awaited.extend(link.bundle.poll_fds(flags));
        }
        wait_for(&mut awaited, time);
    }

    fn is_bulk(&self) -> bool {
        self.links.iter().flatten().any(|link| link.receiver.missing() >= BULK_BYTES)
    }

    fn keeps_whole(&self, peer: usize) -> bool {
        self.links[peer].as_ref().is_some_and(|link| link.bundle.keeps_whole())
    }

    fn has_machines(&self) -> bool {
        self.pulse.has_machines()
    }

    fn health<R>(&self, look: impl FnOnce(&mut Health) -> R) -> R {
        self.pulse.health(look)
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        self.pulse.leave();
    }
}
