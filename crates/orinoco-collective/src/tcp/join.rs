//! Connection of a group: each rank connects to all lower ranks and accepts connections of all higher ranks.

use std::fmt;
use std::io::{self, ErrorKind};
use std::iter;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::directory::{Directory, NOBODY, receive};
use super::hello::{Answer, ClusterHello, EPOCH, HELLO_BYTES, Hello, Use, other_major};
use super::lobby::{Door, Lobby};
use super::offer::{Capabilities, Capability, Offer};
use super::program_port::ProgramPort;
use super::rendezvous::{Meeting, Rendezvous, SharedPorts};
use super::settings::TcpSettings;
use super::socket::{Peeked, peek, set_up};
use super::target::Target;
use crate::clock::{Ticks, pause};
use crate::message::{MessageSettings, Order, Uniform};
use crate::security::{GroupKey, HANDSHAKE_BYTES, Handshake, Keys, Security};
use crate::{JoinError, WireVersion};

/// Connections with each rank; none with this rank itself.
pub(crate) type Links = Vec<PeerLinks>;

/// Connections with one rank.
#[derive(Default)]
pub(crate) struct PeerLinks {
    pub(crate) notices: Option<Connection>,
    /// Connections for messages with their numbers, which are those of their places at both ends.
    messages: Vec<(u16, Connection)>,
}

impl PeerLinks {
    /// Whether a connection can be added, with a number below `of` if it is for messages: it is not there yet.
    pub(crate) fn lacks(&self, purpose: Option<Use>, number: u16, of: u16) -> bool {
        match purpose {
            Some(Use::Notices) => self.notices.is_none(),
            Some(Use::Messages) => number < of && self.messages.iter().all(|(other, _)| *other != number),
            Some(Use::Directory | Use::Membership | Use::Probe) | None => false,
        }
    }

    /// Adds a connection that [it lacks](PeerLinks::lacks).
    pub(crate) fn add(&mut self, purpose: Use, number: u16, connection: Connection) {
        match purpose {
            Use::Notices => self.notices = Some(connection),
            _ => self.messages.push((number, connection)),
        }
    }

    /// Whether the other rank has closed a connection.
    pub(super) fn is_broken(&self) -> bool {
        let messages = self.messages.iter().map(|(_, connection)| connection);
        self.notices.iter().chain(messages).any(|connection| peek(connection.stream()) == Peeked::Closed)
    }

    /// Whether all connections are there: one for notices, and `of` for messages.
    pub(crate) fn is_complete(&self, of: u16) -> bool {
        self.notices.is_some() && self.messages.len() == usize::from(of)
    }

    /// The first connection for messages.
    pub(crate) fn messages(&self) -> Option<&Connection> {
        self.messages.iter().find(|(number, _)| *number == 0).map(|(_, connection)| connection)
    }

    /// The connection for notices, and those for messages in order.
    pub(crate) fn into_parts(mut self) -> (Option<Connection>, Vec<Connection>) {
        self.messages.sort_by_key(|(number, _)| *number);
        (self.notices, self.messages.into_iter().map(|(_, connection)| connection).collect())
    }
}

/// A group that was joined.
pub(crate) struct Joined {
    pub(crate) links: Links,
    pub(crate) keys: Keys,
    /// Addresses at which ranks listen, by rank; unspecified if they do so at all addresses of their machines.
    pub(crate) ips: Vec<IpAddr>,
    /// Place at which this rank takes further connections.
    pub(crate) place: Place,
    /// Minor version and capabilities of this rank.
    pub(crate) offer: Offer,
}

impl Joined {
    /// Capabilities of each rank, by rank.
    pub(super) fn capabilities(&self) -> Vec<Capabilities> {
        let offer = |links: &PeerLinks| links.notices.as_ref().map_or(self.offer, Connection::peer);
        self.links.iter().map(|links| offer(links).capabilities).collect()
    }

    /// Checks that all ranks can do what the settings need.
    pub(super) fn check_capabilities(&self, settings: &MessageSettings) -> Result<(), JoinError> {
        let needs = [
            (settings.tcp_connections > 1, Capability::Streams),
            (settings.uniform.is_some(), Capability::Uniform),
            (!settings.tcp_encryption, Capability::Checksums),
        ];
        let needed = needs.into_iter().filter_map(|(is_needed, capability)| is_needed.then_some(capability));
        needed.into_iter().try_for_each(|capability| check_capability(&self.capabilities(), capability))
    }
}

/// Checks that all ranks have a capability.
pub(super) fn check_capability(of_ranks: &[Capabilities], needed: Capability) -> Result<(), JoinError> {
    match of_ranks.iter().position(|capabilities| !capabilities.has(needed)) {
        Some(rank) => Err(JoinError::Incapable { rank, needed: needed.to_string() }),
        None => Ok(()),
    }
}

