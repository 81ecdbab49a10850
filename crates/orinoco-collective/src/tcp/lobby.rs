//! Connections that others open. A guest becomes a connection of the group by a hello and, with keys, by a handshake and its
//! confirmation. Whoever sends anything else, or nothing for too long, is shown out. A daemon's lobby passes
//! guests for programs on its board to them.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::listen;

use super::connection::Connection;
use super::hello::{Answer, HELLO_BYTES, Hello, other_major};
use super::offer::Offer;
use super::port_sharing::PortSharing;
use super::program_port::ProgramPort;
use super::socket::{read, set_up, wait_for};
use super::target::Target;
use crate::clock::Ticks;
use crate::message::Moved;
use crate::security::{CONFIRMATION_BYTES, HANDSHAKE_BYTES, Handshake, Keys, Seal};
use crate::{JoinError, WireVersion};

/// Most connections that are not accepted yet. For one more, the one that has come the least far is shown out, the oldest of several,
/// after some time for its first words.
const GUESTS_MAX: usize = 128;
/// Time that a guest has for them. A rank may be kept from saying hello at once while the cores are busy.
const SILENCE_TIME: Duration = Duration::from_millis(10);
/// Connections that are let in before all guests are read from. Fewer than fit: none is shown out before it was.
const ARRIVALS_MAX: usize = GUESTS_MAX / 2;
/// Connections that wait at the port until they are let in. The standard library's 128 are too few for a port scan while the cores are
/// busy: for one more, whoever connects tries again a second later.
const BACKLOG: i32 = 4096;
/// Time until a guest is accepted.
const GUEST_TIME: Duration = Duration::from_secs(2);
/// Time for an answer. It is short, and the first that is sent: it does not wait for the guest.
const ANSWER_TIME: Duration = Duration::from_millis(10);
/// Time until connections are accepted again after none could be. They would be looked at without pause otherwise: they stay.
const CLOSED_TIME: Duration = Duration::from_millis(50);
/// Bytes that a guest may have sent before it reads a refusal.
const UNREAD_MAX: usize = 256;

pub(crate) struct Lobby {
    door: Door,
    keys: Keys,
    /// Programs to which guests are handed over.
    programs: Option<Arc<PortSharing>>,
    guests: Vec<Guest>,
    /// Guests without the right key so far.
    pub(super) turned_away: usize,
    /// Version of the last guest of one that this rank does not understand.
    pub(super) other_version: Option<WireVersion>,
    /// Reason for which no connection is accepted now: too many files are open, or the daemon whose port is shared has ended.
    closed: Option<io::Error>,
}

/// Entrance of guests.
pub(super) enum Door {
    /// A port of its own.
    Own(TcpListener),
    /// The port of the board's daemon.
    Shared(ProgramPort),
}

impl Door {
    fn accept(&mut self) -> io::Result<TcpStream> {
        match self {
            Self::Own(listener) => listener.accept().map(|(stream, _)| stream),
            Self::Shared(port) => port.accept(),
        }
    }

    /// Descriptor that is readable when there is a guest.
    fn waits_at(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Own(listener) => Some(listener.as_fd()),
            Self::Shared(port) => port.is_open().then(|| port.as_fd()),
        }
    }

    /// The error again, if it is not about one connection alone: nobody can come until it is over.
    fn closed_by(&self, error: io::Error) -> Option<io::Error> {
        match self {
            Self::Shared(port) if !port.is_open() => Some(error),
            _ => exhausted(&error).map(io::Error::from),
        }
    }
}

/// A connection that is not accepted yet.
struct Guest {
    connection: Connection,
    stage: Stage,
    /// Bytes of the stage that have come.
    bytes: Vec<u8>,
    since: Ticks,
}

/// Bytes that are expected of a guest.
enum Stage {
    Hello,
    Handshake(Hello),
    Confirmation(Hello, Box<Seal>),
}

impl Lobby {
    pub(crate) fn open(address: SocketAddr, keys: Keys) -> io::Result<Self> {
        Self::new(Door::Own(TcpListener::bind(address)?), keys)
    }

    pub(super) fn new(door: Door, keys: Keys) -> io::Result<Self> {
        if let Door::Own(listener) = &door {
            listener.set_nonblocking(true)?;
            listen(listener, BACKLOG)?;
        }
        Ok(Self {
            door,
            keys,
            programs: None,
            guests: Vec::new(),
            turned_away: 0,
            other_version: None,
            closed: None,
        })
    }

