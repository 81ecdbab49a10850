//! One-sided transfers between ranks: a rank registers *regions*, which are memory of its process, memory of a device or files, and others put bytes into them and get
//! bytes out of them. The program of the owner takes no part: a thread of its [`TransferAgent`] serves them.
//!
//! An agent takes over a [`TcpGroup`]: its connections, with their authentication and encryption, and its heartbeats. One thread for
//! each other rank sends this rank's requests and serves the peer's, over one connection (`worker`); the protocol itself knows neither
//! sockets nor clock (`dialogue`), and `frame` has the wire format.
//!
//! - Long transfers are cut into pieces of 256 KiB, four of which are under way at a time: memory does not depend on their size.
//! - The owner checks access, names and ranges. What it refuses fails that transfer alone.
//! - Peers are not trusted to keep the protocol: who breaks it is named, and transfers with others go on.
//! - No byte is written to memory that is no longer registered, or whose call has returned. On the requesting rank, the connection
//!   thread never touches the caller's memory or file: the calling thread copies between them and the thread's buffers, so the memory
//!   of a call that has timed out is never written to later. Answers to a transfer that was given up are recognised and dropped. On the
//!   owner, the connection thread accesses the region under its lock, and a region that was unregistered is never accessed.
//!
//! Read first: [`TransferAgent`], [`Region`], [`TransferOptions`].

mod buffer;
mod dialogue;
mod error;
mod frame;
#[cfg(test)]
mod hostile;
mod limits;
mod notification;
mod operation;
mod options;
mod region;
mod requests;
mod shared;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::tcp::{Tcp, flag, raise};
use crate::{Communicator, FailureCause, TcpGroup};

use error::own_fault;
use notification::Notifications;
use operation::{Operation, Side};
use region::{Registry, check_name};
use requests::Requests;
use shared::Shared;
use worker::Worker;

pub use error::{RefusalReason, TransferError};
pub use notification::Notification;
pub use options::TransferOptions;
pub use region::{Access, DeviceMemory, Region, RegionHandle, RegionInfo, Tier};

/// One rank's end of all transfers with the other ranks of a group.
///
/// Several threads may call it at once. Transfers under way at the same time are not ordered among themselves; one that begins after
/// another has returned sees its bytes.
///
/// ```no_run
/// # use orinoco_collective::{TcpGroup, transfer::*};
/// # fn example(group: TcpGroup, file: std::fs::File) -> Result<(), Box<dyn std::error::Error>> {
/// let agent = TransferAgent::start(group)?;
/// let len = file.metadata()?.len();
/// let model = agent.register("model", Region::file(file, len)?, Access::Read)?;
/// // On another rank:
/// let mut header = [0; 8];
/// agent.get(0, "model", 0, &mut header, TransferOptions::default())?;
/// # Ok(())
/// # }
/// ```
///
/// Dropping it notifies the other ranks that this rank leaves. Answers that are due are sent first, for as long as the group's `silence`.
pub struct TransferAgent {
    rank: usize,
    /// By peer; none for this rank itself.
    peers: Vec<Option<Arc<Requests>>>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Health of the group, which ends with it.
    transport: Option<Tcp>,
}

/// First byte of one side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position<'a> {
    /// Owner of the region.
    pub rank: usize,
    /// Name of the region.
    pub region: &'a str,
    /// Offset in the region, in bytes.
    pub offset: u64,
}

impl TransferAgent {
    /// Starts the agent of a group's rank, and takes the group over: make one for it with [`TcpGroup::split`]. Every message that was
    /// sent in the group must have been received.
    ///
    /// The ranks may start their agents at different times. Requests to one that has not started wait, up to their deadline.
    ///
    /// # Errors
    /// If the group has failed, or if the system refuses a thread.
    pub fn start(group: TcpGroup) -> Result<Self, TransferError> {
        let (rank, silence) = (group.rank(), group.settings().silence);
        let mut transport = group.into_transport();
        let pulse = Arc::clone(transport.pulse());
        if let Some(failure) = pulse.health(|health| health.failure()) {
            return Err(TransferError::RankFailed { rank: failure.rank, cause: failure.cause });
        }
        let bundles = transport.take_bundles();
        let shared = Arc::new(Shared {
            registry: Arc::new(Registry::default()),
            notifications: Notifications::default(),
            buffers: Arc::default(),
            pulse,
            silence,
            is_leaving: AtomicBool::new(false),
        });
        let (peers, threads) = (Vec::new(), Vec::new());
        let mut agent = Self { rank, peers, shared, threads, transport: Some(transport) };
        for (peer, bundle) in bundles.into_iter().enumerate() {
            let Some(bundle) = bundle else {
                agent.peers.push(None);
                continue;
            };
            let wake = Arc::new(flag().map_err(|error| TransferError::Start(error.into()))?);
            agent.shared.pulse.watch(Arc::clone(&wake));
            let requests = Arc::new(Requests::new(wake));
            let worker = Worker::new(peer, Arc::clone(&agent.shared), Arc::clone(&requests), bundle);
            agent.peers.push(Some(requests));
            let thread = thread::Builder::new().name("orinoco-transfer".to_owned());
            agent.threads.push(thread.spawn(move || worker.run()).map_err(TransferError::Start)?);
        }
        Ok(agent)
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.peers.len()
    }