/// Place at which a rank takes connections of groups that are split off.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// At ports that its system chooses.
    Ports {
        /// Address at which the others reach it.
        ip: IpAddr,
        /// Address at which it listens.
        listen: IpAddr,
    },
    /// At the port of its board's daemon.
    Shared(Arc<SharedPlace>),
}

/// The port of a daemon, as a rank shares it.
#[derive(Debug)]
pub(crate) struct SharedPlace {
    /// Name of the group.
    pub(super) group: String,
    /// Addresses of the daemons, by rank, as this rank reaches them.
    pub(super) addresses: Vec<SocketAddr>,
    /// Unix socket of this board's daemon.
    pub(super) socket: PathBuf,
}

impl Place {
    /// That of a rank that listens where others reach it.
    pub(crate) fn at(ip: IpAddr) -> Self {
        Self::Ports { ip, listen: ip }
    }
}

/// Way to a rank.
#[derive(Debug, Clone)]
pub(super) struct Route {
    pub(super) address: SocketAddr,
    /// If the address is that of its board's daemon.
    pub(super) target: Option<Target>,
}

impl Route {
    fn to(address: SocketAddr) -> Self {
        Self { address, target: None }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Some(target) => write!(f, "group `{}` through the daemon at {}", target.group(), self.address),
            None => self.address.fmt(f),
        }
    }
}

/// A rank that listens already and knows how all are reached.
pub(super) struct Listed {
    pub(super) place: Place,
    pub(super) routes: Vec<Route>,
    pub(super) rank: usize,
    pub(super) keys: Keys,
    /// A number of this group alone: connections of another group of the same ranks are refused.
    pub(super) number: u32,
}

/// Tells whether ranks are not to be connected any more.
pub(crate) type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// Reason for which a rank stops connecting with others before its deadline.
pub(crate) enum GiveUp {
    /// The ranks turn out to be others. Until then, ranks that refuse this one are waited for, too: they may not know of the group yet.
    OnOtherRanks(Interrupt),
    /// A rank is lost. All know of the group, so a refusal is final.
    OnLoss(Interrupt),
}

impl GiveUp {
    fn is_due(&self) -> bool {
        let (Self::OnOtherRanks(interrupt) | Self::OnLoss(interrupt)) = self;
        interrupt()
    }
}

/// Time between two attempts to connect, and between two looks for a file.
const RETRY: Duration = Duration::from_millis(5);
/// Longest time for one attempt to connect.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Longest time for one attempt, and longest wait, of a rank that may give up before its deadline.
const ATTEMPT_SHORT: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Time between two attempts to reach a program through its daemon, at first and at most. Each is a whole connection.
const PROGRAM_RETRY: Duration = Duration::from_millis(20);
const PROGRAM_RETRY_MAX: Duration = Duration::from_millis(500);
/// Times that a connection is opened again if it was closed before an answer. A lobby shows guests out when it is full, as in a port
/// scan.
const HELLO_RETRIES: u32 = 5;
/// Least time for an answer, however late it is.
const ANSWER_MIN: Duration = Duration::from_millis(5);
/// Time beyond the deadline for the answer of rank 0 when it is asked which ranks did not join. It may lack a core for some of it.
const VERDICT: Duration = Duration::from_millis(500);

/// Reasons to refuse a rank, or a seat of a cluster.
const OTHER_SETTINGS: &str = "its `MessageSettings` differ (tcp_connections, tcp_encryption, order, algorithm, piece_bytes, tune or uniform); use the same settings on all ranks";
const OTHER_BOARD_SETTINGS: &str = "its settings differ; `tcp_connections`, `tcp_encryption` and the other message settings must be the same on all boards";

pub(super) fn join(
    rendezvous: &Rendezvous,
    rank: usize,
    ranks: usize,
    settings: &TcpSettings,
) -> Result<Joined, JoinError> {
    join_with(Offer::OURS, rendezvous, rank, ranks, settings)
}

