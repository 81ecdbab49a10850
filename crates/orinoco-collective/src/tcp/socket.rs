//! Sockets that never block, and flags between threads.

use std::io::IoSlice;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_congestion;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};

use crate::message::Moved;

/// Sets up a connection: it never blocks, and sends without delay.
pub(super) fn set_up(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    if is_within_machine(stream) {
        // Nothing is congested there. BBR, the default of some systems, paces what it sends by timers, and takes up to twice the
        // time. Reno is in every kernel; where it is refused, the default stays.
        let _ = set_tcp_congestion(stream, "reno");
    }
    Ok(())
}

/// Whether both ends are on this machine.
pub(super) fn is_within_machine(stream: &TcpStream) -> bool {
    stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback())
}

pub(super) fn write(stream: &TcpStream, slices: &[IoSlice<'_>]) -> Moved {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = match slices {
        [slice] => send(stream, slice, flags),
        _ => sendmsg(stream, slices, &mut SendAncillaryBuffer::default(), flags),
    };
    match sent {
        Ok(0) | Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => Moved::Later,
        Ok(bytes) => Moved::Bytes(bytes),
        Err(_) => Moved::Closed,
    }
}

pub(super) fn read(stream: &TcpStream, into: &mut [u8]) -> Moved {
    match recv(stream, into, RecvFlags::DONTWAIT) {
        Ok((0, _)) => Moved::Closed,
        Ok((bytes, _)) => Moved::Bytes(bytes),
        Err(Errno::AGAIN | Errno::INTR) => Moved::Later,
        Err(_) => Moved::Closed,
    }
}

/// Result of a look for something to read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Peeked {
    Nothing,
    Bytes,
    /// The other end has closed the connection.
    Closed,
}

/// Looks for something to read, and leaves it there.
pub(super) fn peek(stream: &TcpStream) -> Peeked {
    match recv(stream, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((0, _)) => Peeked::Closed,
        Ok(_) => Peeked::Bytes,
        Err(Errno::AGAIN | Errno::INTR) => Peeked::Nothing,
        Err(_) => Peeked::Closed,
    }
}

/// Waits until one of these is ready. May return early.
pub(crate) fn wait_for(awaited: &mut [PollFd<'_>], time: Duration) {
    let time = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    // Its callers look again, whatever it says.
    let _ = poll(awaited, Some(&time));
}

/// Something to wait for that another thread can set.
pub(crate) fn flag() -> rustix::io::Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

pub(crate) fn raise(flag: &OwnedFd) {
    // It fails only if it is raised already, more than 2^64 times.
    let _ = rustix::io::write(flag.as_fd(), &1u64.to_ne_bytes());
}

pub(crate) fn lower(flag: &OwnedFd) {
    let mut count = [0; 8];
    // Nothing to read: it was not raised.
    let _ = rustix::io::read(flag.as_fd(), &mut count);
}