    /// Error of a rank at whose address nobody can come now, if so.
    pub(super) fn closed(&mut self, address: SocketAddr) -> Option<JoinError> {
        let source = self.closed.take()?;
        Some(match &self.door {
            Door::Shared(port) if !port.is_open() => port.fault(source),
            _ => JoinError::Listen { address, source },
        })
    }

    /// Accepts guests by other keys from now on. Those in the middle of a handshake by the old ones are shown out.
    pub(super) fn set_keys(&mut self, keys: Keys) {
        self.guests.retain(|guest| matches!(guest.stage, Stage::Hello));
        self.keys = keys;
    }

    /// Hands guests over to programs.
    pub(crate) fn with_programs(self, programs: Option<Arc<PortSharing>>) -> Self {
        Self { programs, ..self }
    }

    /// The next connection that is accepted, if one is within `time`. `answer` decides on a hello, also after its handshake: the
    /// rank may have come by another connection meanwhile. `own` is this rank's hello, of which answers are made.
    pub(crate) fn next(
        &mut self,
        time: Duration,
        own: &Hello,
        answer: impl Fn(&Hello) -> Answer,
    ) -> Option<(Connection, Hello)> {
        let start = Ticks::now();
        loop {
            // Before others come, for whom those would be shown out that have only just spoken.
            if let Some(found) = self.listen(own, &answer) {
                return Some(found);
            }
            self.let_in();
            if let Some(found) = self.listen(own, &answer) {
                return Some(found);
            }
            let waited = Ticks::now().since(start);
            if waited >= time {
                return None;
            }
            self.wait(time - waited);
        }
    }

    fn let_in(&mut self) {
        for _ in 0..ARRIVALS_MAX {
            if self.is_full() {
                return;
            }
            let stream = match self.door.accept() {
                Ok(stream) => stream,
                // Whatever went wrong with one connection, others may come.
                Err(why) => {
                    self.closed = self.door.closed_by(why);
                    return;
                }
            };
            self.closed = None;
            if set_up(&stream).is_ok() {
                if self.guests.len() == GUESTS_MAX {
                    let leaver = self.first_to_leave().expect("a lobby that is not full");
                    self.guests.remove(leaver);
                }
                self.guests.push(Guest {
                    connection: Connection::plain(stream),
                    stage: Stage::Hello,
                    bytes: Vec::new(),
                    since: Ticks::now(),
                });
            }
        }
    }

    /// Whether there is no place for another guest yet: those who are here had no time to say hello.
    fn is_full(&self) -> bool {
        self.guests.len() == GUESTS_MAX && self.first_to_leave().is_none()
    }

    /// The guest that makes room for another one. They are in the order of their arrival. One that has the right key stays: it may take
    /// itself for connected already.
    fn first_to_leave(&self) -> Option<usize> {
        let now = Ticks::now();
        let may_leave = |guest: &Guest| {
            !matches!(guest.stage, Stage::Confirmation(..)) && now.since(guest.since) >= SILENCE_TIME
        };
        let guests = self.guests.iter().enumerate().filter(|(_, guest)| may_leave(guest));
        guests.min_by_key(|(_, guest)| guest.progress()).map(|(at, _)| at)
    }

    /// Reads from all guests. Returns the first that is accepted.
    fn listen(&mut self, own: &Hello, answer: &impl Fn(&Hello) -> Answer) -> Option<(Connection, Hello)> {
        let mut at = 0;
        while at < self.guests.len() {
            if !self.guests[at].has_stage() {
                match self.guests[at].receive() {
                    Moved::Bytes(_) => {}
                    Moved::Later if Ticks::now().since(self.guests[at].since) < GUEST_TIME => at += 1,
                    _ => drop(self.guests.remove(at)),
                }
                continue;
            }
            let guest = self.guests.remove(at);
            match guest.advance(&self.keys, own, answer) {
                Verdict::Stays(guest) => self.guests.insert(at, guest),
                Verdict::Accepted(connection, hello) => return Some((connection, hello)),
                Verdict::Refused => {}
                Verdict::WrongKey => self.turned_away += 1,
                Verdict::OtherVersion(connection, version) => {
                    self.other_version = Some(version);
                    refuse(connection, own, Answer::OtherVersion);
                }
                Verdict::ForProgram(connection, target) => {
                    let program = self.programs.as_ref();
                    if !program.is_some_and(|programs| programs.hand_over(&target, connection.stream())) {
                        refuse(connection, own, Answer::NoProgram);
                    }
                }
            }
        }
        None
    }

