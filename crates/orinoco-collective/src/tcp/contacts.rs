use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use super::connection::Connection;
use super::directory::{decode, directory_bytes, encode};
use super::join::{
    GiveUp, Joined, Listed, PeerLinks, Place, Route, SharedPlace, check_capability, join_listed,
};
use super::lobby::{Door, Lobby};
use super::offer::{Capabilities, Capability};
use super::program_port::ProgramPort;
use super::pulse::Pulse;
use super::target::Target;
use crate::caller::Caller;
use crate::clock::{Ticks, pause};
use crate::message::{MessageSettings, Survivor, Survivors};
use crate::security::{GroupKey, KEY_DIGITS, Keys};
use crate::split::{Member, divide};
use crate::{CollectiveError, Communicator, FailureCause, JoinError, KeyError};

/// Offer of a rank: its address, a number, and a key as text. Of the new group's rank 0, number and key are those of the group. Where
/// ranks share the ports of daemons, each is found by its own number.
const ADDRESS_BYTES: usize = directory_bytes(1);
const NUMBER_BYTES: usize = 4;
const OFFER_BYTES: usize = ADDRESS_BYTES + NUMBER_BYTES + KEY_DIGITS;

/// Time after a connection broke in which the parent learns that the other rank is lost: it has other connections, and a thread that
/// reads them.
const VERDICT: Duration = Duration::from_millis(200);
/// Period in which the parent is asked.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// Keys and addresses with which a rank connects with the others of its group again, for groups that are split off.
#[derive(Clone)]
pub(crate) struct Contacts {
    keys: Keys,
    /// Place at which this rank takes connections.
    place: Place,
    /// Addresses of the others on this group's connections with them, by rank. `None` for this rank itself.
    peers: Vec<Option<IpAddr>>,
    /// Addresses at which ranks listen, by rank; unspecified if they do so at all addresses of their machines.
    ips: Vec<IpAddr>,
    /// Capabilities of each rank, by rank.
    capabilities: Vec<Capabilities>,
}

impl Contacts {
    pub(crate) fn of(joined: &Joined) -> Self {
        let peer = |connection: &Connection| connection.stream().peer_addr().ok();
        let ip =
            |links: &PeerLinks| links.messages().and_then(peer).map(|address| address.ip().to_canonical());
        Self {
            keys: joined.keys.clone(),
            place: joined.place.clone(),
            peers: joined.links.iter().map(ip).collect(),
            ips: joined.ips.clone(),
            capabilities: joined.capabilities(),
        }
    }

    /// Checks that all ranks of this group have a capability.
    pub(super) fn check(&self, needed: Capability) -> Result<(), JoinError> {
        check_capability(&self.capabilities, needed)
    }

    /// Divides a group, whose contacts and pulse these are, into new ones. Connects this rank with the others of its new group, unless
    /// one of them is lost, and returns its number there; `None` if it has no colour.
    pub(super) fn divide(
        &self,
        parent: &mut impl Communicator,
        pulse: &Arc<Pulse>,
        color: Option<u32>,
        key: i32,
        settings: &MessageSettings,
    ) -> Result<Option<(Joined, usize)>, JoinError> {
        let own = parent.rank();
        let Some((door, part)) = divide(parent, color, key, || prepare(&self.place, &self.keys, settings))?
        else {
            return Ok(None);
        };
        let route = |member| self.route_to(member);
        let routes = part.members.iter().map(route).collect::<Result<Vec<_>, _>>()?;
        let number = number_of(&part.members[0]);
        let key = &part.members[0].offer[ADDRESS_BYTES + NUMBER_BYTES..];
        let keys = match &self.keys {
            Keys::Plaintext => Keys::Plaintext,
            Keys::Group(_) => {
                let key = std::str::from_utf8(key).ok().and_then(GroupKey::from_text);
                Keys::Group(key.ok_or(JoinError::Unprepared { rank: part.members[0].rank })?)
            }
            Keys::Pairs { .. } => {
                self.keys_of(&part.members.iter().map(|member| member.rank).collect::<Vec<_>>())
            }
        };
        debug_assert_eq!(part.members[part.rank].rank, own);
        let place = self.place_among(&routes);
        let mut lobby = Lobby::new(door, keys.clone()).map_err(JoinError::System)?;
        let listed = Listed { place, routes, rank: part.rank, keys, number };
        let loss = Loss {
            pulse: Arc::clone(pulse),
            members: part.members.iter().map(|member| member.rank).collect(),
        };
        let loss = Arc::new(loss);
        let is_lost = Arc::clone(&loss);
        let give_up = Some(GiveUp::OnLoss(Arc::new(move || is_lost.find().is_some())));
        let joined = join_listed(&mut lobby, listed, settings, give_up).map_err(|why| {
            match loss.explain(&why) {
                None => why,
                Some((rank, cause)) => {
                    // They wait for one another, as at a barrier.
                    let call = Caller { rank: own, ranks: parent.ranks() }.barrier();
                    JoinError::Split(CollectiveError::EpochFailed { epoch: pulse.epoch(), rank, cause, call })
                }
            }
        });
        Ok(Some((joined?, part.rank)))
    }

