//! Connections that others open. Whoever sends anything but a hello, or nothing for too long, is shown out.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::hello::{HELLO_BYTES, Hello};
use super::socket::{read, wait_for};
use crate::clock::Ticks;
use crate::message::Moved;

/// Most connections that have not said hello. More wait outside.
const GUESTS_MAX: usize = 128;
/// Time for a hello.
const HELLO_TIME: Duration = Duration::from_secs(2);

pub(super) struct Lobby {
    listener: TcpListener,
    guests: Vec<Guest>,
}

/// A connection that has not said hello.
struct Guest {
    stream: TcpStream,
    bytes: Vec<u8>,
    since: Ticks,
}

impl Lobby {
    pub(super) fn open(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, guests: Vec::new() })
    }

    pub(super) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next connection with a hello, if one comes within `time`.
    pub(super) fn next(&mut self, time: Duration) -> Option<(TcpStream, Hello)> {
        let start = Ticks::now();
        loop {
            self.let_in();
            if let Some(found) = self.listen() {
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
        while self.guests.len() < GUESTS_MAX {
            // Whatever went wrong with one connection, others may come.
            let Ok((stream, _)) = self.listener.accept() else { return };
            if stream.set_nonblocking(true).is_ok() {
                self.guests.push(Guest { stream, bytes: Vec::new(), since: Ticks::now() });
            }
        }
    }

    /// Reads from all guests. Returns the first that has said hello.
    fn listen(&mut self) -> Option<(TcpStream, Hello)> {
        let now = Ticks::now();
        let mut at = 0;
        while at < self.guests.len() {
            let guest = &mut self.guests[at];
            let mut bytes = [0; HELLO_BYTES];
            let room = HELLO_BYTES - guest.bytes.len();
            match read(&guest.stream, &mut bytes[..room]) {
                Moved::Bytes(count) => guest.bytes.extend_from_slice(&bytes[..count]),
                Moved::Later if now.since(guest.since) < HELLO_TIME => at += 1,
                Moved::Later | Moved::Closed => drop(self.guests.swap_remove(at)),
            }
            let Some(guest) = self.guests.get(at).filter(|guest| guest.bytes.len() == HELLO_BYTES) else {
                continue;
            };
            let hello = Hello::decode(guest.bytes.as_slice().try_into().expect("its length was checked"));
            let guest = self.guests.swap_remove(at);
            if let Some(hello) = hello {
                return Some((guest.stream, hello));
            }
        }
        None
    }

    fn wait(&self, time: Duration) {
        let mut awaited: Vec<PollFd<'_>> =
            self.guests.iter().map(|guest| PollFd::new(&guest.stream, PollFlags::IN)).collect();
        if self.guests.len() < GUESTS_MAX {
            awaited.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        let time = if self.guests.is_empty() { time } else { time.min(HELLO_TIME) };
        wait_for(&mut awaited, time);
    }
}
