//! Clusters: boards with fixed seats, whose members change from epoch to epoch.
//!
//! An operator signs a [`MemberList`]: the seats with their addresses and public keys. Each board opens its seat ([`Cluster::open`])
//! and joins an epoch ([`Cluster::join`]), which is a group of those seats that are there. If one of them fails, the epoch is over,
//! and the others join the next without it. A board that comes back waits until they do.

mod assembly;
mod connect;
mod control;
#[cfg(test)]
mod hostile;
mod links;
mod list;
mod membership;
mod packet;
mod probe;
mod seats;
mod shared;
mod transport;

#[cfg(test)]
mod simulated;

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use thiserror::Error;

use crate::clock::Ticks;
use crate::message::{MessageSettings, Uniform};
use crate::rdma::{RdmaError, RdmaPolicy};
use crate::security::{KeyPair, PublicKey};
use crate::silence::check_silence;
use crate::tcp::{Joined, Links, Place, check_connections, digest, flag, lower, raise, wait_for};
use crate::{Communicator, JoinError};
use connect::Seats;
use control::SeatListener;
use links::SeatLinks;
use membership::{Bounds, Membership};
use shared::{Shared, State};

pub use links::{LinkFigures, SeatLink};
pub use list::{ADDRESSES_MAX, ListError, MemberList, Seat};
pub use seats::{SEATS_MAX, SeatSet};
pub use transport::{ClusterGroup, ClusterRdma, ClusterTransport};

/// Settings of a seat.
#[derive(Debug, Clone)]
pub struct ClusterSettings {
    /// Address at which this seat listens, if not at those in the list: `0.0.0.0:4711` for all addresses of the board.
    pub listen: Option<SocketAddr>,
    /// Listening Unix socket, bound by the caller, at which programs on this board register to receive TCP connections through this seat's
    /// ports ([`SharedPorts`](crate::SharedPorts)). The mode of its file decides who may connect. `None`: no program shares them.
    pub programs: Option<Arc<UnixListener>>,
    /// Longest wait for an epoch.
    pub join_time: Duration,
    /// Time for which enough seats wait for further ones, before they begin an epoch without them.
    pub settle: Duration,
    /// Time without a sign of life after which a seat counts as unreachable, outside operations. At least [`SILENCE_MIN`](crate::SILENCE_MIN).
    pub silence: Duration,
    /// Whether the group of each epoch, and groups that are split off from it, use RDMA.
    pub rdma: ClusterRdma,
    /// Settings of the group of each epoch. The witness of a uniform one is that of the list, if it is a member.
    pub messages: MessageSettings,
}

impl Default for ClusterSettings {
    /// The address of the list, a minute, a second, a second, TCP only.
    fn default() -> Self {
        Self {
            listen: None,
            programs: None,
            join_time: Duration::from_secs(60),
            settle: Duration::from_secs(1),
            silence: Duration::from_secs(1),
            rdma: ClusterRdma::default(),
            messages: MessageSettings::default(),
        }
    }
}

/// One seat of a cluster.
///
/// Dropping it closes all connections with other seats, except those of epochs.
pub struct Cluster {
    shared: Arc<Shared>,
    settings: ClusterSettings,
    rdma: Arc<ClusterRdma>,
    threads: Vec<JoinHandle<()>>,
}

/// One membership of a cluster, from the time when its members have joined until one fails or leaves.
pub struct Epoch {
    /// The members as a group. Ranks are in the order of seats.
    pub group: ClusterGroup,
    /// Number of the epoch. Later epochs have higher ones, unless all seats that know it have started again meanwhile.
    pub number: u32,
    /// Its members.
    pub members: SeatSet,
    /// Reason for which the group uses TCP although this seat's settings include RDMA.
    pub fallback: Option<String>,
}

/// View of a seat, for other threads than the one that joins epochs.
#[derive(Clone)]
pub struct ClusterMonitor(Arc<Shared>);

/// A seat as another sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatState {
    /// Name of the seat.
    pub name: String,
    /// Whether it can be reached.
    pub is_reachable: bool,
    /// Whether it waits for the next epoch.
    pub is_waiting: bool,
    /// Epoch in which it takes part.
    pub epoch: Option<u32>,
    /// Reason for which it could not be connected with last. Of this board's own seat: the addresses at which it cannot listen.
    pub fault: Option<String>,
}