/// Joins with this minor version and these capabilities.
pub(super) fn join_with(
    offer: Offer,
    rendezvous: &Rendezvous,
    rank: usize,
    ranks: usize,
    settings: &TcpSettings,
) -> Result<Joined, JoinError> {
    let mut attempt = JoinAttempt {
        offer,
        rank,
        ranks,
        settings: digest(&settings.messages),
        tcp_connections: settings.messages.tcp_connections,
        keys: Keys::Plaintext,
        epoch: EPOCH,
        cluster: ClusterHello::default(),
        deadline: settings.messages.deadline,
        start: Ticks::now(),
        give_up: None,
    };
    let is_file = matches!(rendezvous, Rendezvous::File(_));
    match &settings.security {
        Security::Plaintext => {}
        Security::FileKey if !is_file => return Err(JoinError::NoKeyFile),
        Security::FileKey if rank == 0 => attempt.keys = Keys::Group(GroupKey::generate()?),
        // It is read from the file, together with the address.
        Security::FileKey => {}
        Security::GroupKey(key) => attempt.keys = Keys::Group(key.clone()),
        Security::KeyPairs { own, public } => {
            if public.len() != ranks {
                return Err(JoinError::Keys { ranks, keys: public.len() });
            }
            if public[rank] != own.public() {
                return Err(JoinError::OwnKey { rank });
            }
            attempt.keys = Keys::Pairs { own: own.clone(), public: public.clone() };
        }
    }
    let has_file_key = matches!(settings.security, Security::FileKey);
    let (mut lobby, addresses) = match rendezvous {
        Rendezvous::SharedPorts(shared) => return attempt.share_ports(shared),
        Rendezvous::List(addresses) => {
            attempt.check_all(addresses)?;
            (attempt.open(addresses[rank])?.0, addresses.clone())
        }
        Rendezvous::Address(address) if rank == 0 => {
            let (lobby, own) = attempt.open(*address)?;
            attempt.publish_directory(lobby, own)?
        }
        Rendezvous::Address(address) => attempt.ask_directory(*address)?,
        Rendezvous::File(path) if rank == 0 => attempt.meet_at(path, has_file_key)?,
        Rendezvous::File(path) => {
            let meeting = attempt.find_meeting(path)?;
            if has_file_key {
                let foreign = || JoinError::Foreign {
                    path: path.clone(),
                    found: "an address without a key".to_owned(),
                };
                attempt.keys = Keys::Group(meeting.key.ok_or_else(foreign)?);
            }
            attempt.ask_directory(meeting.address)?
        }
    };
    let place = Place::at(addresses[rank].ip());
    let routes: Vec<Route> = addresses.into_iter().map(Route::to).collect();
    let links = attempt.connect_all(&mut lobby, &routes)?;
    Ok(Joined { links, keys: attempt.keys, ips: ips(&routes), place, offer })
}

fn ips(routes: &[Route]) -> Vec<IpAddr> {
    routes.iter().map(|route| route.address.ip()).collect()
}

/// Connects with the other ranks, whose connections come to a lobby, until it is time to give up.
pub(super) fn join_listed(
    lobby: &mut Lobby,
    listed: Listed,
    messages: &MessageSettings,
    give_up: Option<GiveUp>,
) -> Result<Joined, JoinError> {
    let Listed { place, routes, rank, keys, number } = listed;
    lobby.set_keys(keys.clone());
    let attempt = JoinAttempt {
        offer: Offer::OURS,
        rank,
        ranks: routes.len(),
        settings: crc32c::crc32c_append(digest(messages), &number.to_le_bytes()),
        tcp_connections: messages.tcp_connections,
        keys,
        epoch: EPOCH,
        cluster: ClusterHello::default(),
        deadline: messages.deadline,
        start: Ticks::now(),
        give_up,
    };
    routes.iter().try_for_each(|route| attempt.check(&route.address))?;
    let links = attempt.connect_all(lobby, &routes)?;
    Ok(Joined { links, keys: attempt.keys, ips: ips(&routes), place, offer: attempt.offer })
}

/// Ranks on one machine have loopback addresses only, and ranks on several machines none. A rank that listens at all addresses of its
/// machine may be either.
fn check_loopback(addresses: &[SocketAddr]) -> Result<(), JoinError> {
    let of = |is_loopback: bool| {
        let is_one = |ip: IpAddr| !ip.is_unspecified() && ip.is_loopback() == is_loopback;
        addresses.iter().enumerate().find(|(_, address)| is_one(address.ip()))
    };
    match (of(true), of(false)) {
        (Some((rank, loopback)), Some((other, address))) => {
            Err(JoinError::Loopback { rank, loopback: *loopback, other, address: *address })
        }
        _ => Ok(()),
    }
}

/// Checksum of the settings that all ranks must share.
pub(crate) fn digest(settings: &MessageSettings) -> u32 {
    let order = match settings.order {
        Order::Reproducible => 0,
        Order::Fast => 1,
    };
    let algorithm = settings.algorithm.map_or("chosen", |algorithm| algorithm.name());
    let mut text = format!("{order} {algorithm} {} {:?}", settings.piece_bytes, settings.tune);
    // Without what earlier versions do not have, the text is theirs: they can join one another.
    if settings.tcp_connections != 1 {
        text.push_str(&format!(" connections {}", settings.tcp_connections));
    }
    if !settings.tcp_encryption {
        text.push_str(" plaintext");
    }
    if let Some(Uniform { witness }) = settings.uniform {
        text.push_str(&format!(" uniform {witness:?}"));
    }
    crc32c::crc32c(text.as_bytes())
}

