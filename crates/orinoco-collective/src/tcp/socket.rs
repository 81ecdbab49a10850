//! Sockets that never block, and flags between threads.

use std::io::IoSlice;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

use crate::message::Moved;

pub(super) fn write(stream: &TcpStream, slices: &[IoSlice<'_>]) -> Moved {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match sendmsg(stream, slices, &mut SendAncillaryBuffer::default(), flags) {
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

/// Waits until one of these is ready. May return early.
pub(super) fn wait_for(awaited: &mut [PollFd<'_>], time: Duration) {
    let time = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    // Its callers look again, whatever it says.
    let _ = poll(awaited, Some(&time));
}

/// Something to wait for that another thread can set.
pub(super) fn flag() -> rustix::io::Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

pub(super) fn raise(flag: &OwnedFd) {
    // It fails only if it is raised already, more than 2^64 times.
    let _ = rustix::io::write(flag.as_fd(), &1u64.to_ne_bytes());
}

pub(super) fn lower(flag: &OwnedFd) {
    let mut count = [0; 8];
    // Nothing to read: it was not raised.
    let _ = rustix::io::read(flag.as_fd(), &mut count);
}
