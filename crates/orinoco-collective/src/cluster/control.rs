//! Threads of a seat: one exchanges packets with other seats, one accepts connections, and one for each lower seat connects to it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::membership::MembershipEvent;
use super::packet::{PACKET_BYTES, Packet};
use super::seats::SeatSet;
use super::shared::{Assembly, Shared};
use crate::JoinError;
use crate::clock::pause;
use crate::message::Moved;
use crate::tcp::{Lobby, PacketLink, Use, lower, raise, wait_for};

/// Longest time until a thread sees that the seat is closed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time for one attempt to connect to another seat.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Time between two attempts to connect, at first and at most. A connection that is lost is noticed after the longer one at the latest.
const RETRY: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Starts the threads of a seat that listens in `lobby`. Returns those to wait for when the seat is closed. Those that connect to other
/// seats end by themselves: an attempt may take a while.
pub(super) fn start(shared: &Arc<Shared>, lobby: Lobby) -> io::Result<[JoinHandle<()>; 2]> {
    let spawn = |name: &str, work: Box<dyn FnOnce(&Shared) + Send>| {
        let shared = Arc::clone(shared);
        thread::Builder::new().name(name.to_owned()).spawn(move || work(&shared))
    };
    let control = spawn("orinoco-seat", Box::new(|shared| Control::new(shared).run()))?;
    let lobby = spawn("orinoco-lobby", Box::new(|shared| accept(shared, lobby)))?;
    for seat in 0..shared.own {
        spawn("orinoco-dial", Box::new(move |shared| dial(shared, seat)))?;
    }
    Ok([control, lobby])
}

/// Exchanges packets with other seats.
struct Control<'s> {
    shared: &'s Shared,
    /// By seat.
    links: Vec<Option<PacketLink>>,
}

impl<'s> Control<'s> {
    fn new(shared: &'s Shared) -> Self {
        Self { shared, links: shared.list.seats.iter().map(|_| None).collect() }
    }

    fn run(mut self) {
        crate::priority::raise();
        while !self.shared.lock().is_ending {
            self.admit();
            let has_more = self.receive();
            let due = self.act();
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
                    Some(packet) => state.membership.received(seat, packet, now),
                    None => is_right = false,
                }
            }
            if link.is_closed() || !is_right {
                *place = None;
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
                    state.assembly = Some(Assembly::new(epoch, members, self.links.len()));
                }
                MembershipEvent::Silent { seat } => self.links[seat] = None,
            }
        }
        while let Some((seat, packet)) = state.membership.next_packet() {
            if let Some(link) = &mut self.links[seat] {
                link.push(&packet.encode(), matches!(packet, Packet::Status(_)));
            }
        }
        let due = state.membership.poll_timeout();
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

/// Accepts connections of other seats.
fn accept(shared: &Shared, mut lobby: Lobby) {
    let own = shared.introduction(0, SeatSet::default(), Duration::ZERO).hello(Use::Membership, 0, 0);
    while !shared.lock().is_ending {
        if let Some((connection, hello)) = lobby.next(LOOK_EVERY, &own, |hello| shared.answer(&own, hello)) {
            shared.arrived(connection, &hello);
        }
    }
}

/// Connects to a lower seat whenever there is no connection.
fn dial(shared: &Shared, seat: usize) {
    let address = shared.list.seats[seat].address;
    let mut retry = RETRY;
    loop {
        let state = shared.lock();
        if state.is_ending {
            return;
        }
        let is_connected = state.membership.reachable().contains(seat);
        let is_opened = state.opened.iter().any(|(opened, _)| *opened == seat);
        drop(state);
        if is_connected || is_opened {
            retry = RETRY;
            pause(RETRY_MAX);
            continue;
        }
        let joining = shared.introduction(0, SeatSet::default(), ATTEMPT);
        match joining.try_dial(Use::Membership, seat, address) {
            Ok(connection) => shared.lock().opened.push((seat, connection)),
            Err(why) => {
                shared.lock().faults[seat] = Some(describe(&why, address));
                pause(retry);
                retry = RETRY_MAX.min(2 * retry);
            }
        }
        raise(&shared.wake);
    }
}

/// Reason for which a seat could not be connected with, for people.
fn describe(why: &JoinError, address: SocketAddr) -> String {
    match why {
        JoinError::Missing { .. } => format!("nobody listens at {address}"),
        JoinError::NoRank { .. } => {
            format!("no valid reply from {address}: another program uses that port, or another version")
        }
        JoinError::Untrusted { .. } => {
            format!("the program that replies at {address} does not have the seat's key")
        }
        JoinError::Refused { why, .. } => format!("it refuses this seat: {why}"),
        other => other.to_string(),
    }
}