/// Fault of a cluster.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// The key pair is none of the list.
    #[error(
        "this board is not in the member list (serial {serial}): no seat has its public key {key}; copy the current list to this board, or add a seat with this key, increase `serial`, sign the list, and copy it to all boards"
    )]
    NoSeat {
        /// Public key of this board.
        key: PublicKey,
        /// Serial number of the list.
        serial: u32,
    },
    /// This seat cannot listen at its address.
    #[error("listening at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// The settings cannot be used.
    #[error(transparent)]
    Settings(#[from] JoinError),
    /// The system refuses something that it does not refuse usually.
    #[error("joining the cluster")]
    System(#[source] io::Error),
    /// Too few seats can be reached for an epoch: this seat may be cut off from the others.
    #[error(
        "isolated: this board can reach only {} of {seats} seats, itself included ({}); a quorum needs {needed}; check the network, the firewall, and that all boards have the same member list",
        reachable.len(),
        reachable.join(", ")
    )]
    Isolated {
        /// Names of the seats that can be reached, with this one.
        reachable: Vec<String>,
        /// Number of seats of the cluster.
        seats: usize,
        /// Number of seats that are enough.
        needed: usize,
    },
    /// Another thread called [`ClusterMonitor::interrupt`].
    #[error("interrupted")]
    Interrupted,
    /// Enough seats can be reached, but did not join.
    #[error(
        "the boards did not form a group within {} ms: enough can be reached, but {} did not join; check the logs of those boards",
        waited.as_millis(),
        missing.join(", ")
    )]
    Incomplete {
        /// Names of the seats that did not join.
        missing: Vec<String>,
        /// Time waited.
        waited: Duration,
    },
    /// Epochs began, but in none of them could this seat and the other members be connected.
    #[error(
        "this board and {} could not be connected with one another within {} ms, although they can be reached: {why}; check the logs of the other boards",
        others(seats),
        waited.as_millis()
    )]
    Unconnected {
        /// Names of the seats that the last attempt did not reach; empty if it failed for another reason.
        seats: Vec<String>,
        /// Reason of the last attempt.
        why: Box<JoinError>,
        /// Time waited.
        waited: Duration,
    },
    /// A member of an epoch runs another version of Orinoco, with which this seat cannot exchange messages.
    #[error(
        "seat {seat} runs another version of Orinoco, which cannot form a group with this one; install the same version on all boards"
    )]
    Version {
        /// Name of the seat.
        seat: String,
        /// The difference. Its rank is the number of the seat, or that of the member in the epoch.
        source: JoinError,
    },
    /// Not all members of an epoch can use RDMA, and one requires it.
    #[error("seat {seat} requires RDMA, but not all boards of the group can use it: {why}")]
    Rdma {
        /// Name of the seat that requires it.
        seat: String,
        /// Reason.
        why: String,
    },
}

/// Names seats for an error, or says "the others" where none is known.
fn others(seats: &[String]) -> String {
    match seats {
        [] => "the others".to_owned(),
        seats => format!("seat {}", seats.join(", ")),
    }
}

/// Time in which the members of an epoch connect with one another.
const ASSEMBLY: Duration = Duration::from_secs(2);

