//! Connections with other ranks, encrypted or not.

use std::io::{self, ErrorKind, IoSlice};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::offer::Offer;
use super::socket::{is_within_machine, read, wait_for, write};
use crate::clock::Ticks;
use crate::message::Moved;
use crate::security::Seal;

/// Longest sleep until the time that is left is asked again.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// A connection with another rank. Its socket never blocks.
pub(crate) struct Connection {
    stream: TcpStream,
    seal: Option<Box<Seal>>,
    peer: Offer,
}

impl Connection {
    /// Creates a connection that is not encrypted.
    pub(crate) fn plain(stream: TcpStream) -> Self {
        Self { stream, seal: None, peer: Offer::MINOR_0 }
    }

    /// Both ends of a connection within this machine.
    #[cfg(test)]
    pub(crate) fn pair() -> [Self; 2] {
        let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [near, listener.accept().unwrap().0].map(|stream| {
            stream.set_nonblocking(true).unwrap();
            Self::plain(stream)
        })
    }

    /// Notes the minor version and the capabilities of the other rank.
    pub(super) fn set_peer(&mut self, offer: Offer) {
        self.peer = offer;
    }

    /// Minor version and capabilities of the other rank, if this is the connection for notices with it.
    pub(super) fn peer(&self) -> Offer {
        self.peer
    }

    /// Encrypts everything from now on.
    pub(super) fn seal(&mut self, seal: Seal) {
        self.seal = Some(Box::new(seal));
    }

    /// Whether more may be read from the socket than is asked for, if the connection is encrypted. Without it, the encryption can end.
    pub(crate) fn read_ahead(&mut self, is_allowed: bool) {
        if let Some(seal) = &mut self.seal {
            seal.read_ahead(is_allowed);
        }
    }

    /// Ends the encryption, if there is one. Both ends must do so after the same byte, and must not have read ahead.
    pub(super) fn unseal(&mut self) {
        self.seal = None;
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether bytes arrive as they were sent, or not at all.
    pub(crate) fn keeps_whole(&self) -> bool {
        self.seal.is_some() || is_within_machine(&self.stream)
    }

    /// Sends the beginning of some slices. Until they have moved, the same bytes must be offered again.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> Moved {
        match &mut self.seal {
            None => write(&self.stream, slices),
            Some(seal) => seal.write(slices, |slices| write(&self.stream, slices)),
        }
    }

    pub(crate) fn read(&mut self, into: &mut [u8]) -> Moved {
        match &mut self.seal {
            None => read(&self.stream, into),
            Some(seal) => seal.read(into, |into| read(&self.stream, into)),
        }
    }

    /// Sends all bytes, for no longer than `time`.
    pub(crate) fn send_all(&mut self, mut bytes: &[u8], time: Duration) -> io::Result<()> {
        let start = Ticks::now();
        while !bytes.is_empty() {
            match self.write(&[IoSlice::new(bytes)]) {
                Moved::Bytes(sent) => bytes = &bytes[sent..],
                other => {
                    let rest = time.saturating_sub(Ticks::now().since(start));
                    self.wait(other, PollFlags::OUT, rest, rest)?;
                }
            }
        }
        Ok(())
    }

    /// Fills a slice, within `time`.
    pub(crate) fn receive_all(&mut self, into: &mut [u8], time: Duration) -> io::Result<()> {
        let start = Ticks::now();
        self.receive_while(into, || time.saturating_sub(Ticks::now().since(start)))
    }

    /// Fills a slice, in the time that is left. That is asked again and again.
    pub(super) fn receive_while(&mut self, into: &mut [u8], rest: impl Fn() -> Duration) -> io::Result<()> {
        let mut filled = 0;
        while filled < into.len() {
            match self.read(&mut into[filled..]) {
                Moved::Bytes(bytes) => filled += bytes,
                other => self.wait(other, PollFlags::IN, rest(), ASK_EVERY)?,
            }
        }
        Ok(())
    }

    /// Waits until the connection is ready, no longer than `time`. Fails if nothing is left of the time.
    fn wait(&self, moved: Moved, flags: PollFlags, rest: Duration, time: Duration) -> io::Result<()> {
        match moved {
            Moved::Closed => Err(ErrorKind::UnexpectedEof.into()),
            Moved::Damaged => Err(ErrorKind::InvalidData.into()),
            _ if rest.is_zero() => Err(ErrorKind::TimedOut.into()),
            _ => {
                wait_for(&mut [PollFd::new(&self.stream, flags)], rest.min(time));
                Ok(())
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