    /// Keys of a group of these ranks. A group key stays the same.
    fn keys_of(&self, ranks: &[usize]) -> Keys {
        match &self.keys {
            Keys::Pairs { own, public } => {
                Keys::Pairs { own: own.clone(), public: ranks.iter().map(|rank| public[*rank]).collect() }
            }
            keys => keys.clone(),
        }
    }

    /// Opens a lobby for the ranks of a smaller group, by this rank's random number. Returns its port, or 0 if that is a daemon's.
    pub(super) fn open(&self, number: u32, settings: &MessageSettings) -> Result<(Lobby, u16), JoinError> {
        let (door, address) = open_door(&self.place, number, settings)?;
        Ok((Lobby::new(door, self.keys.clone()).map_err(JoinError::System)?, address.port()))
    }

    /// Introduction of a rank to the other ranks that are left of this group.
    pub(super) fn listed(&self, own: usize, survivors: &Survivors) -> Listed {
        let route = |member: &Survivor| match &self.place {
            Place::Shared(shared) => {
                let target = Target::of_split(&shared.group, member.number);
                Route { address: shared.addresses[member.rank], target: Some(target) }
            }
            Place::Ports { .. } => {
                let listens = self.ips[member.rank];
                let of_link = self.peers[member.rank].filter(|_| listens.is_unspecified());
                Route { address: SocketAddr::new(of_link.unwrap_or(listens), member.port), target: None }
            }
        };
        let routes: Vec<Route> = survivors.members.iter().map(route).collect();
        let ranks: Vec<usize> = survivors.members.iter().map(|member| member.rank).collect();
        let rank = ranks.iter().position(|rank| *rank == own).expect("it is one of them");
        let place = self.place_among(&routes);
        Listed { place, routes, rank, keys: self.keys_of(&ranks), number: survivors.group }
    }

    /// The way to a member of the new group, for this rank. One that has several addresses is at that of this group's connection with it.
    fn route_to(&self, member: &Member<OFFER_BYTES>) -> Result<Route, JoinError> {
        if let Place::Shared(shared) = &self.place {
            let target = Target::of_split(&shared.group, number_of(member));
            return Ok(Route { address: shared.addresses[member.rank], target: Some(target) });
        }
        let offered = decode(&member.offer[..ADDRESS_BYTES]).and_then(|found| found.first().copied());
        let offered = offered.ok_or(JoinError::Unprepared { rank: member.rank })?;
        let of_link = self.peers[member.rank].filter(|_| offered.ip().is_unspecified());
        let address = SocketAddr::new(of_link.unwrap_or(offered.ip()), offered.port());
        Ok(Route { address, target: None })
    }

    /// The place of this rank in a group whose ranks are reached by these routes.
    fn place_among(&self, routes: &[Route]) -> Place {
        match &self.place {
            Place::Shared(shared) => Place::Shared(Arc::new(SharedPlace {
                group: shared.group.clone(),
                addresses: routes.iter().map(|route| route.address).collect(),
                socket: shared.socket.clone(),
            })),
            own @ Place::Ports { .. } => own.clone(),
        }
    }
}

/// Loss of a rank of a new group, as the parent knows it.
struct Loss {
    pulse: Arc<Pulse>,
    /// Ranks of the new group, by their numbers in the parent.
    members: Vec<usize>,
}

impl Loss {
    /// Returns a member that is lost. One that has left the parent in order may have joined the new group before.
    fn find(&self) -> Option<(usize, FailureCause)> {
        let is_loss = |cause: &FailureCause| cause.is_absence() && *cause != FailureCause::Left;
        self.pulse.health(|health| {
            self.members.iter().find_map(|rank| Some((*rank, health.lost(*rank).filter(is_loss)?)))
        })
    }

    /// Returns the member whose loss is the reason of an error.
    fn explain(&self, error: &JoinError) -> Option<(usize, FailureCause)> {
        let time = match error {
            JoinError::Missing { .. } => Duration::ZERO,
            JoinError::NoRank { .. } | JoinError::Broken { .. } => VERDICT,
            _ => return None,
        };
        let start = Ticks::now();
        loop {
            let found = self.find();
            if found.is_some() || Ticks::now().since(start) >= time {
                return found;
            }
            pause(ASK_EVERY);
        }
    }
}

/// The number that a rank has offered.
fn number_of(member: &Member<OFFER_BYTES>) -> u32 {
    let bytes = member.offer[ADDRESS_BYTES..].first_chunk().expect("a number");
    u32::from_le_bytes(*bytes)
}