impl Cluster {
    /// Opens the seat of the list that has this key pair.
    ///
    /// # Errors
    /// If no seat has the key pair, if the seat cannot listen at any of its addresses, if there cannot be as many connections, or if a silence is too
    /// short.
    pub fn open(list: MemberList, own: KeyPair, settings: ClusterSettings) -> Result<Self, ClusterError> {
        check_connections(&settings.messages)?;
        check_silence(settings.silence.min(settings.messages.silence))?;
        let seat = list.seats.iter().position(|seat| seat.key == own.public());
        let seat = seat.ok_or(ClusterError::NoSeat { key: own.public(), serial: list.serial })?;
        let addresses = listening(&settings, &list.seats[seat]);
        let bounds = Bounds { settle: settings.settle, silence: settings.silence };
        let origin = Ticks::now();
        let flag = || flag().map_err(|source| ClusterError::System(source.into()));
        let shared = Arc::new(Shared {
            own: seat,
            pair: own,
            settings: digest(&settings.messages),
            tcp_connections: settings.messages.tcp_connections,
            origin,
            state: Mutex::new(State {
                membership: Membership::new(seat, list.quorum(), bounds, Duration::ZERO),
                opened: Vec::new(),
                assembly: None,
                splits: Vec::new(),
                unbound: BTreeMap::new(),
                faults: list.seats.iter().map(|_| None).collect(),
                links: list.seats.iter().map(|_| SeatLinks::default()).collect(),
                figures: vec![vec![None; list.seats.len()]; list.seats.len()],
                probes: vec![0; list.seats.len()],
                is_interrupted: false,
                is_ending: false,
            }),
            list,
            programs: settings.programs.as_ref().map(|_| Arc::default()),
            wake: flag()?,
            news: flag()?,
        });
        let listeners = SeatListener::open_all(&shared, &addresses)
            .map_err(|(address, source)| ClusterError::Listen { address, source })?;
        let rdma = Arc::new(settings.rdma.clone());
        let programs = settings.programs.clone();
        let mut cluster = Self { shared, settings, rdma, threads: Vec::new() };
        cluster.threads =
            control::start(&cluster.shared, listeners, programs).map_err(ClusterError::System)?;
        Ok(cluster)
    }

    /// Number of this seat.
    pub fn seat(&self) -> usize {
        self.shared.own
    }

    /// The member list.
    pub fn list(&self) -> &MemberList {
        &self.shared.list
    }

    /// Joins the next epoch. Returns when its members are connected with one another. An earlier epoch of this seat is over: drop its
    /// group before, so that other members learn at once that this seat has left.
    ///
    /// # Errors
    /// [`ClusterError::Isolated`] if too few seats can be reached, and [`ClusterError::Incomplete`] if too few of them join within
    /// [`ClusterSettings::join_time`]; [`ClusterError::Unconnected`] if no epoch's members could be connected in that time, and the 2 s of
    /// the last attempt. [`ClusterError::Version`] if a member runs a version with which this seat cannot exchange messages:
    /// the others form an epoch without this seat meanwhile. [`ClusterError::Interrupted`] on request. The call can be repeated.
    pub fn join(&mut self) -> Result<Epoch, ClusterError> {
        let start = Ticks::now();
        loop {
            self.ask();
            let found = self.next_assembly(start);
            let (epoch, members) = found.inspect_err(|_| self.leave())?;
            match self.assemble(epoch, members) {
                Ok(group) => {
                    let fallback = group.transport().fallback().map(|why| self.rdma_fault(members, why));
                    return Ok(Epoch { group, number: epoch, members, fallback });
                }
                Err(why) => self.check_attempt(members, why, start).inspect_err(|_| self.leave())?,
            }
        }
    }

    /// Whether members that could not be connected shall try again: if one has failed meanwhile, there is another epoch without it.
    fn check_attempt(&self, members: SeatSet, why: JoinError, start: Ticks) -> Result<(), ClusterError> {
        match &why {
            JoinError::Rdma(why) => self.check_rdma(members, why)?,
            JoinError::OtherVersion { rank: seat, .. } => {
                return Err(ClusterError::Version {
                    seat: self.list().seats[*seat].name.clone(),
                    source: why,
                });
            }
            JoinError::Incapable { rank, .. } => {
                return Err(ClusterError::Version {
                    seat: self.name_of(members, *rank).to_owned(),
                    source: why,
                });
            }
            _ => {}
        }
        let waited = Ticks::now().since(start);
        if waited < self.settings.join_time {
            return Ok(());
        }
        let unreached = match &why {
            JoinError::OtherEpoch { rank: seat }
            | JoinError::NoRank { rank: seat, .. }
            | JoinError::Untrusted { rank: seat, .. } => vec![*seat],
            JoinError::Missing { missing, .. } => missing.clone(),
            _ => Vec::new(),
        };
        // It is this seat itself if the epoch was over before all were connected.
        let others = unreached.iter().filter(|seat| **seat != self.seat());
        let seats = others.map(|seat| self.list().seats[*seat].name.clone()).collect();
        Err(ClusterError::Unconnected { seats, why: Box::new(why), waited })
    }

