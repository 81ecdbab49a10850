//! Notifications of transfers with this rank's regions.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use super::error::RefusalReason;
use crate::clock::{Ticks, pause};

/// Most notifications that wait for their rank: some hundred transfers from each of several peers. A transfer that would add another
/// is refused, so that its caller knows that the rank does not take them.
pub(super) const NOTIFICATIONS_MAX: usize = 1024;

/// Notification of the rank that owns a region: another rank has put all bytes of a transfer, or has read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// The other rank.
    pub from: usize,
    /// Name of the region.
    pub region: String,
    /// First byte of the transfer in the region.
    pub offset: u64,
    /// Bytes of the transfer.
    pub bytes: u64,
    /// Value that the other rank chose.
    pub value: u64,
}

/// Notifications that wait for their rank.
#[derive(Default)]
pub(super) struct Notifications {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Notification>,
    reserved: usize,
    /// Threads that wait for a notification.
    waiting: Vec<Thread>,
}

impl Notifications {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the place of a notification.
    pub(super) fn reserve(&self) -> Result<Reservation<'_>, RefusalReason> {
        let mut state = self.state();
        if state.queue.len() + state.reserved >= NOTIFICATIONS_MAX {
            return Err(RefusalReason::NotificationsFull);
        }
        state.reserved += 1;
        Ok(Reservation { notifications: self })
    }

    /// Takes the oldest notification. Waits for one no longer than `time`.
    pub(super) fn next(&self, time: Duration) -> Option<Notification> {
        let start = Ticks::now();
        loop {
            let mut state = self.state();
            if let Some(notification) = state.queue.pop_front() {
                // Others may have been woken for notifications that are still there.
                state.wake();
                return Some(notification);
            }
            let waited = Ticks::now().since(start);
            // It is in the list still if something else woke it.
            state.waiting.retain(|thread| thread.id() != thread::current().id());
            if waited >= time {
                return None;
            }
            state.waiting.push(thread::current());
            drop(state);
            pause(time - waited);
        }
    }
}

impl State {
    fn wake(&mut self) {
        self.waiting.drain(..).for_each(|thread| thread.unpark());
    }
}

/// Place of a notification. It is given back if it is not used.
pub(super) struct Reservation<'a> {
    notifications: &'a Notifications,
}

impl Reservation<'_> {
    pub(super) fn fill(self, notification: Notification) {
        let mut state = self.notifications.state();
        state.queue.push_back(notification);
        state.wake();
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.notifications.state().reserved -= 1;
    }
}
