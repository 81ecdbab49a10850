//! A program's part of sharing its daemon's port: it registers with the daemon, and receives accepted TCP sockets from it (`SCM_RIGHTS`).
//! `port_sharing.rs` has the protocol between both.

use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, connect, recv, recvmsg, send, socket_with,
};

use super::port_sharing::{FULL, REGISTERED, TAKEN};
use super::socket::wait_for;
use super::target::Target;
use crate::JoinError;
use crate::clock::{Ticks, pause};

/// Time between two attempts to register with a daemon that has no room.
const RETRY: Duration = Duration::from_millis(20);
/// Longest wait for a daemon that has started again. Others that join wait meanwhile.
const AGAIN_TIME: Duration = Duration::from_millis(100);

/// The port of this board's daemon, as a program shares it.
pub(super) struct ProgramPort {
    socket: PathBuf,
    target: Target,
    /// `None` after the daemon has ended, until there is another.
    daemon: Option<UnixStream>,
}

impl ProgramPort {
    /// Registers with the daemon that has this Unix socket, for the connections of a target, within `time`.
    ///
    /// # Errors
    /// If there is no daemon, if it does not answer, or if another program has registered for the same.
    pub(super) fn open(socket: &Path, target: Target, time: Duration) -> Result<Self, JoinError> {
        let mut port = Self { socket: socket.to_owned(), target, daemon: None };
        port.register(time).map_err(|why| port.fault(why))?;
        Ok(port)
    }

    /// The next connection.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if there is none now, and others if this process has no free descriptors, or if the daemon has ended and
    /// there is no other yet.
    pub(super) fn accept(&mut self) -> io::Result<TcpStream> {
        let Some(daemon) = &self.daemon else {
            self.register(AGAIN_TIME)?;
            return Err(ErrorKind::WouldBlock.into());
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut content = [0];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(daemon, &mut [IoSliceMut::new(&mut content)], &mut rights, flags)?;
        if received.bytes == 0 {
            self.daemon = None;
            return Err(ErrorKind::NotConnected.into());
        }
        let mut descriptors = rights.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        match descriptors.next().and_then(|mut descriptors| descriptors.next()) {
            Some(descriptor) => Ok(TcpStream::from(descriptor)),
            // The connection is lost: whoever has opened it tries again.
            None if received.flags.contains(ReturnFlags::CTRUNC) => Err(Errno::MFILE.into()),
            None => Err(ErrorKind::InvalidData.into()),
        }
    }

    /// Whether a daemon is there.
    pub(super) fn is_open(&self) -> bool {
        self.daemon.is_some()
    }

    /// Error of a rank that cannot register.
    pub(super) fn fault(&self, why: io::Error) -> JoinError {
        match why.kind() {
            ErrorKind::AddrInUse => JoinError::GroupTaken { name: self.target.group().to_owned() },
            _ => JoinError::Daemon { socket: self.socket.clone(), source: why },
        }
    }

    /// Registers with the daemon, within `time`.
    ///
    /// # Errors
    /// [`ErrorKind::AddrInUse`] if another program has registered for the same, [`ErrorKind::TimedOut`] if the daemon does not answer or
    /// has no room, and others if there is no daemon.
    fn register(&mut self, time: Duration) -> io::Result<()> {
        let start = Ticks::now();
        loop {
            let rest = time.saturating_sub(Ticks::now().since(start));
            match self.ask(rest) {
                Ok((daemon, REGISTERED)) => {
                    self.daemon = Some(daemon);
                    return Ok(());
                }
                Ok((_, TAKEN)) => return Err(ErrorKind::AddrInUse.into()),
                // It has no room now.
                Ok((_, FULL)) | Err(Errno::AGAIN) => {}
                Ok(_) => return Err(ErrorKind::InvalidData.into()),
                Err(why) => return Err(why.into()),
            }
            if rest.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            pause(RETRY.min(rest));
        }
    }

    /// Connects to the daemon, and asks for the connections of the target. Returns its reply.
    fn ask(&self, time: Duration) -> Result<(UnixStream, u8), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let daemon = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&daemon, &SocketAddrUnix::new(&self.socket)?)?;
        // There is room for the first bytes on a connection. A daemon without room for a program closes it at once; its reply is there.
        match send(&daemon, &self.target.encode(), SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::PIPE) => {}
            Err(why) => return Err(why),
        }
        wait_for(&mut [PollFd::new(&daemon, PollFlags::IN)], time);
        let mut reply = [0];
        match recv(&daemon, &mut reply, RecvFlags::DONTWAIT)? {
            (0, _) => Err(Errno::CONNRESET),
            _ => Ok((UnixStream::from(daemon), reply[0])),
        }
    }
}

impl Drop for ProgramPort {
    fn drop(&mut self) {
        // A process that was forked meanwhile may have a copy of the socket, which would keep the registration.
        if let Some(daemon) = &self.daemon {
            let _ = daemon.shutdown(Shutdown::Both);
        }
    }
}

impl AsFd for ProgramPort {
    /// # Panics
    /// If it is not [open](ProgramPort::is_open).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.daemon.as_ref().expect("a daemon").as_fd()
    }
}