    /// Takes part in no epoch, and waits for none. An epoch's group that is still there goes on until another member fails.
    pub fn leave(&mut self) {
        let mut state = self.shared.lock();
        state.membership.rest();
        state.assembly = None;
        state.links.iter_mut().for_each(|links| links.uses(None));
        drop(state);
        raise(&self.shared.wake);
    }

    /// The view of this seat.
    pub fn monitor(&self) -> ClusterMonitor {
        ClusterMonitor(Arc::clone(&self.shared))
    }

    /// Addresses at which this seat listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        listening(&self.settings, &self.shared.list.seats[self.shared.own])
    }

    fn ask(&self) {
        let mut state = self.shared.lock();
        state.assembly = None;
        state.links.iter_mut().for_each(|links| links.uses(None));
        state.membership.ask(self.shared.now());
        drop(state);
        raise(&self.shared.wake);
    }

    /// Waits for the next epoch to begin.
    fn next_assembly(&self, start: Ticks) -> Result<(u32, SeatSet), ClusterError> {
        loop {
            let mut state = self.shared.lock();
            if std::mem::take(&mut state.is_interrupted) {
                return Err(ClusterError::Interrupted);
            }
            if let Some(assembly) = &state.assembly {
                return Ok((assembly.number, assembly.members));
            }
            let waited = Ticks::now().since(start);
            if waited >= self.settings.join_time {
                return Err(self.shortfall(&state, waited));
            }
            drop(state);
            self.wait_for_news(self.settings.join_time - waited);
        }
    }

    fn wait_for_news(&self, time: Duration) {
        wait_for(&mut [PollFd::new(&self.shared.news, PollFlags::IN)], time);
        lower(&self.shared.news);
    }

    /// Connects with the other members of an epoch.
    fn assemble(&self, epoch: u32, members: SeatSet) -> Result<ClusterGroup, JoinError> {
        let shared = &self.shared;
        let attempt = shared.introduction(epoch, members, ASSEMBLY);
        let mut links = shared.connect(&attempt, members, |seat| shared.preference(seat))?;
        shared.lock().assembly = None;
        self.note_use(&links);
        let links = members.iter().map(|seat| std::mem::take(&mut links[seat])).collect();
        let place = self.place();
        let (keys, ips) = (shared.keys(members.iter()), shared.ips(members.iter()));
        let joined = Joined { links, keys, ips, place: place.clone(), offer: attempt.offer };
        let rank = members.rank_of(shared.own).expect("this seat is a member");
        let of_ranks = members.iter().collect();
        let seats = Seats { shared: Arc::clone(shared), epoch, of_ranks, place };
        ClusterGroup::of(joined, rank, epoch, self.messages(members), Arc::clone(&self.rdma), seats)
    }

    /// Settings of the group of these members. The witness of a uniform group is that of the cluster, if it is a member.
    fn messages(&self, members: SeatSet) -> MessageSettings {
        let witness = self.shared.list.witness;
        let witness = witness.and_then(|witness| members.rank_of(witness));
        let uniform = self.settings.messages.uniform.map(|_| Uniform { witness });
        MessageSettings { uniform, ..self.settings.messages }
    }

    /// Notes the links that an epoch uses.
    fn note_use(&self, links: &Links) {
        let mut state = self.shared.lock();
        for (seat, links) in links.iter().enumerate() {
            state.links[seat].uses(links.messages().and_then(probe::ends));
        }
    }

    /// Address of this board for groups that are split off from an epoch.
    fn place(&self) -> Place {
        let own = &self.shared.list.seats[self.shared.own].addresses;
        let listen = self.settings.listen.map(|listen| listen.ip());
        match own[..] {
            [address] => Place::Ports { ip: address.ip(), listen: listen.unwrap_or(address.ip()) },
            // Each of the others reaches it at the address that the epoch's link has.
            [address, ..] => {
                let any = unspecified(address.ip());
                Place::Ports { ip: any, listen: listen.unwrap_or(any) }
            }
            [] => unreachable!("a list that was read has an address for each seat"),
        }
    }

    /// Whether members that could not agree on RDMA shall try again.
    fn check_rdma(&self, members: SeatSet, why: &RdmaError) -> Result<(), ClusterError> {
        let (seat, why) = match why {
            RdmaError::Required { rank, why } => (self.name_of(members, *rank), &**why),
            // A member has failed meanwhile.
            RdmaError::Broken { .. } => return Ok(()),
            _ if self.rdma.policy != RdmaPolicy::Required => return Ok(()),
            why => (&*self.shared.list.seats[self.shared.own].name, why),
        };
        Err(ClusterError::Rdma { seat: seat.to_owned(), why: self.rdma_fault(members, why) })
    }

    /// Reason for which members do not use RDMA.
    fn rdma_fault(&self, members: SeatSet, why: &RdmaError) -> String {
        let source = why.source().map(|source| format!(": {source}")).unwrap_or_default();
        match why {
            RdmaError::Peer { rank } => format!(
                "seat {} cannot use RDMA, or its board file does not include it; its own log says why",
                self.name_of(members, *rank)
            ),
            why => format!("{why}{source}"),
        }
    }

    fn name_of(&self, members: SeatSet, rank: usize) -> &str {
        let seat = members.iter().nth(rank).expect("a rank of the epoch");
        &self.shared.list.seats[seat].name
    }

    fn shortfall(&self, state: &State, waited: Duration) -> ClusterError {
        let (reachable, waiting) = (state.membership.reachable(), state.membership.waiting());
        let list = &self.shared.list;
        let names = |wanted: &dyn Fn(usize) -> bool| {
            let seats = list.seats.iter().enumerate().filter(|(seat, _)| wanted(*seat));
            seats.map(|(_, seat)| seat.name.clone()).collect()
        };
        if list.quorum().is_met_by(reachable) {
            let missing = names(&|seat| seat != self.shared.own && !waiting.contains(seat));
            return ClusterError::Incomplete { missing, waited };
        }
        let reachable = names(&|seat| reachable.contains(seat));
        ClusterError::Isolated { reachable, seats: list.seats.len(), needed: list.quorum().needed() }
    }
}

