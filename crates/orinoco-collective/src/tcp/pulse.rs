//! The thread that exchanges notices.

use std::io::IoSlice;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::connection::Connection;
use super::socket::{flag, lower, raise, wait_for};
use crate::clock::Ticks;
use crate::message::{Health, Moved, NOTICE_BYTES, Notice};

/// Most bytes of notices that wait for a peer that does not take them. Signs of life beyond it are left out.
const UNSENT_MAX: usize = 64 * NOTICE_BYTES;

/// Health of a group, kept up by a thread.
pub(super) struct Pulse {
    health: Mutex<Health>,
    epoch: u32,
    origin: Ticks,
    silence: Duration,
    /// Raised when there are notices to send, or when the group is left.
    wake: OwnedFd,
    /// Raised when a rank has failed, for the thread that waits in an operation.
    failed: OwnedFd,
    has_left: AtomicBool,
}

impl Pulse {
    pub(super) fn start(
        rank: usize,
        epoch: u32,
        connections: Vec<Option<Connection>>,
        silence: Duration,
    ) -> std::io::Result<Arc<Self>> {
        let pulse = Arc::new(Self {
            health: Mutex::new(Health::new(rank, connections.len(), silence, Duration::ZERO)),
            epoch,
            origin: Ticks::now(),
            silence,
            wake: flag()?,
            failed: flag()?,
            has_left: AtomicBool::new(false),
        });
        let links = connections.into_iter().map(|connection| connection.map(Link::new)).collect();
        let worker = Worker { pulse: Arc::clone(&pulse), links };
        thread::Builder::new().name("orinoco-pulse".to_owned()).spawn(move || worker.run())?;
        Ok(pulse)
    }

    /// Becomes readable when a rank has failed.
    pub(super) fn failed(&self) -> &OwnedFd {
        &self.failed
    }

    pub(super) fn health<R>(&self, look: impl FnOnce(&mut Health) -> R) -> R {
        let (result, has_notices) = {
            let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
            (look(&mut health), health.has_notices())
        };
        if has_notices {
            raise(&self.wake);
        }
        result
    }

    /// Says that this rank leaves. The thread ends by itself.
    pub(super) fn leave(&self) {
        self.has_left.store(true, Ordering::Release);
        self.health(Health::leave);
    }

    fn now(&self) -> Duration {
        Ticks::now().since(self.origin)
    }
}

/// A connection for notices.
struct Link {
    connection: Connection,
    /// Bytes of a notice that has come in part.
    pending: Vec<u8>,
    unsent: Vec<u8>,
    is_closed: bool,
}

impl Link {
    fn new(connection: Connection) -> Self {
        Self { connection, pending: Vec::new(), unsent: Vec::new(), is_closed: false }
    }

    /// Sends what the connection takes.
    fn flush(&mut self) {
        while !self.unsent.is_empty() && !self.is_closed {
            match self.connection.write(&[IoSlice::new(&self.unsent)]) {
                Moved::Bytes(bytes) => drop(self.unsent.drain(..bytes)),
                Moved::Later => return,
                // What it sent before is still read: its end shows there.
                Moved::Closed | Moved::Damaged => self.unsent.clear(),
            }
        }
    }
}

struct Worker {
    pulse: Arc<Pulse>,
    links: Vec<Option<Link>>,
}

impl Worker {
    fn run(mut self) {
        while !self.pulse.has_left.load(Ordering::Acquire) {
            self.receive();
            self.send();
            let due = self.pulse.health(|health| health.poll_timeout());
            self.wait(due.saturating_sub(self.pulse.now()));
        }
        self.send();
        self.linger();
    }

    fn wait(&self, time: Duration) {
        let mut awaited = vec![PollFd::new(&self.pulse.wake, PollFlags::IN)];
        for link in self.links.iter().flatten().filter(|link| !link.is_closed) {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, !link.unsent.is_empty());
            awaited.push(PollFd::new(&link.connection, flags));
        }
        wait_for(&mut awaited, time);
        lower(&self.pulse.wake);
    }

    fn receive(&mut self) {
        let now = self.pulse.now();
        for (peer, link) in self.links.iter_mut().enumerate() {
            let Some(link) = link else { continue };
            let mut bytes = [0; 64 * NOTICE_BYTES];
            while !link.is_closed {
                match link.connection.read(&mut bytes) {
                    Moved::Bytes(count) => link.pending.extend_from_slice(&bytes[..count]),
                    Moved::Later => break,
                    Moved::Closed => link.is_closed = true,
                    Moved::Damaged => {
                        link.is_closed = true;
                        self.pulse.health(|health| health.refused(peer));
                    }
                }
            }
            self.pulse.health(|health| {
                while let Some(notice) = link.pending.first_chunk::<NOTICE_BYTES>() {
                    match Notice::decode(notice, self.pulse.epoch) {
                        Some(notice) => health.received(peer, notice, now),
                        None => health.refused(peer),
                    }
                    link.pending.drain(..NOTICE_BYTES);
                }
                if link.is_closed {
                    health.closed(peer);
                }
            });
        }
    }

    fn send(&mut self) {
        let now = self.pulse.now();
        let (notices, has_failed) = self.pulse.health(|health| {
            health.handle_timeout(now);
            let notices: Vec<Notice> = std::iter::from_fn(|| health.next_notice()).collect();
            (notices, health.failure().is_some())
        });
        if has_failed {
            raise(&self.pulse.failed);
        }
        for link in self.links.iter_mut().flatten() {
            for notice in &notices {
                let may_be_left_out = matches!(notice, Notice::Alive { .. });
                if !may_be_left_out || link.unsent.len() < UNSENT_MAX {
                    link.unsent.extend_from_slice(&notice.encode(self.pulse.epoch));
                }
            }
            link.flush();
        }
    }

    /// Reads on for a while after this rank has left. A connection that is closed with something unread in it is reset, and the
    /// other rank might not get to read that this one leaves.
    fn linger(&mut self) {
        let start = Ticks::now();
        for link in self.links.iter().flatten() {
            // It fails if the other end is closed, which is as good.
            let _ = link.connection.stream().shutdown(Shutdown::Write);
        }
        loop {
            let mut bytes = [0; 64 * NOTICE_BYTES];
            for link in self.links.iter_mut().flatten() {
                while !link.is_closed {
                    match link.connection.read(&mut bytes) {
                        Moved::Bytes(_) => {}
                        Moved::Later => break,
                        Moved::Closed | Moved::Damaged => link.is_closed = true,
                    }
                }
            }
            let waited = Ticks::now().since(start);
            if waited >= self.pulse.silence || self.links.iter().flatten().all(|link| link.is_closed) {
                return;
            }
            self.wait(self.pulse.silence - waited);
        }
    }
}
