//! Threads of a seat: one exchanges packets with other seats, one accepts connections, and one for each lower seat connects to it.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::assembly::Assembly;
use super::membership::MembershipEvent;
use super::packet::{PACKET_BYTES, Packet};
use super::probe;
use super::seats::SeatSet;
use super::shared::{Shared, describe};
use crate::clock::pause;
use crate::message::Moved;
use crate::tcp::{Connection, Lobby, PacketLink, Pauses, Use, lower, raise, wait_for};

/// Longest time until a thread sees that the seat is closed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Interval at which the figures of links are sent to other seats. They change rarely, and nothing waits for them.
const FIGURES_EVERY: Duration = Duration::from_secs(1);
/// Time for one attempt to connect to another seat.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Time between two attempts to connect, at first and at most. A connection that is lost is noticed after the longer one at the latest.
const RETRY: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Work of a thread.
type Work = Box<dyn FnOnce(&Arc<Shared>) + Send>;

/// Starts the threads of a seat that listens at these addresses, and for programs on its board at a Unix socket. Returns those to wait
/// for when the seat is closed. Those that connect to other seats end by themselves: an attempt may take a while.
pub(super) fn start(
    shared: &Arc<Shared>,
    listeners: Vec<SeatListener>,
    programs: Option<Arc<UnixListener>>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let spawn = |name: &str, work: Work| {
        let shared = Arc::clone(shared);
        thread::Builder::new().name(name.to_owned()).spawn(move || work(&shared))
    };
    let mut threads = vec![spawn("orinoco-seat", Box::new(|shared| Control::new(shared).run()))?];
    for listener in listeners {
        threads.push(spawn("orinoco-lobby", Box::new(|shared| listener.run(shared)))?);
    }
    if let (Some(sharing), Some(listener)) = (shared.programs.clone(), programs) {
        let serve = move |shared: &Arc<Shared>| {
            sharing.run(&listener, LOOK_EVERY, || shared.lock().is_ending);
        };
        threads.push(spawn("orinoco-programs", Box::new(serve))?);
    }
    for seat in 0..shared.own {
        spawn("orinoco-dial", Box::new(move |shared| dial(shared, seat)))?;
    }
    Ok(threads)
}

/// Exchanges packets with other seats.
struct Control<'s> {
    shared: &'s Shared,
    /// By seat.
    links: Vec<Option<PacketLink>>,
    /// Time at which other seats get the figures of this one's links next.
    next_figures: Duration,
}

impl<'s> Control<'s> {
    fn new(shared: &'s Shared) -> Self {
        let links = shared.list.seats.iter().map(|_| None).collect();
        Self { shared, links, next_figures: Duration::ZERO }
    }

    fn run(mut self) {
        crate::priority::raise();
        let mut pauses = Pauses::default();
        while !self.shared.lock().is_ending {
            self.admit();
            let has_more = self.receive();
            let due = self.act();
            pauses.after_round(has_more);
            let rest = due.saturating_sub(self.shared.now());
            self.wait(if has_more { Duration::ZERO } else { rest });
        }
    }

    /// Takes the connections that were opened.
    fn admit(&mut self) {
        let mut state = self.shared.lock();
        for (seat, connection) in std::mem::take(&mut state.opened) {
            self.links[seat] = Some(PacketLink::new(connection));
            state.faults[seat] = None;
            state.membership.connected_with(seat, self.shared.now());
        }
    }

    /// Reads some packets of each seat. Returns whether there may be more.
    fn receive(&mut self) -> bool {
        let mut state = self.shared.lock();
        let now = self.shared.now();
        let mut has_more = false;
        for (seat, place) in self.links.iter_mut().enumerate() {
            let Some(link) = place else { continue };
            has_more |= matches!(link.read(), Moved::Bytes(_));
            let mut is_right = true;
            for packet in link.packets::<PACKET_BYTES>() {
                match Packet::decode(&packet) {
                    Some(Packet::Link(link)) => is_right &= state.figures_of(seat, link),
                    Some(packet) => state.membership.received(seat, packet, now),
                    None => is_right = false,
                }
            }
            if link.is_closed() || !is_right {
                *place = None;
                state.figures[seat].fill(None);
                state.membership.closed(seat, now);
            }
        }
        has_more
    }

    /// Does what is due, and sends packets. Returns the time at which something is due next.
    fn act(&mut self) -> Duration {
        let mut state = self.shared.lock();
        let now = self.shared.now();
        if state.membership.poll_timeout() <= now {
            state.membership.handle_timeout(now);
        }
        while let Some(event) = state.membership.next_event() {
            match event {
                MembershipEvent::Committed { epoch, members } => {
                    state.assembly = Some(Assembly::new(epoch, epoch, members, self.links.len()));
                }
                MembershipEvent::Silent { seat } => self.links[seat] = None,
            }
        }
        while let Some((seat, packet)) = state.membership.next_packet() {
            if let Some(link) = &mut self.links[seat] {
                link.push(&packet.encode(), matches!(packet, Packet::Status(_)));
            }
        }
        if now >= self.next_figures {
            self.next_figures = now + FIGURES_EVERY;
            let packets: Vec<Packet> = state.own_figures().collect();
            for link in self.links.iter_mut().flatten() {
                packets.iter().for_each(|packet| link.push(&packet.encode(), true));
            }
        }
        let due = state.membership.poll_timeout().min(self.next_figures);
        drop(state);
        self.links.iter_mut().flatten().for_each(PacketLink::flush);
        // Whatever changed, the program may look at it.
        raise(&self.shared.news);
        due
    }

