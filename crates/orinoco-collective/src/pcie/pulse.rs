//! The thread that exchanges notices: it writes them into others' inboxes, and looks into its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::layout::RANKS_MAX;
use super::mapping::Mapping;
use super::window_ring::Ends;
use crate::clock::{Ticks, pause};
use crate::message::{Health, MessageSettings, Moved, NOTICE_BYTES, Notice, SharedHealth, VOTING_RANKS_MAX};

/// Longest time between two looks for notices.
const LOOK_MAX: Duration = Duration::from_millis(5);
/// Looks in the time after which a rank counts as dead.
const LOOKS: u32 = 100;
/// Most notices of a peer that are read before those of others are, and before this rank's own are sent.
const NOTICES_AT_ONCE: usize = 64;
/// Most notices that wait for a peer that does not take them. Signs of life and waits beyond it are left out.
const UNSENT_MAX: usize = 64;

const _: () = assert!(RANKS_MAX <= u32::BITS as usize, "a bit for each rank");
const _: () = assert!(RANKS_MAX <= VOTING_RANKS_MAX, "a bit of a vote for each rank");

/// Health of a group, kept up by a thread until it is dropped.
pub(super) struct Pulse {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    health: SharedHealth,
    /// A bit for each rank that has left.
    gone: AtomicU32,
    has_failed: AtomicBool,
    is_over: AtomicBool,
}

impl Shared {
    fn look<R>(&self, look: impl FnOnce(&mut Health) -> R) -> R {
        look(&mut self.health.lock())
    }

    fn is_gone(&self, rank: usize) -> bool {
        self.gone.load(Ordering::Acquire) >> rank & 1 != 0
    }
}

impl Pulse {
    pub(super) fn start(
        rank: usize,
        epoch: u32,
        window: Arc<Mapping>,
        ends: Vec<Option<Ends>>,
        settings: &MessageSettings,
    ) -> std::io::Result<Self> {
        // A notice is seen one look late at most, and the look at who is silent may come late, too. Both count.
        let look_every = (settings.silence / LOOKS).min(LOOK_MAX);
        let silence = settings.silence - 2 * look_every;
        let health = Health::new(rank, ends.len(), silence, Duration::ZERO);
        let shared = Arc::new(Shared {
            health: SharedHealth::new(health.with_uniform(settings.uniform)),
            gone: AtomicU32::new(0),
            has_failed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let links = ends.into_iter().map(|ends| ends.map(Link::new)).collect();
        let worker =
            Worker { shared: Arc::clone(&shared), window, epoch, origin: Ticks::now(), look_every, links };
        let thread = thread::Builder::new().name("orinoco-pulse".to_owned()).spawn(move || worker.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Looks at the group's health, or changes it. News are sent at once.
    pub(super) fn health<R>(&self, look: impl FnOnce(&mut Health) -> R) -> R {
        let (result, has_notices) = self.shared.look(|health| (look(health), health.has_notices()));
        if has_notices && let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
        result
    }

    /// Whether a rank has left. What it has sent before is in its rings.
    pub(super) fn is_gone(&self, rank: usize) -> bool {
        self.shared.is_gone(rank)
    }

    /// Whether a rank has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Ordering::Acquire)
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.shared.look(Health::leave);
        self.shared.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It waits for nobody, and cannot panic.
            let _ = thread.join();
        }
    }
}

struct Link {
    ends: Ends,
    unsent: VecDeque<[u8; NOTICE_BYTES]>,
    is_damaged: bool,
}

impl Link {
    fn new(ends: Ends) -> Self {
        Self { ends, unsent: VecDeque::new(), is_damaged: false }
    }

    /// The next notice that has come. `None` in it if the peer has written something else.
    fn next(&mut self, window: &Mapping, epoch: u32) -> Option<Option<Notice>> {
        let mut bytes = [0; NOTICE_BYTES];
        let notice = match self.ends.incoming.read(window, &mut bytes) {
            _ if self.is_damaged => return None,
            Moved::Later => return None,
            // Notices are written whole, and the ring holds a whole number of them.
            Moved::Bytes(NOTICE_BYTES) => Notice::decode(&bytes, epoch),
            Moved::Bytes(_) | Moved::Closed | Moved::Damaged => None,
        };
        self.is_damaged = notice.is_none();
        Some(notice)
    }

    /// Sends what the peer has room for.
    fn flush(&mut self, window: &Mapping) {
        while let Some(notice) = self.unsent.front() {
            if !self.ends.outgoing.write_whole(window, notice) {
                return;
            }
            self.unsent.pop_front();
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    window: Arc<Mapping>,
    epoch: u32,
    origin: Ticks,
    look_every: Duration,
    links: Vec<Option<Link>>,
}

impl Worker {
    fn run(mut self) {
        crate::priority::raise();
        loop {
            // Asked first: the notice that this rank leaves is sent before the thread ends.
            let is_over = self.shared.is_over.load(Ordering::Acquire);
            let now = Ticks::now().since(self.origin);
            self.receive(now);
            self.send(now);
            if is_over {
                return;
            }
            let due = self.look(|health| health.poll_timeout());
            pause(self.look_every.min(due.saturating_sub(now)));
        }
    }

    /// Looks at the group's health. The others get signs of life while another thread has it.
    fn look<R>(&mut self, look: impl FnOnce(&mut Health) -> R) -> R {
        let shared = Arc::clone(&self.shared);
        let mut health = shared.health.lock_alive(|| self.send_all(&[Notice::SIGN_OF_LIFE]));
        look(&mut health)
    }

    fn receive(&mut self, now: Duration) {
        for peer in 0..self.links.len() {
            if self.shared.is_gone(peer) {
                // What comes there now may be of its next group.
                continue;
            }
            for _ in 0..NOTICES_AT_ONCE {
                let next = |link: &mut Link| link.next(&self.window, self.epoch);
                let Some(notice) = self.links[peer].as_mut().and_then(next) else { break };
                let is_gone = self.look(|health| {
                    match notice {
                        Some(notice) => health.received(peer, notice, now),
                        None => health.refused(peer),
                    }
                    health.gone(peer).is_some()
                });
                if is_gone {
                    self.shared.gone.fetch_or(1 << peer, Ordering::Release);
                    break;
                }
            }
        }
    }

    fn send(&mut self, now: Duration) {
        let (notices, has_failed) = self.look(|health| {
            health.handle_timeout(now);
            let notices: Vec<Notice> = std::iter::from_fn(|| health.next_notice()).collect();
            (notices, health.failure().is_some())
        });
        self.send_all(&notices);
        if has_failed {
            self.shared.has_failed.store(true, Ordering::Release);
        }
    }

    fn send_all(&mut self, notices: &[Notice]) {
        for link in self.links.iter_mut().flatten() {
            for notice in notices {
                if !notice.is_repeated() || link.unsent.len() < UNSENT_MAX {
                    link.unsent.push_back(notice.encode(self.epoch));
                }
            }
            link.flush(&self.window);
        }
    }
}
