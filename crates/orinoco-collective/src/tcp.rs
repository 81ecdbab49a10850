//! Messages over TCP: for each pair of ranks a connection for the messages of operations, and one for notices.
//!
//! The caller's thread sends and receives messages by itself, without a thread in between: a short message is on its way before the
//! call waits. A thread of the group exchanges notices, so that a rank that computes gives signs of life.

mod hello;
mod join;
mod lobby;
mod pulse;
mod socket;

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use crate::message::{
    Engine, Health, LinkFault, Memory, MessageGroup, MessageSettings, StreamReceiver, StreamSender, Transport,
};
use crate::{JoinError, Topology};
use hello::EPOCH;
use pulse::Pulse;
use socket::{is_within_machine, read, wait_for, write};

pub use join::Rendezvous;

/// Operations among ranks that are connected by TCP, as one of them.
pub type TcpGroup = MessageGroup<Tcp>;

/// Most ranks of a group: each has two connections with every other.
const RANKS_MAX: usize = 64;

impl TcpGroup {
    /// Joins a group as one of its ranks. Returns when all have joined.
    ///
    /// Connections are neither encrypted nor authenticated: only addresses of this machine (loopback) are accepted.
    ///
    /// # Errors
    /// If an address is not of this machine, if this rank cannot listen at its own, or if not all join before the deadline.
    pub fn join(
        rendezvous: &Rendezvous,
        rank: usize,
        ranks: usize,
        settings: MessageSettings,
    ) -> Result<Self, JoinError> {
        if rank >= ranks || ranks > RANKS_MAX {
            return Err(JoinError::Ranks { rank, ranks, max: RANKS_MAX });
        }
        let links = join::join(rendezvous, rank, ranks, &settings)?;
        let (notices, messages) = links.into_iter().unzip();
        let tcp = Tcp::new(rank, messages, notices, settings.silence).map_err(JoinError::System)?;
        Ok(Self::new(tcp, Topology::flat(ranks), rank, EPOCH, settings))
    }
}

/// One rank's connections.
pub struct Tcp {
    /// By peer; none for this rank itself.
    links: Vec<Option<Link>>,
    pulse: Arc<Pulse>,
}

struct Link {
    stream: TcpStream,
    sender: StreamSender,
    receiver: StreamReceiver,
}

impl Tcp {
    fn new(
        rank: usize,
        messages: Vec<Option<TcpStream>>,
        notices: Vec<Option<TcpStream>>,
        silence: Duration,
    ) -> std::io::Result<Self> {
        let link = |(peer, stream): (usize, Option<TcpStream>)| {
            let (sender, receiver) = (StreamSender::new(peer), StreamReceiver::new(peer));
            stream.map(|stream| Link { stream, sender, receiver })
        };
        let links = messages.into_iter().enumerate().map(link).collect();
        Ok(Self { links, pulse: Pulse::start(rank, EPOCH, notices, silence)? })
    }
}

impl Transport for Tcp {
    fn carry(&mut self, engine: &mut Engine, memory: &mut Memory<'_>) -> Result<bool, LinkFault> {
        let mut has_moved = false;
        for link in self.links.iter_mut().flatten() {
            let stream = &link.stream;
            has_moved |= link.sender.send(engine, memory, |slices| write(stream, slices))?;
            has_moved |= link.receiver.receive(engine, memory, |into| read(stream, into))?;
        }
        Ok(has_moved)
    }

    fn wait(&mut self, engine: &Engine, time: Duration) {
        let mut awaited = vec![PollFd::new(self.pulse.failed(), PollFlags::IN)];
        for (peer, link) in self.links.iter().enumerate() {
            let Some(link) = link else { continue };
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, engine.awaits(peer) && !link.receiver.is_parked());
            flags.set(PollFlags::OUT, engine.has_message(peer));
            if !flags.is_empty() {
                awaited.push(PollFd::new(&link.stream, flags));
            }
        }
        wait_for(&mut awaited, time);
    }

    /// Bytes that stay within the machine are not damaged on their way.
    fn keeps_whole(&self, peer: usize) -> bool {
        self.links[peer].as_ref().is_some_and(|link| is_within_machine(&link.stream))
    }

    fn health<R>(&self, look: impl FnOnce(&mut Health) -> R) -> R {
        self.pulse.health(look)
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        self.pulse.leave();
    }
}
