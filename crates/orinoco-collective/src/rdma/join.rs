//! Connection of queue pairs: ranks join by TCP, [agree](super::agreement) on RDMA over those connections, and connect.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::agreement::{Agreed, QueuePairs, agree};
use super::endpoint::{Endpoint, NUMBER_MAX};
use super::error::RdmaError;
use super::port::{RdmaLink, gid_of};
use super::settings::{RdmaPolicy, RdmaSettings};
use super::transport::Rdma;
use super::verbs::{Verbs, rdma_ports};
use crate::clock::Ticks;
use crate::message::MessageGroup;
use crate::tcp::{Connection, EPOCH, Pulse, TcpSettings, join};
use crate::{JoinError, Rendezvous, Topology};

/// Operations among ranks that are connected by RDMA, as one of them. [`Rdma`] says how vectors are protected.
pub type RdmaGroup = MessageGroup<Rdma>;

impl RdmaGroup {
    /// Joins a group as one of its ranks. Returns when all have joined.
    ///
    /// # Errors
    /// As [`TcpGroup::join`](crate::TcpGroup), and if this rank or another has no RDMA device that can be used.
    pub fn join(
        rendezvous: &Rendezvous,
        rank: usize,
        ranks: usize,
        settings: RdmaSettings,
    ) -> Result<Self, JoinError> {
        let RdmaSettings { security, device, messages } = settings;
        let start = Ticks::now();
        let joined = join(rendezvous, rank, ranks, &TcpSettings { security, messages })?;
        let (pulse, mut connections) = joined.start(rank, EPOCH, &messages)?;
        let request = RdmaRequest {
            policy: RdmaPolicy::Required,
            device: device.as_deref(),
            silence: messages.silence,
            time: messages.deadline.saturating_sub(Ticks::now().since(start)),
        };
        match connect(&mut connections, &pulse, request) {
            Ok(Agreed::Rdma(rdma)) => Ok(Self::joined(rdma, Topology::flat(ranks), rank, EPOCH, messages)?),
            Ok(Agreed::Tcp(why)) | Err(why) => {
                pulse.leave();
                Err(JoinError::Rdma(why))
            }
        }
    }
}

/// A rank's wish to use RDMA.
#[derive(Clone, Copy)]
pub(crate) struct RdmaRequest<'a> {
    pub(crate) policy: RdmaPolicy,
    /// Name of the device, instead of the one that has the addresses of the TCP connections.
    pub(crate) device: Option<&'a str>,
    /// Time without a heartbeat after which a rank counts as dead.
    pub(crate) silence: Duration,
    /// Longest wait for the other ranks.
    pub(crate) time: Duration,
}

/// Connects a rank with all others by RDMA, if all can. Their TCP connections for messages are then needed no more.
///
/// # Errors
/// A connection broke, or not all ranks can use RDMA and one requires it.
pub(crate) fn connect(
    connections: &mut [Vec<Connection>],
    pulse: &Arc<Pulse>,
    request: RdmaRequest<'_>,
) -> Result<Agreed<Rdma>, RdmaError> {
    let ranks = connections.len();
    // Without RDMA, messages may come next that are not encrypted.
    connections.iter_mut().flatten().for_each(|connection| connection.read_ahead(false));
    let open = |peers: &[(usize, IpAddr)]| OpenPairs::open(ranks, peers, request.device);
    Ok(match agree(connections, request.policy, open, request.time)? {
        Agreed::Rdma(OpenPairs { verbs, port, .. }) => {
            let peers = connections.iter().enumerate().map(|(peer, own)| own.first().map(|_| peer));
            Agreed::Rdma(Rdma::new(verbs, peers, Arc::clone(pulse), request.silence, port))
        }
        Agreed::Tcp(why) => Agreed::Tcp(why),
    })
}

impl RdmaLink {
    /// Finds the port of this machine that has these addresses: the one with the largest packets. An address within the machine
    /// stands for any. `device`: the name of the only device to consider.
    ///
    /// # Errors
    /// There is no such port, or the devices cannot be listed.
    pub fn find(device: Option<&str>, addresses: &[IpAddr]) -> Result<Self, RdmaError> {
        Self::choose(rdma_ports()?, device, addresses)
            .map_err(|refused| RdmaError::NoPort { addresses: addresses.to_vec(), refused })
    }
}

/// Queue pairs on a port of a device.
struct OpenPairs {
    verbs: Verbs,
    port: RdmaLink,
    /// By rank; none for this rank itself.
    ends: Vec<Option<End>>,
}

/// End of a queue pair, and the place of its GID in the port's table.
struct End {
    endpoint: Endpoint,
    gid_place: u8,
}

impl OpenPairs {
    /// Chooses a port, and creates a queue pair for each peer. With each peer comes the address of this rank that it connects to.
    fn open(ranks: usize, peers: &[(usize, IpAddr)], device: Option<&str>) -> Result<Self, RdmaError> {
        let mut addresses: Vec<IpAddr> = peers.iter().map(|(_, address)| *address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let port = RdmaLink::find(device, &addresses)?;
        let mtu = port.port.mtu.expect("a port that was chosen has one");
        let mut verbs = Verbs::open(&port.port.device, ranks)?;
        let mut ends: Vec<Option<End>> = (0..ranks).map(|_| None).collect();
        for (peer, address) in peers {
            let (gid_place, address) = port.gid(*address).expect("a port that was chosen has it");
            let (queue_pair, ring, key) = verbs.add_pair(*peer)?;
            let first_packet = first_packet(*peer)?;
            let endpoint = Endpoint { mtu, queue_pair, first_packet, gid: gid_of(address), ring, key };
            ends[*peer] = Some(End { endpoint, gid_place });
        }
        Ok(Self { verbs, port, ends })
    }

    fn end(&self, peer: usize) -> &End {
        self.ends[peer].as_ref().expect("a queue pair for each peer")
    }
}

impl QueuePairs for OpenPairs {
    fn endpoint(&self, peer: usize) -> &Endpoint {
        &self.end(peer).endpoint
    }

    fn connect(&mut self, peer: usize, theirs: &Endpoint) -> Result<(), RdmaError> {
        let (number, End { endpoint, gid_place }) = (self.port.port.number, self.end(peer));
        let (endpoint, gid_place) = (*endpoint, *gid_place);
        self.verbs.connect(peer, number, gid_place, &endpoint, theirs)
    }
}

/// Draws the number of a queue pair's first packet: a peer's old packets must not be taken for new ones, and nobody should guess it.
fn first_packet(peer: usize) -> Result<u32, RdmaError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes)
        .map_err(|error| RdmaError::Broken { rank: peer, source: io::Error::from(error) })?;
    Ok(u32::from_le_bytes(bytes) & NUMBER_MAX)
}