/// Attempt of a rank to join a group, or of a seat of a cluster to connect with others.
pub(crate) struct JoinAttempt {
    /// Minor version and capabilities of this rank.
    pub(crate) offer: Offer,
    /// This rank or seat.
    pub(crate) rank: usize,
    /// Number of ranks or seats.
    pub(crate) ranks: usize,
    /// Checksum of the settings.
    pub(crate) settings: u32,
    /// Connections for the messages between two ranks.
    pub(crate) tcp_connections: u16,
    pub(crate) keys: Keys,
    pub(crate) epoch: u32,
    pub(crate) cluster: ClusterHello,
    pub(crate) deadline: Duration,
    pub(crate) start: Ticks,
    /// Ends the waits before the deadline.
    pub(crate) give_up: Option<GiveUp>,
}

impl JoinAttempt {
    pub(crate) fn rest(&self) -> Duration {
        match &self.give_up {
            Some(give_up) if give_up.is_due() => Duration::ZERO,
            _ => self.deadline.saturating_sub(Ticks::now().since(self.start)),
        }
    }

    /// Whether the ranks may turn out to be others.
    fn ranks_may_change(&self) -> bool {
        matches!(self.give_up, Some(GiveUp::OnOtherRanks(_)))
    }

    /// Without keys, only addresses of this machine are accepted.
    fn check(&self, address: &SocketAddr) -> Result<(), JoinError> {
        match self.keys {
            Keys::Plaintext if !address.ip().is_loopback() => {
                Err(JoinError::Unprotected { address: *address })
            }
            _ => Ok(()),
        }
    }

    /// Checks the addresses of all ranks.
    fn check_all(&self, addresses: &[SocketAddr]) -> Result<(), JoinError> {
        if addresses.len() != self.ranks {
            return Err(JoinError::Addresses { ranks: self.ranks, addresses: addresses.len() });
        }
        check_loopback(addresses)?;
        addresses.iter().try_for_each(|address| self.check(address))
    }

    /// Listens at an address. Returns the address with the port that the system has chosen, if it had to.
    fn open(&self, address: SocketAddr) -> Result<(Lobby, SocketAddr), JoinError> {
        self.check(&address)?;
        let open = || {
            let listener = TcpListener::bind(address)?;
            let own = listener.local_addr()?;
            Ok((Lobby::new(Door::Own(listener), self.keys.clone())?, own))
        };
        open().map_err(|source| JoinError::Listen { address, source })
    }

    /// Connects with all ranks through the daemons of their boards.
    fn share_ports(mut self, shared: &SharedPorts) -> Result<Joined, JoinError> {
        let SharedPorts { group, addresses, socket } = shared;
        // Whoever reaches the daemon from another machine reaches this rank.
        if let Keys::Plaintext = self.keys {
            return Err(JoinError::UnprotectedPort);
        }
        self.check_all(addresses)?;
        self.settings = crc32c::crc32c_append(self.settings, group.as_bytes());
        let route = |(rank, address): (usize, &SocketAddr)| {
            Ok(Route { address: *address, target: Some(Target::of_rank(group, rank)?) })
        };
        let routes = addresses.iter().enumerate().map(route).collect::<Result<Vec<_>, JoinError>>()?;
        let target = Target::of_rank(group, self.rank)?;
        let door = Door::Shared(ProgramPort::open(socket, target, self.rest())?);
        let mut lobby = Lobby::new(door, self.keys.clone()).map_err(JoinError::System)?;
        let links = self.connect_all(&mut lobby, &routes)?;
        let SharedPorts { group, addresses, socket } = shared.clone();
        let place = Place::Shared(Arc::new(SharedPlace { group, addresses, socket }));
        Ok(Joined { links, keys: self.keys, ips: ips(&routes), place, offer: self.offer })
    }

    /// Connections to be opened to each lower rank: their uses and numbers.
    pub(crate) fn connections(&self) -> impl Iterator<Item = (Use, u16)> {
        iter::once((Use::Notices, 0)).chain((0..self.tcp_connections).map(|number| (Use::Messages, number)))
    }

    /// This rank's introduction on a connection. `detail`: the port or the number of the connection.
    pub(crate) fn hello(&self, purpose: Use, to: usize, detail: u16) -> Hello {
        let number = |number: usize| u32::try_from(number).expect("few ranks");
        Hello {
            kind: purpose as u8,
            security: self.keys.code(),
            epoch: self.epoch,
            ranks: number(self.ranks),
            from: number(self.rank),
            to: number(to),
            detail: if purpose == Use::Notices { self.offer.word() } else { detail },
            settings: self.settings,
            cluster: self.cluster,
        }
    }

