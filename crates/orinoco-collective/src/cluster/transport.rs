//! Transport of a cluster's groups: RDMA if all their members can use it and their settings include it, else TCP.

use std::sync::Arc;
use std::time::Duration;

use super::connect::Seats;
use crate::message::{
    Engine, Health, LinkFault, MappedMemory, Memory, MessageGroup, MessageSettings, Transport,
};
use crate::rdma::{Agreed, Rdma, RdmaError, RdmaLink, RdmaPolicy, RdmaRequest, connect};
use crate::tcp::{Contacts, EPOCH, Joined, Tcp, TcpGroup};
use crate::{JoinError, Topology};

/// Operations among members of a cluster, as one of them.
pub type ClusterGroup = MessageGroup<ClusterTransport>;

/// Longest time in which members agree on RDMA and connect by it.
const AGREEMENT: Duration = Duration::from_secs(2);

/// Whether the groups of a cluster use RDMA, and by which device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterRdma {
    /// Whether they use it. Vectors are not encrypted then: [`Rdma`] says how they are protected.
    pub policy: RdmaPolicy,
    /// Name of the RDMA device (`rdma link` lists them) instead of the one that has the addresses of the TCP connections.
    pub device: Option<String>,
}

/// Transport of a group of a cluster's members.
pub struct ClusterTransport {
    messages: Messages,
    settings: Arc<ClusterRdma>,
    seats: Seats,
    fallback: Option<RdmaError>,
}

enum Messages {
    Tcp(Box<Tcp>),
    Rdma(Box<Rdma>),
}

impl ClusterGroup {
    /// Creates the group of members that are connected by TCP already.
    pub(super) fn of(
        joined: Joined,
        rank: usize,
        epoch: u32,
        settings: MessageSettings,
        rdma: Arc<ClusterRdma>,
        seats: Seats,
    ) -> Result<Self, JoinError> {
        let (ranks, contacts) = (joined.links.len(), Contacts::of(&joined));
        let (pulse, mut connections) = joined.start(rank, epoch, &settings)?;
        let request = RdmaRequest {
            policy: rdma.policy,
            device: rdma.device.as_deref(),
            silence: settings.silence,
            time: AGREEMENT.min(settings.deadline),
        };
        let agreed = connect(&mut connections, &pulse, request);
        let (messages, fallback) = match agreed.inspect_err(|_| pulse.leave()).map_err(JoinError::Rdma)? {
            Agreed::Rdma(rdma) => (Messages::Rdma(Box::new(rdma)), None),
            Agreed::Tcp(why) => {
                let tcp = Tcp::new(pulse, connections, contacts, settings.tcp_encryption);
                (Messages::Tcp(Box::new(tcp)), Some(why))
            }
        };
        let fallback = fallback.filter(|_| rdma.policy != RdmaPolicy::Off);
        let transport = ClusterTransport { messages, settings: rdma, seats, fallback };
        Ok(Self::joined(transport, Topology::flat(ranks), rank, epoch, settings)?)
    }

    /// Makes groups of this group's members as [`TcpGroup::split`] does, but at the addresses and ports in the member list. Each uses
    /// RDMA under the same conditions as this one.
    ///
    /// # Errors
    /// As [`TcpGroup::split`]; if members of the new group require RDMA that not all of them can use; and if the cluster was closed.
    pub fn split(&mut self, color: Option<u32>, key: i32) -> Result<Option<Self>, JoinError> {
        let (settings, rdma) = (self.settings(), Arc::clone(&self.transport().settings));
        let Some((joined, rank, seats)) = self.divide(color, key)? else { return Ok(None) };
        Self::of(joined, rank, EPOCH, settings, rdma, seats).map(Some)
    }

