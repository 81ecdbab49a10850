//! Connection of queue pairs: ranks join by TCP, exchange [`Endpoint`]s over those connections, and connect.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use super::endpoint::{ENDPOINT_BYTES, Endpoint, NUMBER_MAX};
use super::error::RdmaError;
use super::port::{RdmaLink, gid_of};
use super::settings::RdmaSettings;
use super::transport::Rdma;
use super::verbs::{Verbs, rdma_ports};
use crate::clock::Ticks;
use crate::message::MessageGroup;
use crate::tcp::{Connection, EPOCH, TcpSettings, join};
use crate::{JoinError, Rendezvous, Topology};

/// Operations among ranks that are connected by RDMA, as one of them. [`Rdma`] says how vectors are protected.
pub type RdmaGroup = MessageGroup<Rdma>;

/// Said when a rank's queue pair can take writes.
const CONNECTED: [u8; 1] = [1];

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
        let (pulse, connections) = joined.start(rank, EPOCH, messages.silence)?;
        let mut joining = Joining { connections, start, deadline: messages.deadline };
        match joining.connect(device.as_deref()) {
            Ok((verbs, port)) => {
                let peers =
                    joining.connections.iter().enumerate().map(|(peer, own)| own.as_ref().map(|_| peer));
                let rdma = Rdma::new(verbs, peers, pulse, messages.silence, port);
                Ok(Self::joined(rdma, Topology::flat(ranks), rank, EPOCH, messages)?)
            }
            Err(error) => {
                pulse.leave();
                Err(JoinError::Rdma(error))
            }
        }
    }
}

/// A rank that connects its queue pairs.
struct Joining {
    /// Connections for messages, by peer; none for this rank itself.
    connections: Vec<Option<Connection>>,
    start: Ticks,
    deadline: Duration,
}

/// Address of this rank on the connection with a peer, and the place of its GID.
struct Local {
    peer: usize,
    gid_place: u8,
    own: Endpoint,
}

impl Joining {
    fn connect(&mut self, device: Option<&str>) -> Result<(Verbs, RdmaLink), RdmaError> {
        let (mut verbs, port, locals) = match self.prepare(device) {
            Ok(prepared) => prepared,
            Err(error) => {
                self.refuse();
                return Err(error);
            }
        };
        for local in &locals {
            self.send(local.peer, &local.own.encode())?;
        }
        for local in &locals {
            let mut record = [0; ENDPOINT_BYTES];
            self.receive(local.peer, &mut record)?;
            let theirs = Endpoint::decode(&record, local.peer)?;
            verbs.connect(local.peer, port.port.number, local.gid_place, &local.own, &theirs)?;
            self.send(local.peer, &CONNECTED)?;
        }
        for local in &locals {
            self.receive(local.peer, &mut [0; CONNECTED.len()])?;
        }
        Ok((verbs, port))
    }

    /// Chooses a port, and creates a queue pair for each peer.
    fn prepare(&self, device: Option<&str>) -> Result<(Verbs, RdmaLink, Vec<Local>), RdmaError> {
        let peers = self.connections.iter().enumerate();
        let peers: Vec<(usize, &Connection)> =
            peers.filter_map(|(peer, own)| own.as_ref().map(|own| (peer, own))).collect();
        let address = |(peer, connection): &(usize, &Connection)| local_address(*peer, connection);
        let mut addresses = peers.iter().map(address).collect::<Result<Vec<IpAddr>, _>>()?;
        let of_peers = addresses.clone();
        addresses.sort_unstable();
        addresses.dedup();
        let port = RdmaLink::choose(rdma_ports()?, device, &addresses)
            .map_err(|refused| RdmaError::NoPort { addresses, refused })?;
        let mtu = port.port.mtu.expect("a port that was chosen has one");
        let mut verbs = Verbs::open(&port.port.device, self.connections.len())?;
        let mut locals = Vec::new();
        for ((peer, _), address) in peers.into_iter().zip(of_peers) {
            let (gid_place, address) = port.gid(address).expect("a port that was chosen has it");
            let (queue_pair, ring, key) = verbs.add_pair(peer)?;
            let first_packet = first_packet(peer)?;
            let own = Endpoint { mtu, queue_pair, first_packet, gid: gid_of(address), ring, key };
            locals.push(Local { peer, gid_place, own });
        }
        Ok((verbs, port, locals))
    }

    /// Says to all that this rank cannot connect, so that they need not wait.
    fn refuse(&mut self) {
        for peer in 0..self.connections.len() {
            if self.connections[peer].is_some() {
                // A rank that does not get it sees that the connection is closed.
                let _ = self.send(peer, &Endpoint::none());
            }
        }
    }

    fn rest(&self) -> Duration {
        self.deadline.saturating_sub(Ticks::now().since(self.start))
    }

    fn send(&mut self, peer: usize, bytes: &[u8]) -> Result<(), RdmaError> {
        let rest = self.rest();
        let connection = self.connections[peer].as_mut().expect("a connection with a peer");
        connection.send_all(bytes, rest).map_err(|source| RdmaError::Broken { rank: peer, source })
    }

    fn receive(&mut self, peer: usize, into: &mut [u8]) -> Result<(), RdmaError> {
        let rest = self.rest();
        let connection = self.connections[peer].as_mut().expect("a connection with a peer");
        connection.receive_all(into, rest).map_err(|source| RdmaError::Broken { rank: peer, source })
    }
}

fn local_address(peer: usize, connection: &Connection) -> Result<IpAddr, RdmaError> {
    let address = connection.stream().local_addr();
    let address = address.map_err(|source| RdmaError::Broken { rank: peer, source })?;
    Ok(address.ip().to_canonical())
}

/// Draws the number of a queue pair's first packet: a peer's old packets must not be taken for new ones, and nobody should guess it.
fn first_packet(peer: usize) -> Result<u32, RdmaError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes)
        .map_err(|error| RdmaError::Broken { rank: peer, source: io::Error::from(error) })?;
    Ok(u32::from_le_bytes(bytes) & NUMBER_MAX)
}