    fn wait(&self, time: Duration) {
        let mut awaited = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        awaited.extend(self.links.iter().flatten().filter_map(PacketLink::poll_fd));
        wait_for(&mut awaited, time);
        lower(&self.shared.wake);
    }
}

/// An address at which a seat accepts connections of other seats.
pub(super) struct SeatListener {
    address: SocketAddr,
    /// `None` while the system refuses the address: its network interface may come later.
    lobby: Option<Lobby>,
}

impl SeatListener {
    /// Listens at all addresses of a seat.
    ///
    /// # Errors
    /// If it cannot listen at any of them: the first address, and the system's answer.
    pub(super) fn open_all(
        shared: &Shared,
        addresses: &[SocketAddr],
    ) -> Result<Vec<Self>, (SocketAddr, io::Error)> {
        let (mut listeners, mut faults) = (Vec::new(), Vec::new());
        for address in addresses.iter().copied() {
            let lobby = Self::open(shared, address).map_err(|why| faults.push((address, why))).ok();
            listeners.push(Self { address, lobby });
        }
        match faults.len() == addresses.len() {
            true => Err(faults.remove(0)),
            false => Ok(listeners),
        }
    }

    fn open(shared: &Shared, address: SocketAddr) -> io::Result<Lobby> {
        let lobby = Lobby::open(address, shared.keys(0..shared.list.seats.len()))
            .map(|lobby| lobby.with_programs(shared.programs.clone()));
        let mut state = shared.lock();
        match &lobby {
            Ok(_) => state.unbound.remove(&address),
            Err(why) => state.unbound.insert(address, why.to_string()),
        };
        drop(state);
        lobby
    }

    fn run(mut self, shared: &Arc<Shared>) {
        let own = shared.introduction(0, SeatSet::default(), Duration::ZERO).hello(Use::Notices, 0, 0);
        let mut retry = Duration::ZERO;
        while !shared.lock().is_ending {
            let Some(lobby) = &mut self.lobby else {
                pause(LOOK_EVERY);
                retry += LOOK_EVERY;
                if retry >= RETRY_MAX {
                    (self.lobby, retry) = (Self::open(shared, self.address).ok(), Duration::ZERO);
                }
                continue;
            };
            let next = lobby.next(LOOK_EVERY, &own, |hello| shared.answer(&own, hello));
            match next {
                Some((connection, hello)) if hello.purpose() == Some(Use::Probe) => {
                    answer_probe(shared, hello.from as usize, connection);
                }
                Some((connection, hello)) => shared.arrived(connection, &hello),
                None => {}
            }
        }
    }
}

/// Answers a seat that measures a link, on a thread of its own: others connect meanwhile.
fn answer_probe(shared: &Arc<Shared>, from: usize, connection: Connection) {
    shared.lock().probes[from] += 1;
    let answering = Arc::clone(shared);
    let answer = move || {
        let link = probe::answer(connection);
        let mut state = answering.lock();
        state.probes[from] -= 1;
        if let Some(link) = link {
            state.links[from].reported(link);
        }
    };
    if thread::Builder::new().name("orinoco-probe".to_owned()).spawn(answer).is_err() {
        // The other seat sees that the connection is closed, and has no figures.
        shared.lock().probes[from] -= 1;
    }
}

/// Connects to a lower seat whenever there is no connection, and measures the links with it.
fn dial(shared: &Shared, seat: usize) {
    let addresses = shared.list.seats[seat].addresses.len();
    let mut retry = RETRY;
    loop {
        let state = shared.lock();
        if state.is_ending {
            return;
        }
        let is_connected = state.membership.reachable().contains(seat);
        let is_opened = state.opened.iter().any(|(opened, _)| *opened == seat);
        let due = state.links[seat].due(addresses, shared.now());
        drop(state);
        if is_connected || is_opened {
            retry = RETRY;
            measure(shared, seat, due);
            pause(RETRY_MAX);
            continue;
        }
        // The first epoch with the seat is to use the fastest link.
        if addresses > 1 {
            measure(shared, seat, 0..addresses);
        }
        match dial_first(shared, seat) {
            Ok(connection) => shared.lock().opened.push((seat, connection)),
            Err(why) => {
                shared.lock().faults[seat] = Some(why);
                pause(retry);
                retry = RETRY_MAX.min(2 * retry);
            }
        }
        raise(&shared.wake);
    }
}

/// Measures the links with a lower seat at these of its addresses.
fn measure(shared: &Shared, seat: usize, due: impl IntoIterator<Item = usize>) {
    for at in due {
        let link = probe::measure(shared, seat, shared.list.seats[seat].addresses[at]);
        shared.lock().links[seat].measured(at, link, shared.now());
    }
}

/// Connects to a lower seat at the first of its addresses at which it answers, the best first.
fn dial_first(shared: &Shared, seat: usize) -> Result<Connection, String> {
    let mut faults = Vec::new();
    for address in shared.preference(seat) {
        let attempt = shared.introduction(0, SeatSet::default(), ATTEMPT);
        match attempt.try_dial(Use::Membership, 0, seat, address) {
            Ok(connection) => return Ok(connection),
            Err(why) => faults.push(describe(&why, address)),
        }
    }
    faults.dedup();
    Err(faults.join("; "))
}