    /// Makes groups of this group's members as [`ClusterGroup::split`] does, with messages over TCP: for a
    /// [`TransferAgent`](crate::transfer::TransferAgent). Groups that are split off from them in turn use ports that the system chooses.
    ///
    /// # Errors
    /// As [`TcpGroup::split`], and if the cluster was closed.
    pub fn split_over_tcp(&mut self, color: Option<u32>, key: i32) -> Result<Option<TcpGroup>, JoinError> {
        let settings = self.settings();
        let Some((joined, rank, _)) = self.divide(color, key)? else { return Ok(None) };
        TcpGroup::of(joined, rank, EPOCH, settings).map(Some)
    }

    fn divide(&mut self, color: Option<u32>, key: i32) -> Result<Option<(Joined, usize, Seats)>, JoinError> {
        let (settings, seats) = (self.settings(), self.transport().seats.clone());
        seats.divide(self, color, key, &settings)
    }
}

impl ClusterTransport {
    /// Name of the transport: `rdma`, `tcp`, or `tcp-plaintext` if messages are not encrypted.
    pub fn name(&self) -> &'static str {
        match &self.messages {
            Messages::Tcp(tcp) if tcp.is_encrypted() => "tcp",
            Messages::Tcp(_) => "tcp-plaintext",
            Messages::Rdma(_) => "rdma",
        }
    }

    /// The RDMA port that this member uses, and why no other. `None` over TCP.
    pub fn rdma_link(&self) -> Option<&RdmaLink> {
        match &self.messages {
            Messages::Tcp(_) => None,
            Messages::Rdma(rdma) => Some(rdma.link()),
        }
    }

    /// Reason for which the group uses TCP although this member's settings include RDMA.
    pub fn fallback(&self) -> Option<&RdmaError> {
        self.fallback.as_ref()
    }
}

impl Transport for ClusterTransport {
    fn carry(&mut self, engine: &mut Engine, memory: &mut Memory<'_>) -> Result<bool, LinkFault> {
        match &mut self.messages {
            Messages::Tcp(tcp) => tcp.carry(engine, memory),
            Messages::Rdma(rdma) => rdma.carry(engine, memory),
        }
    }

    fn wait(&mut self, engine: &Engine, time: Duration) {
        match &mut self.messages {
            Messages::Tcp(tcp) => tcp.wait(engine, time),
            Messages::Rdma(rdma) => rdma.wait(engine, time),
        }
    }

    fn is_bulk(&self) -> bool {
        match &self.messages {
            Messages::Tcp(tcp) => tcp.is_bulk(),
            Messages::Rdma(rdma) => rdma.is_bulk(),
        }
    }

    fn keeps_whole(&self, peer: usize) -> bool {
        match &self.messages {
            Messages::Tcp(tcp) => tcp.keeps_whole(peer),
            Messages::Rdma(rdma) => rdma.keeps_whole(peer),
        }
    }

    fn expected_bytes(&self) -> Option<usize> {
        match &self.messages {
            Messages::Tcp(tcp) => tcp.expected_bytes(),
            Messages::Rdma(rdma) => rdma.expected_bytes(),
        }
    }

    fn register(&mut self, memory: &Arc<MappedMemory>) -> Result<(), RdmaError> {
        match &mut self.messages {
            Messages::Tcp(tcp) => tcp.register(memory),
            Messages::Rdma(rdma) => rdma.register(memory),
        }
    }

    fn leave_vectors(&mut self) {
        match &mut self.messages {
            Messages::Tcp(tcp) => tcp.leave_vectors(),
            Messages::Rdma(rdma) => rdma.leave_vectors(),
        }
    }

    fn has_machines(&self) -> bool {
        match &self.messages {
            Messages::Tcp(tcp) => tcp.has_machines(),
            Messages::Rdma(rdma) => rdma.has_machines(),
        }
    }

    fn health<R>(&self, look: impl FnOnce(&mut Health) -> R) -> R {
        match &self.messages {
            Messages::Tcp(tcp) => tcp.health(look),
            Messages::Rdma(rdma) => rdma.health(look),
        }
    }
}
