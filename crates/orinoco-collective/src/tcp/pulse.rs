//! The thread that exchanges notices.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use parking_lot::MutexGuard;
use rustix::event::{PollFd, PollFlags};

use super::connection::Connection;
use super::offer::{Capabilities, Capability};
use super::packet_link::{PacketLink, Pauses};
use super::socket::{flag, lower, raise, wait_for};
use crate::clock::Ticks;
use crate::message::{Health, MessageSettings, Moved, NOTICE_BYTES, Notice, SharedHealth};
use crate::priority;

/// Health of a group, kept up by a thread.
pub(crate) struct Pulse {
    health: SharedHealth,
    epoch: u32,
    origin: Ticks,
    silence: Duration,
    /// Capabilities of all ranks.
    common: Capabilities,
    /// Raised when there are notices to send, or when the group is left.
    wake: OwnedFd,
    /// Raised when a rank has failed, for the thread that waits in an operation.
    failed: OwnedFd,
    /// Raised whenever another rank is lost, for threads that go on with the others.
    watching: Mutex<Vec<Arc<OwnedFd>>>,
    has_left: AtomicBool,
    /// Raised when the others were told that this rank leaves.
    farewell: OwnedFd,
}

impl Pulse {
    pub(crate) fn start(
        rank: usize,
        epoch: u32,
        connections: Vec<Option<Connection>>,
        common: Capabilities,
        settings: &MessageSettings,
    ) -> std::io::Result<Arc<Self>> {
        let silence = settings.silence;
        let health = Health::new(rank, connections.len(), silence, Duration::ZERO);
        let pulse = Arc::new(Self {
            health: SharedHealth::new(
                health.with_uniform(settings.uniform).with_waits(common.has(Capability::Waits)),
            ),
            epoch,
            origin: Ticks::now(),
            silence,
            common,
            wake: flag()?,
            failed: flag()?,
            watching: Mutex::new(Vec::new()),
            has_left: AtomicBool::new(false),
            farewell: flag()?,
        });
        let links = connections.into_iter().map(|connection| connection.map(PacketLink::new)).collect();
        let worker = Worker { pulse: Arc::clone(&pulse), links, lost_ranks: 0 };
        thread::Builder::new().name("orinoco-pulse".to_owned()).spawn(move || {
            priority::raise();
            worker.run();
        })?;
        Ok(pulse)
    }

    /// Membership of which the notices are.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether all ranks choose algorithms by the machines on which ranks are.
    pub(crate) fn has_machines(&self) -> bool {
        self.common.has(Capability::Machines)
    }

    /// Becomes readable when a rank has failed.
    pub(crate) fn failed(&self) -> &OwnedFd {
        &self.failed
    }

    /// Raises a flag whenever another rank is lost, from now on.
    pub(crate) fn watch(&self, flag: Arc<OwnedFd>) {
        // It may have been lost before.
        raise(&flag);
        self.watching.lock().unwrap_or_else(PoisonError::into_inner).push(flag);
    }

    pub(crate) fn health<R>(&self, look: impl FnOnce(&mut Health) -> R) -> R {
        let (result, has_notices) = {
            let mut health = self.health.lock();
            (look(&mut health), health.has_notices())
        };
        if has_notices {
            raise(&self.wake);
        }
        result
    }

    /// Says that this rank leaves. The thread ends by itself.
    ///
    /// Returns when that was sent: the process may end next, and the thread with it. The others would take this rank for one that has
    /// failed, and in a uniform group they could not know what it has returned.
    pub(crate) fn leave(&self) {
        self.health(|health| {
            health.leave();
            // After the notice: the thread sends once more when it sees this, and then closes the connections.
            self.has_left.store(true, Ordering::Release);
        });
        // The thread sends within microseconds. If it gets no core for so long, the others take this rank for dead anyway.
        wait_for(&mut [PollFd::new(&self.farewell, PollFlags::IN)], self.silence);
    }

    fn now(&self) -> Duration {
        Ticks::now().since(self.origin)
    }
}

struct Worker {
    pulse: Arc<Pulse>,
    links: Vec<Option<PacketLink>>,
    lost_ranks: usize,
}

impl Worker {
    fn run(mut self) {
        let mut pauses = Pauses::default();
        while !self.pulse.has_left.load(Ordering::Acquire) {
            let has_more = self.receive();
            self.send();
            pauses.after_round(has_more);
            let due = self.health(|health| health.poll_timeout());
            let rest = due.saturating_sub(self.pulse.now());
            self.wait(if has_more { Duration::ZERO } else { rest });
        }
        self.send();
        raise(&self.pulse.farewell);
        self.linger();
    }

    /// Looks at the group's health. The others get signs of life while another thread has it.
    fn health<R>(&mut self, look: impl FnOnce(&mut Health) -> R) -> R {
        let pulse = Arc::clone(&self.pulse);
        look(&mut self.lock(&pulse))
    }