    /// The reason for which another rank has failed or left, if it has. It is known without a transfer.
    pub fn failure(&self, rank: usize) -> Option<FailureCause> {
        self.peers.get(rank)?.as_ref()?.failure()
    }

    /// Exposes a region to the other ranks under a name of 1 to 64 bytes, which no other region of this rank has. The registration ends
    /// when the handle is dropped.
    ///
    /// # Errors
    /// If the name is too long or taken, if this rank has 1024 regions already, or if a file was not opened for the access.
    pub fn register(
        &self,
        name: &str,
        region: Region,
        access: Access,
    ) -> Result<RegionHandle, TransferError> {
        self.shared.registry.register(name, region, access)
    }

    /// Lists the regions of another rank, in the order of their names.
    ///
    /// # Errors
    /// If the rank has failed, or does not answer before the deadline.
    pub fn regions(&self, peer: usize, deadline: Duration) -> Result<Vec<RegionInfo>, TransferError> {
        let options = TransferOptions { deadline, ..TransferOptions::default() };
        let requests = self.requests(peer)?;
        Operation { peer, region: "", offset: 0, bytes: 0, options, requests, buffers: &self.shared.buffers }
            .list()
    }

    /// Writes bytes to a region of another rank. Returns when all are in it.
    ///
    /// # Errors
    /// If the rank refuses it, has failed, or does not take all before the deadline. A part may then be in the region.
    pub fn put(
        &self,
        peer: usize,
        region: &str,
        offset: u64,
        source: &[u8],
        options: TransferOptions,
    ) -> Result<(), TransferError> {
        let operation = self.operation(peer, region, offset, source.len() as u64, options)?;
        operation.run(Side::Source(&mut |piece, into| {
            into.copy_from_slice(&source[piece as usize..][..into.len()]);
            Ok(())
        }))
    }

    /// Reads bytes from a region of another rank.
    ///
    /// # Errors
    /// If the rank refuses it, has failed, or does not give all before the deadline. `into` may then hold a part.
    pub fn get(
        &self,
        peer: usize,
        region: &str,
        offset: u64,
        into: &mut [u8],
        options: TransferOptions,
    ) -> Result<(), TransferError> {
        let operation = self.operation(peer, region, offset, into.len() as u64, options)?;
        operation.run(Side::Sink(&mut |piece, bytes| {
            into[piece as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }))
    }

    /// Copies bytes between a region of this rank, whatever access others have to it, and one of another.
    ///
    /// # Errors
    /// As for [`TransferAgent::put`] and [`TransferAgent::get`], and if this rank's own region has no such range, or its file cannot be
    /// read or written.
    pub fn copy(
        &self,
        from: Position<'_>,
        to: Position<'_>,
        bytes: u64,
        options: TransferOptions,
    ) -> Result<(), TransferError> {
        let (own, other) = match (from.rank == self.rank, to.rank == self.rank) {
            (true, false) => (from, to),
            (false, true) => (to, from),
            _ => return Err(TransferError::Elsewhere { rank: self.rank, from: from.rank, to: to.rank }),
        };
        let fault = |why| own_fault(own.region, why);
        let operation = self.operation(other.rank, other.region, other.offset, bytes, options)?;
        let region = self.shared.registry.find(own.region, 0).map_err(fault)?;
        region.check_range(own.offset, bytes).map_err(fault)?;
        if own == from {
            return operation
                .run(Side::Source(&mut |piece, into| region.read(own.offset + piece, into).map_err(fault)));
        }
        operation
            .run(Side::Sink(&mut |piece, bytes| region.write(own.offset + piece, bytes).map_err(fault)))?;
        if options.durable { region.sync().map_err(fault) } else { Ok(()) }
    }

    /// Takes the oldest notification of a transfer with this rank's regions. Waits for one no longer than `time`; `None` if none comes.
    ///
    /// Those of one rank are in the order of its transfers. Up to 1024 are kept; beyond that, transfers that would add one are refused
    /// ([`RefusalReason::NotificationsFull`]).
    pub fn next_notification(&self, time: Duration) -> Option<Notification> {
        self.shared.notifications.next(time)
    }

    fn requests(&self, peer: usize) -> Result<&Requests, TransferError> {
        let requests = self.peers.get(peer).and_then(Option::as_deref);
        requests.ok_or(TransferError::NoRank { rank: peer, ranks: self.ranks() })
    }

    fn operation<'a>(
        &'a self,
        peer: usize,
        region: &'a str,
        offset: u64,
        bytes: u64,
        options: TransferOptions,
    ) -> Result<Operation<'a>, TransferError> {
        check_name(region)?;
        let requests = self.requests(peer)?;
        Ok(Operation { peer, region, offset, bytes, options, requests, buffers: &self.shared.buffers })
    }
}

impl Drop for TransferAgent {
    fn drop(&mut self) {
        self.shared.is_leaving.store(true, Ordering::Release);
        self.peers.iter().flatten().for_each(|requests| raise(requests.wake()));
        // This notifies the other ranks that this rank leaves. Peers still read what the threads send, and then close their connections,
        // so these end.
        drop(self.transport.take());
        for thread in self.threads.drain(..) {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}