/// Takes connections of the ranks of a new group, and makes the offer to it.
fn prepare(
    place: &Place,
    keys: &Keys,
    settings: &MessageSettings,
) -> Result<(Door, Zeroizing<[u8; OFFER_BYTES]>), JoinError> {
    let mut offer = Zeroizing::new([0; OFFER_BYTES]);
    let (own, of_first) = offer.split_at_mut(ADDRESS_BYTES);
    let (number, key) = of_first.split_first_chunk_mut().expect("a number");
    getrandom::fill(number).map_err(|error| KeyError::Randomness(error.to_string()))?;
    if let Keys::Group(_) = keys {
        key.copy_from_slice(GroupKey::generate()?.to_text().as_bytes());
    }
    let (door, address) = open_door(place, u32::from_le_bytes(*number), settings)?;
    own.copy_from_slice(&encode(&[address]));
    Ok((door, offer))
}

/// Opens the entrance of a rank, at a port or with its random number at its daemon's. Returns the address at which others reach it.
fn open_door(
    place: &Place,
    number: u32,
    settings: &MessageSettings,
) -> Result<(Door, SocketAddr), JoinError> {
    match place {
        Place::Ports { ip, listen } => {
            let address = SocketAddr::new(*listen, 0);
            let fault = |source| JoinError::Listen { address, source };
            let listener = TcpListener::bind(address).map_err(fault)?;
            let port = listener.local_addr().map_err(fault)?.port();
            Ok((Door::Own(listener), SocketAddr::new(*ip, port)))
        }
        Place::Shared(shared) => {
            let target = Target::of_split(&shared.group, number);
            let port = ProgramPort::open(&shared.socket, target, settings.deadline)?;
            // The others know the daemon's address already.
            Ok((Door::Shared(port), SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;
    use crate::{Rendezvous, Security, TcpGroup, TcpSettings};

    /// Variable of the environment for the last rank: the file, and its key.
    const LAST_RANK: &str = "ORINOCO_TEST_RANK_THAT_DIVIDES_OVER_TCP";
    /// No rank becomes silent or late within the test: the cause would be another one.
    const LONG: Duration = Duration::from_secs(60);
    const RANKS: usize = 3;

    fn join(path: &str, rank: usize) -> TcpGroup {
        let messages = MessageSettings { deadline: LONG, silence: LONG, ..MessageSettings::default() };
        let settings = TcpSettings { security: Security::FileKey, messages };
        TcpGroup::join(&Rendezvous::File(PathBuf::from(path)), rank, RANKS, settings).expect("all join")
    }

    /// Rank 2 of the next test in a process of its own, if it is one: it is killed when the new group is agreed upon.
    #[test]
    fn last_rank() {
        let Some(text) = std::env::var_os(LAST_RANK).and_then(|text| text.into_string().ok()) else {
            return;
        };
        let (path, key) = text.split_once('=').expect("a file and a key");
        let mut group = join(path, 2);
        let (settings, contacts) = (group.settings(), group.transport().contacts.clone());
        let prepare = || prepare(&contacts.place, &contacts.keys, &settings);
        let divided = divide(&mut group, Some(0), key.parse().expect("a key"), prepare);
        divided.expect("all choose").expect("a part");
        kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
    }

    #[test]
    fn a_rank_that_ends_before_it_has_joined_the_new_group_is_not_waited_for() {
        // Higher ranks connect to lower ones.
        for key in [-1, 1, 3] {
            let path = format!("/dev/shm/orinoco-test-split-tcp-{}-{key}", std::process::id());
            let mut last = Command::new(std::env::current_exe().expect("this program"));
            last.args(["--exact", "tcp::contacts::tests::last_rank"]);
            last.env(LAST_RANK, OsString::from(format!("{path}={key}")));
            let mut last = last.stdout(Stdio::null()).spawn().expect("it starts");
            let start = Ticks::now();
            let split = |rank: usize| {
                let mut group = join(&path, rank);
                let key = i32::try_from(2 * rank).expect("few ranks");
                group.split(Some(0), key).err().expect("the last rank has ended")
            };
            let errors = std::thread::scope(|scope| {
                let ranks = [0, 1].map(|rank| scope.spawn(move || split(rank)));
                ranks.map(|rank| rank.join().expect("no panic"))
            });
            last.wait().expect("it has ended");
            for error in errors {
                let JoinError::Split(CollectiveError::EpochFailed { rank, cause, .. }) = error else {
                    panic!("{error}")
                };
                assert_eq!((rank, cause), (2, FailureCause::Ended), "key {key}");
            }
            assert!(Ticks::now().since(start) < LONG / 2, "key {key}");
        }
    }
}