    fn wait(&self, time: Duration) {
        let mut awaited: Vec<PollFd<'_>> =
            self.guests.iter().map(|guest| PollFd::new(&guest.connection, PollFlags::IN)).collect();
        let is_full = self.is_full();
        let door = self.door.waits_at().filter(|_| self.closed.is_none() && !is_full);
        awaited.extend(door.as_ref().map(|door| PollFd::new(door, PollFlags::IN)));
        let longest = match &door {
            _ if is_full => SILENCE_TIME,
            None => CLOSED_TIME,
            Some(_) if self.guests.is_empty() => time,
            Some(_) => GUEST_TIME,
        };
        wait_for(&mut awaited, time.min(longest));
    }
}

/// Result of a stage.
enum Verdict {
    Stays(Guest),
    Accepted(Connection, Hello),
    Refused,
    WrongKey,
    /// This rank does not understand its version.
    OtherVersion(Connection, WireVersion),
    /// A program on this board is to answer it.
    ForProgram(Connection, Target),
}

impl Guest {
    fn stage_bytes(&self) -> usize {
        match self.stage {
            Stage::Hello => HELLO_BYTES,
            Stage::Handshake(_) => HANDSHAKE_BYTES,
            Stage::Confirmation(..) => CONFIRMATION_BYTES,
        }
    }

    /// Its progress towards a connection of the group.
    fn progress(&self) -> usize {
        match self.stage {
            Stage::Hello if self.bytes.is_empty() => 0,
            Stage::Hello => 1,
            Stage::Handshake(_) => 2,
            Stage::Confirmation(..) => 3,
        }
    }

    fn has_stage(&self) -> bool {
        self.bytes.len() == self.stage_bytes()
    }

    fn receive(&mut self) -> Moved {
        let mut bytes = [0; HELLO_BYTES];
        let rest = self.stage_bytes() - self.bytes.len();
        let moved = read(self.connection.stream(), &mut bytes[..rest]);
        if let Moved::Bytes(count) = moved {
            self.bytes.extend_from_slice(&bytes[..count]);
        }
        moved
    }

    fn advance(mut self, keys: &Keys, own: &Hello, answer: impl Fn(&Hello) -> Answer) -> Verdict {
        let bytes = std::mem::take(&mut self.bytes);
        match self.stage {
            Stage::Hello => {
                let message = bytes.as_slice().try_into().expect("its length was checked");
                if let Some(target) = Target::decode(message) {
                    return Verdict::ForProgram(self.connection, target);
                }
                if let Some(major) = other_major(message) {
                    return Verdict::OtherVersion(self.connection, WireVersion { major, minor: None });
                }
                let Some(hello) = Hello::decode(message) else { return Verdict::Refused };
                if let (Some(offer), Some(ours)) = (hello.offer(), own.offer()) {
                    if !ours.understands(offer) {
                        return Verdict::OtherVersion(self.connection, offer.version());
                    }
                    self.connection.set_peer(offer);
                }
                let verdict =
                    if hello.security == keys.code() { answer(&hello) } else { Answer::OtherSecurity };
                if verdict != Answer::Accepted {
                    refuse(self.connection, own, verdict);
                    return Verdict::Refused;
                }
                if hello.security != 0 {
                    self.stage = Stage::Handshake(hello);
                    return Verdict::Stays(self);
                }
                match self.connection.send_all(&own.answered(verdict).encode(), ANSWER_TIME) {
                    Ok(()) => Verdict::Accepted(self.connection, hello),
                    Err(_) => Verdict::Refused,
                }
            }
            Stage::Handshake(hello) => {
                let message = bytes.as_slice().try_into().expect("its length was checked");
                let handshake = Handshake::responder(keys, hello.from as usize, &hello.encode());
                let mut handshake = handshake.expect("only a lobby with keys has handshakes");
                if !handshake.read(message) {
                    refuse(self.connection, own, Answer::WrongKey);
                    return Verdict::WrongKey;
                }
                let answer = own.answered(Answer::Accepted).encode();
                let repeats = |hello: &Hello| hello.offer().is_some_and(Offer::repeats_answer);
                let payload = if repeats(own) && repeats(&hello) { &answer[..] } else { &[] };
                let reply = [&answer[..], &handshake.write_with(payload)].concat();
                self.stage = Stage::Confirmation(hello, Box::new(handshake.finish()));
                match self.connection.send_all(&reply, ANSWER_TIME) {
                    Ok(()) => Verdict::Stays(self),
                    Err(_) => Verdict::Refused,
                }
            }
            Stage::Confirmation(hello, mut seal) => {
                if !seal.confirms(bytes.as_slice().try_into().expect("its length was checked")) {
                    return Verdict::WrongKey;
                }
                if answer(&hello) != Answer::Accepted {
                    return Verdict::Refused;
                }
                self.connection.seal(*seal);
                Verdict::Accepted(self.connection, hello)
            }
        }
    }
}