impl ClusterMonitor {
    /// Other seats that wait for the next epoch. It begins when all members of this one join again.
    pub fn waiting(&self) -> SeatSet {
        self.0.lock().membership.waiting()
    }

    /// All seats of the list as this one sees them, in order.
    pub fn seats(&self) -> Vec<SeatState> {
        let state = self.0.lock();
        let reachable = state.membership.reachable();
        let of = |seat: usize| {
            let status = match seat == self.0.own {
                true => state.membership.status(),
                false => state.membership.status_of(seat).unwrap_or_default(),
            };
            SeatState {
                name: self.0.list.seats[seat].name.clone(),
                is_reachable: reachable.contains(seat),
                is_waiting: status.is_ready,
                epoch: (status.epoch != 0).then_some(status.epoch),
                fault: state.fault_of(seat, self.0.own),
            }
        };
        (0..self.0.list.seats.len()).map(of).collect()
    }

    /// Links with each seat of the list, in order; none with this board's own.
    pub fn links(&self) -> Vec<Vec<SeatLink>> {
        self.0.lock().links.iter().map(SeatLinks::list).collect()
    }

    /// Figures of the links between all seats, as far as this one knows them: a row for each seat, with an entry for each other one.
    pub fn figures(&self) -> Vec<Vec<Option<LinkFigures>>> {
        let state = self.0.lock();
        let mut figures = state.figures.clone();
        figures[self.0.own] = state.links.iter().map(SeatLinks::figures).collect();
        figures
    }

    /// Has the call of [`Cluster::join`] that waits now, or else the next one, end with [`ClusterError::Interrupted`].
    pub fn interrupt(&self) {
        self.0.lock().is_interrupted = true;
        raise(&self.0.news);
    }
}

/// Addresses at which a seat listens.
fn listening(settings: &ClusterSettings, seat: &Seat) -> Vec<SocketAddr> {
    settings.listen.map_or_else(|| seat.addresses.clone(), |listen| vec![listen])
}

/// The address that stands for all of a board.
fn unspecified(of: IpAddr) -> IpAddr {
    match of {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shared.lock().is_ending = true;
        raise(&self.shared.wake);
        for thread in self.threads.drain(..) {
            // A thread that has panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Epoch {
    /// Seat of a rank of the group.
    ///
    /// # Panics
    /// If the group has no such rank.
    pub fn seat(&self, rank: usize) -> usize {
        let seat = self.members.iter().nth(rank);
        seat.unwrap_or_else(|| panic!("rank {rank} of {}", self.group.ranks()))
    }
}