    fn lock<'p>(&mut self, pulse: &'p Pulse) -> MutexGuard<'p, Health> {
        pulse.health.lock_alive(|| self.send_all(&[Notice::SIGN_OF_LIFE]))
    }

    fn wait(&self, time: Duration) {
        let mut awaited = vec![PollFd::new(&self.pulse.wake, PollFlags::IN)];
        awaited.extend(self.links.iter().flatten().filter_map(PacketLink::poll_fd));
        wait_for(&mut awaited, time);
        lower(&self.pulse.wake);
    }

    /// Reads some notices of each peer. Returns whether there may be more.
    fn receive(&mut self) -> bool {
        let now = self.pulse.now();
        let mut has_more = false;
        let moved: Vec<Option<Moved>> =
            self.links.iter_mut().map(|link| link.as_mut().map(PacketLink::read)).collect();
        let pulse = Arc::clone(&self.pulse);
        let mut health = self.lock(&pulse);
        for (peer, (link, moved)) in self.links.iter_mut().zip(moved).enumerate() {
            let (Some(link), Some(moved)) = (link, moved) else { continue };
            has_more |= matches!(moved, Moved::Bytes(_));
            if moved == Moved::Damaged {
                health.refused(peer);
            }
            for notice in link.packets::<NOTICE_BYTES>() {
                match Notice::decode(&notice, pulse.epoch) {
                    Some(notice) => health.received(peer, notice, now),
                    None => health.refused(peer),
                }
            }
            if link.is_closed() {
                health.closed(peer);
            }
        }
        has_more
    }

    fn send(&mut self) {
        let now = self.pulse.now();
        let (notices, has_failed, lost_ranks) = self.health(|health| {
            health.handle_timeout(now);
            let notices: Vec<Notice> = std::iter::from_fn(|| health.next_notice()).collect();
            (notices, health.failure().is_some(), health.lost_ranks())
        });
        if has_failed {
            raise(&self.pulse.failed);
        }
        if lost_ranks != self.lost_ranks {
            self.lost_ranks = lost_ranks;
            let watching = self.pulse.watching.lock().unwrap_or_else(PoisonError::into_inner);
            watching.iter().for_each(|flag| raise(flag));
        }
        self.send_all(&notices);
    }

    fn send_all(&mut self, notices: &[Notice]) {
        for link in self.links.iter_mut().flatten() {
            for notice in notices {
                link.push(&notice.encode(self.pulse.epoch), notice.is_repeated());
            }
            link.flush();
        }
    }

    /// Reads on for a while after this rank has left. A connection that is closed with something unread in it is reset, and the
    /// other rank might not get to read that this one leaves.
    fn linger(&mut self) {
        let start = Ticks::now();
        let mut pauses = Pauses::default();
        self.links.iter().flatten().for_each(PacketLink::shut_down);
        loop {
            let mut has_more = false;
            for link in self.links.iter_mut().flatten() {
                has_more |= matches!(link.read(), Moved::Bytes(_));
                link.clear();
            }
            let waited = Ticks::now().since(start);
            if waited >= self.pulse.silence || self.links.iter().flatten().all(PacketLink::is_closed) {
                return;
            }
            pauses.after_round(has_more);
            self.wait(if has_more { Duration::ZERO } else { self.pulse.silence - waited });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hello::EPOCH;
    use super::super::offer::Offer;
    use super::*;
    use crate::FailureCause;
    use crate::clock::pause;

    /// Both ranks of a group, connected for notices.
    fn pulses(silence: Duration) -> [Arc<Pulse>; 2] {
        let [near, far] = Connection::pair();
        [(0, near), (1, far)].map(|(rank, connection)| {
            let mut connections = vec![None, None];
            connections[1 - rank] = Some(connection);
            let settings = MessageSettings { silence, ..MessageSettings::default() };
            let pulse = Pulse::start(rank, EPOCH, connections, Offer::OURS.capabilities, &settings);
            pulse.expect("a thread")
        })
    }

    #[test]
    fn a_rank_whose_caller_keeps_the_health_is_not_silent() {
        let silence = Duration::from_secs(2);
        let [own, other] = pulses(silence);
        let health = own.health.lock();
        pause(silence + silence / 2);
        assert!(other.health(|health| health.failure().is_none()));
        drop(health);
        own.leave();
    }

    #[test]
    fn a_rank_that_leaves_says_so_before_its_connections_end() {
        for _ in 0..50 {
            let [own, other] = pulses(Duration::from_millis(500));
            thread::scope(|scope| {
                // Until it is given back, neither the thread of notices nor the one that leaves goes on. Either may be the next.
                let health = own.health.lock();
                raise(&own.wake);
                scope.spawn(|| own.leave());
                pause(Duration::from_millis(2));
                drop(health);
            });
            let looks = (0..10_000).map(|_| {
                pause(Duration::from_millis(1));
                other.health(|health| health.gone(0))
            });
            assert_eq!(looks.flatten().next(), Some(FailureCause::Left));
        }
    }
}