    /// Waits for all ranks as rank 0, which find its address in a file.
    fn meet_at(&self, path: &Path, has_file_key: bool) -> Result<(Lobby, Vec<SocketAddr>), JoinError> {
        let (lobby, address) = self.open(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let key = match &self.keys {
            Keys::Group(key) if has_file_key => Some(key.clone()),
            _ => None,
        };
        let file = Meeting { address, key }.publish(path)?;
        let found = self.publish_directory(lobby, address)?;
        file.remove()?;
        Ok(found)
    }

    /// Waits for all ranks as rank 0, and tells each where the others are.
    fn publish_directory(
        &self,
        mut lobby: Lobby,
        own: SocketAddr,
    ) -> Result<(Lobby, Vec<SocketAddr>), JoinError> {
        let mut directory = Directory::new(own, self.ranks);
        while !directory.is_complete() {
            let answer = |hello: &Hello| {
                let is_awaited = directory.awaits(hello.from as usize);
                self.answer(hello, hello.purpose() == Some(Use::Directory) && is_awaited)
            };
            let own_hello = self.hello(Use::Directory, 0, 0);
            match lobby.next(self.rest().min(LOOK_EVERY), &own_hello, answer) {
                Some((connection, hello)) => directory.add(hello.from as usize, hello.detail, connection),
                None if self.rest().is_zero() => {
                    let missing = directory.missing();
                    directory.send_to_all(ANSWER_MIN);
                    return Err(self.nobody_came(missing, &Route::to(own), &mut lobby));
                }
                None => directory.see_off(ANSWER_MIN),
            }
        }
        let addresses = directory.send_to_all(self.rest());
        check_loopback(&addresses)?;
        Ok((lobby, addresses))
    }

    /// Asks rank 0 where the others are.
    fn ask_directory(&self, address: SocketAddr) -> Result<(Lobby, Vec<SocketAddr>), JoinError> {
        self.check(&address)?;
        let broken = |source| JoinError::Broken { rank: 0, address, source };
        let connection = self.connect(0, address)?;
        let own = connection.stream().local_addr().map_err(broken)?;
        let (lobby, listens_at) = self.open(SocketAddr::new(own.ip(), 0))?;
        let hello = self.hello(Use::Directory, 0, listens_at.port());
        let mut connection =
            self.greet_again(connection, 0, &Route::to(address), hello, &PeerLinks::default())?;
        let incomplete = || JoinError::Incomplete { address, waited: Ticks::now().since(self.start) };
        let received = receive(&mut connection, self.ranks, || self.rest(), VERDICT);
        let mut addresses = received.map_err(|source| match source.kind() {
            ErrorKind::TimedOut => incomplete(),
            _ => broken(source),
        })?;
        let missing: Vec<usize> = (0..self.ranks).filter(|rank| addresses[*rank] == NOBODY).collect();
        if !missing.is_empty() {
            return Err(self.missing(missing, address.to_string()));
        }
        if self.rest().is_zero() {
            // All came, but too late for this rank: connecting to them would call them missing.
            return Err(incomplete());
        }
        check_loopback(&addresses)?;
        // Rank 0 may listen at all addresses of its machine. It can be reached at this one.
        addresses[0] = address;
        addresses.iter().try_for_each(|address| self.check(address))?;
        Ok((lobby, addresses))
    }

    /// Reads the file of rank 0, as soon as it is there.
    fn find_meeting(&self, path: &Path) -> Result<Meeting, JoinError> {
        loop {
            match Meeting::read(path)? {
                Some(meeting) => return Ok(meeting),
                None if self.rest().is_zero() => {
                    return Err(self.missing(vec![0], path.display().to_string()));
                }
                None => pause(RETRY),
            }
        }
    }

    fn connect_all(&self, lobby: &mut Lobby, routes: &[Route]) -> Result<Links, JoinError> {
        let mut links: Links = (0..self.ranks).map(|_| PeerLinks::default()).collect();
        for (peer, route) in routes.iter().enumerate().take(self.rank) {
            for (purpose, number) in self.connections() {
                let connection = self.dial((purpose, number), peer, route, &links[peer])?;
                links[peer].add(purpose, number, connection);
            }
        }
        let is_missing = |links: &Links, peer: usize| !links[peer].is_complete(self.tcp_connections);
        while (self.rank + 1..self.ranks).any(|peer| is_missing(&links, peer)) {
            let answer = |hello: &Hello| {
                let is_higher = (self.rank + 1..self.ranks).contains(&(hello.from as usize));
                let is_missing = is_higher
                    && links[hello.from as usize].lacks(hello.purpose(), hello.detail, self.tcp_connections);
                self.answer(hello, is_missing && hello.to as usize == self.rank)
            };
            let Some((connection, hello)) = self.next_guest(lobby, &links, answer) else {
                let missing = (self.rank + 1..self.ranks).filter(|peer| is_missing(&links, *peer)).collect();
                return Err(self.nobody_came(missing, &routes[self.rank], lobby));
            };
            let purpose = hello.purpose().expect("a hello that was accepted");
            links[hello.from as usize].add(purpose, hello.detail, connection);
        }
        Ok(links)
    }

    /// The next connection that a lobby accepts, if one comes in time. If the ranks may change, this one gives up if a connection with
    /// another rank breaks: that one begins again.
    fn next_guest(
        &self,
        lobby: &mut Lobby,
        links: &Links,
        answer: impl Fn(&Hello) -> Answer,
    ) -> Option<(Connection, Hello)> {
        let own = self.hello(Use::Notices, 0, 0);
        if self.give_up.is_none() {
            return lobby.next(self.rest(), &own, answer);
        }
        loop {
            let rest = self.rest();
            let guest = lobby.next(rest.min(LOOK_EVERY), &own, &answer);
            let is_over = || self.ranks_may_change() && links.iter().any(PeerLinks::is_broken);
            if guest.is_some() || rest.is_zero() || is_over() {
                return guest;
            }
        }
    }

    /// Answer to a hello.
    fn answer(&self, hello: &Hello, is_expected: bool) -> Answer {
        if !is_expected {
            Answer::WrongRank
        } else if hello.ranks as usize != self.ranks || hello.epoch != self.epoch {
            Answer::OtherRanks
        } else if hello.settings != self.settings {
            Answer::OtherSettings
        } else {
            Answer::Accepted
        }
    }

    /// Connects to a rank as soon as it listens, and says hello. `earlier`: connections with it that are there already.
    fn dial(
        &self,
        (purpose, number): (Use, u16),
        rank: usize,
        route: &Route,
        earlier: &PeerLinks,
    ) -> Result<Connection, JoinError> {
        let (address, hello) = (route.address, self.hello(purpose, rank, number));
        if route.target.is_none() && !self.ranks_may_change() {
            return self.greet_again(self.connect(rank, address)?, rank, route, hello, earlier);
        }
        let mut retry = PROGRAM_RETRY;
        loop {
            let connection = self.try_connect(rank, address);
            match connection.and_then(|connection| self.greet(connection, rank, route, hello)) {
                // The program has not registered with its daemon yet, or has just ended.
                Err(JoinError::Missing { .. } | JoinError::NoRank { .. } | JoinError::Broken { .. }) => {}
                Err(JoinError::Refused { .. } | JoinError::Untrusted { .. }) if self.ranks_may_change() => {}
                other => return other,
            }
            if earlier.is_broken() {
                // Another process may be that rank by now, and has not the other connections.
                return Err(JoinError::NoRank { rank, address });
            }
            if self.rest().is_zero() {
                return Err(self.missing(vec![rank], route.to_string()));
            }
            pause(retry.min(self.rest()));
            retry = PROGRAM_RETRY_MAX.min(2 * retry);
        }
    }

    /// Connects to a rank if it listens, and says hello.
    pub(crate) fn try_dial(
        &self,
        purpose: Use,
        number: u16,
        rank: usize,
        address: SocketAddr,
    ) -> Result<Connection, JoinError> {
        let hello = self.hello(purpose, rank, number);
        self.greet(self.try_connect(rank, address)?, rank, &Route::to(address), hello)
    }

    /// Connects to a rank as soon as it listens.
    fn connect(&self, rank: usize, address: SocketAddr) -> Result<Connection, JoinError> {
        loop {
            match self.try_connect(rank, address) {
                Err(JoinError::Missing { .. }) if !self.rest().is_zero() => pause(RETRY.min(self.rest())),
                other => return other,
            }
        }
    }

    /// Connects to a rank if it listens.
    fn try_connect(&self, rank: usize, address: SocketAddr) -> Result<Connection, JoinError> {
        let stream = self.reach(address).map_err(|_| self.missing(vec![rank], address.to_string()))?;
        set_up(&stream).map_err(JoinError::System)?;
        Ok(Connection::plain(stream))
    }

    /// Connects to a rank that listened before. `None` if it does not listen any more.
    fn connect_again(&self, rank: usize, address: SocketAddr) -> Result<Option<Connection>, JoinError> {
        loop {
            match self.reach(address) {
                Ok(stream) => {
                    set_up(&stream).map_err(JoinError::System)?;
                    return Ok(Some(Connection::plain(stream)));
                }
                Err(why) if why.kind() == ErrorKind::ConnectionRefused => return Ok(None),
                Err(_) if self.rest().is_zero() => {
                    return Err(self.missing(vec![rank], address.to_string()));
                }
                // Too many wait at its port.
                Err(_) => pause(RETRY.min(self.rest())),
            }
        }
    }

    fn reach(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let longest = if self.give_up.is_some() { ATTEMPT_SHORT } else { ATTEMPT };
        let time = self.rest().min(longest);
        if time.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let stream = TcpStream::connect_timeout(&address, time)?;
        if is_own(&stream) { Err(ErrorKind::ConnectionRefused.into()) } else { Ok(stream) }
    }

    /// Says hello to a rank, a few times if need be. Returns the connection if both accept each other. A rank that has ended does not
    /// listen any more, so that no time is lost with it. `earlier`: connections with it that are there already.
    fn greet_again(
        &self,
        mut connection: Connection,
        rank: usize,
        route: &Route,
        hello: Hello,
        earlier: &PeerLinks,
    ) -> Result<Connection, JoinError> {
        for attempt in 0..HELLO_RETRIES {
            let why = match self.say_hello(connection, rank, route, &hello) {
                Ok(answered) => return self.conclude(answered, rank, route, &hello),
                Err(why) => why,
            };
            let was_closed = why.kind() == ErrorKind::UnexpectedEof;
            // If an earlier connection is broken, another process may be that rank by now, and has not the other connections.
            if !was_closed || earlier.is_broken() {
                return Err(unanswered(why, rank, route));
            }
            pause((PROGRAM_RETRY * 2u32.pow(attempt)).min(self.rest()));
            let again = self.connect_again(rank, route.address)?;
            connection = again.ok_or_else(|| unanswered(why, rank, route))?;
        }
        self.greet(connection, rank, route, hello)
    }

    /// Says hello to a rank. Returns the connection if both accept each other.
    fn greet(
        &self,
        connection: Connection,
        rank: usize,
        route: &Route,
        hello: Hello,
    ) -> Result<Connection, JoinError> {
        let answered = self.say_hello(connection, rank, route, &hello);
        self.conclude(answered.map_err(|why| unanswered(why, rank, route))?, rank, route, &hello)
    }

    /// Says hello to a rank, and receives what it answers.
    fn say_hello(
        &self,
        mut connection: Connection,
        rank: usize,
        route: &Route,
        hello: &Hello,
    ) -> io::Result<Answered> {
        let mut handshake = Handshake::initiator(&self.keys, rank, &hello.encode());
        // All at once: a daemon may read the first message and close the connection, and then nothing may be on its way any more.
        let mut greeting: Vec<u8> = route.target.iter().flat_map(Target::encode).collect();
        greeting.extend(hello.encode());
        greeting.extend(handshake.iter_mut().flat_map(Handshake::write));
        connection.send_all(&greeting, self.rest().max(ANSWER_MIN))?;
        // A rank answers when it has connected to all lower ones.
        let mut reply = [0; HELLO_BYTES];
        let since = Ticks::now();
        connection.receive_while(&mut reply, || self.rest_of_answer(since))?;
        Ok(Answered { connection, handshake, reply, since })
    }

    /// Time that is left for an answer that is awaited since then.
    fn rest_of_answer(&self, since: Ticks) -> Duration {
        self.rest().max(ANSWER_MIN.saturating_sub(Ticks::now().since(since)))
    }

    /// Accepts a rank that has answered a hello, if it accepts this one.
    fn conclude(
        &self,
        answered: Answered,
        rank: usize,
        route: &Route,
        hello: &Hello,
    ) -> Result<Connection, JoinError> {
        let Answered { mut connection, handshake, reply, since } = answered;
        let address = route.address;
        let no_rank = || JoinError::NoRank { rank, address };
        let other_version =
            |theirs| JoinError::OtherVersion { rank, address, theirs, ours: self.offer.version() };
        if let Some(major) = other_major(&reply) {
            return Err(other_version(WireVersion { major, minor: None }));
        }
        let answer_bytes = reply;
        let reply = Hello::decode(&reply).ok_or_else(no_rank)?;
        let refused = |why: String| JoinError::Refused { rank, why };
        let answer = reply.answer().ok_or_else(no_rank)?;
        // Others may come from a daemon, or before the version is known.
        let has_offer = matches!(answer, Answer::Accepted | Answer::OtherVersion);
        let offer = hello.offer().filter(|_| has_offer).map(|_| Offer::from_word(reply.detail));
        if let Some(offer) = offer.filter(|offer| !offer.understands(self.offer)) {
            return Err(other_version(offer.version()));
        }
        connection.set_peer(offer.unwrap_or(Offer::MINOR_0));
        match answer {
            Answer::Accepted => {}
            // A rank of another version answers in that version.
            Answer::OtherVersion => return Err(no_rank()),
            Answer::WrongRank => {
                let why = format!("rank {} has connected already, or is none of the group", self.rank);
                return Err(refused(why));
            }
            Answer::OtherRanks => {
                return Err(refused(format!("its group has {} ranks, this one {}", reply.ranks, self.ranks)));
            }
            Answer::OtherSettings => {
                let is_cluster = self.cluster != ClusterHello::default();
                return Err(refused(
                    if is_cluster { OTHER_BOARD_SETTINGS } else { OTHER_SETTINGS }.to_owned(),
                ));
            }
            Answer::OtherSecurity => {
                let (theirs, ours) = (Keys::describe(reply.security), Keys::describe(self.keys.code()));
                return Err(refused(format!("it expects {theirs}, this rank has {ours}")));
            }
            Answer::OtherList => {
                let (theirs, ours) = (reply.cluster.list_serial, self.cluster.list_serial);
                return Err(refused(match theirs == ours {
                    true => {
                        format!("its member list differs, although both have the serial number {ours}")
                    }
                    false => format!(
                        "its member list has the serial number {theirs}, this one has {ours}; copy the newer list to all seats"
                    ),
                }));
            }
            Answer::OtherEpoch => return Err(JoinError::OtherEpoch { rank }),
            Answer::NoProgram => {
                return Err(self.missing(vec![rank], route.to_string()));
            }
            Answer::WrongKey => {
                return Err(refused(format!(
                    "the key that it has for rank {} is not that of this rank",
                    self.rank
                )));
            }
        }
        let Some(mut handshake) = handshake else { return Ok(connection) };
        let is_repeated = self.offer.repeats_answer() && offer.is_some_and(Offer::repeats_answer);
        let payload = if is_repeated { &answer_bytes[..] } else { &[] };
        let mut message = vec![0; HANDSHAKE_BYTES + payload.len()];
        connection
            .receive_while(&mut message, || self.rest_of_answer(since))
            .map_err(|why| unanswered(why, rank, route))?;
        if !handshake.read_with(&message, payload) {
            return Err(JoinError::Untrusted { rank, address });
        }
        let mut seal = handshake.finish();
        let confirmed = connection.send_all(&seal.confirmation(), self.rest().max(ANSWER_MIN));
        confirmed.map_err(|source| JoinError::Broken { rank, address, source })?;
        connection.seal(seal);
        Ok(connection)
    }

    /// Error of a rank at whose address others did not come, or could not be accepted.
    fn nobody_came(&self, missing: Vec<usize>, route: &Route, lobby: &mut Lobby) -> JoinError {
        let Some(closed) = lobby.closed(route.address) else {
            let waited = Ticks::now().since(self.start);
            let (turned_away, other_version) = (lobby.turned_away, lobby.other_version);
            return JoinError::Missing { missing, at: route.to_string(), waited, turned_away, other_version };
        };
        closed
    }

    fn missing(&self, missing: Vec<usize>, at: String) -> JoinError {
        let waited = Ticks::now().since(self.start);
        JoinError::Missing { missing, at, waited, turned_away: 0, other_version: None }
    }
}

/// Answer of a rank to a hello.
struct Answered {
    connection: Connection,
    /// The handshake that began with the hello, if there are keys.
    handshake: Option<Handshake>,
    reply: [u8; HELLO_BYTES],
    /// Time of the hello.
    since: Ticks,
}

/// Error of a rank that did not answer.
fn unanswered(source: io::Error, rank: usize, route: &Route) -> JoinError {
    let address = route.address;
    match source.kind() {
        ErrorKind::UnexpectedEof => JoinError::NoRank { rank, address },
        _ => JoinError::Broken { rank, address, source },
    }
}

/// Whether a connection is with itself. Where nobody listens yet, the system may give the caller the very port that it calls.
fn is_own(stream: &TcpStream) -> bool {
    stream.local_addr().is_ok_and(|own| stream.peer_addr().is_ok_and(|peer| own == peer))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn rank_0_is_reached_at_the_address_that_was_given() {
        let key = GroupKey::generate().unwrap();
        let port = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap().local_addr().unwrap().port();
        let join_at = |ip: [u8; 4], rank| {
            let settings = TcpSettings {
                security: Security::GroupKey(key.clone()),
                messages: MessageSettings::default(),
            };
            join(&Rendezvous::Address(SocketAddr::from((ip, port))), rank, 2, &settings)
        };
        thread::scope(|scope| {
            let first = scope.spawn(|| join_at([0, 0, 0, 0], 0));
            let second = join_at([127, 0, 0, 7], 1).unwrap();
            let connection = second.links[0].messages().unwrap();
            assert_eq!(connection.stream().peer_addr().unwrap().to_string(), format!("127.0.0.7:{port}"));
            first.join().unwrap().unwrap();
        });
    }
}