/// The error again, if the process or the system has no free descriptors or no memory for a connection.
fn exhausted(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
        .filter(|error| matches!(*error, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// Answers a guest and shows it out.
fn refuse(mut connection: Connection, own: &Hello, answer: Answer) {
    // A connection that is closed with something unread in it is reset, and the guest might not get to read the answer.
    let _ = read(connection.stream(), &mut [0; UNREAD_MAX]);
    // A guest that does not take it learns nothing: it is refused all the same.
    let _ = connection.send_all(&own.answered(answer).encode(), ANSWER_TIME);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::Ipv4Addr;

    use super::*;
    use crate::clock::pause;

    #[test]
    fn those_who_had_time_make_room_before_those_who_have_just_come() {
        let mut lobby = Lobby::open(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Keys::Plaintext).unwrap();
        let Door::Own(listener) = &lobby.door else { panic!("it has its own port") };
        let address = listener.local_addr().unwrap();
        let come = || TcpStream::connect(address).unwrap();
        let mut strangers: Vec<_> = (0..GUESTS_MAX - 1).map(|_| come()).collect();
        strangers.iter_mut().for_each(|stranger| stranger.write_all(b"O").unwrap());
        while lobby.guests.len() < strangers.len() {
            lobby.let_in();
        }
        for guest in &mut lobby.guests {
            while guest.progress() == 0 {
                guest.receive();
            }
        }
        pause(SILENCE_TIME);
        let rank = come();
        while lobby.guests.len() < GUESTS_MAX {
            lobby.let_in();
        }
        assert!(!lobby.is_full(), "the others had time to say hello");
        let another = come();
        while lobby.guests.iter().filter(|guest| guest.progress() == 0).count() < 2 {
            lobby.let_in();
        }
        let own = rank.local_addr().unwrap();
        let is_here = |guest: &Guest| guest.connection.stream().peer_addr().unwrap() == own;
        assert!(lobby.guests.iter().any(is_here));
        assert_eq!(lobby.guests.len(), GUESTS_MAX);
        drop((strangers, another));
    }

    #[test]
    fn nobody_comes_in_before_the_guests_of_a_full_lobby_had_time() {
        let mut lobby = Lobby::open(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Keys::Plaintext).unwrap();
        let Door::Own(listener) = &lobby.door else { panic!("it has its own port") };
        let address = listener.local_addr().unwrap();
        let guests: Vec<_> = (0..=GUESTS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
        while lobby.guests.len() < GUESTS_MAX {
            lobby.let_in();
        }
        let now = Ticks::now();
        lobby.guests.iter_mut().for_each(|guest| guest.since = now);
        lobby.let_in();
        let is_early = Ticks::now().since(now) < SILENCE_TIME;
        let first = guests[0].local_addr().unwrap();
        let is_first = |guest: &Guest| guest.connection.stream().peer_addr().unwrap() == first;
        assert!(!is_early || lobby.guests.iter().any(is_first));
        pause(SILENCE_TIME);
        lobby.let_in();
        assert!(!lobby.guests.iter().any(is_first), "the oldest has made room");
        assert_eq!(lobby.guests.len(), GUESTS_MAX);
    }
}
