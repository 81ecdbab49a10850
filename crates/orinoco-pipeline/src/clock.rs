//! The one file that reads and waits for real time.

#![expect(clippy::disallowed_methods, reason = "this is the clock")]

use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use orinoco_core::{Clock, Nanos, Signal, WallTime};

use crate::sync::{Condvar, Instant, Mutex};

/// The operating system's monotonic clock, counted from its creation.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock(Instant);

impl Default for MonotonicClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wall(&self) -> WallTime {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime::from_unix_nanos(u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX))
    }

    fn signal(&self) -> Arc<dyn Signal> {
        Arc::new(MonotonicSignal { clock: *self, waiter: Mutex::new(Waiter::Busy), changed: Condvar::new() })
    }
}

/// A condition variable that remembers its notification. Who notifies a thread that is busy makes no system call, as the
/// condition variable alone would.
struct MonotonicSignal {
    clock: MonotonicClock,
    waiter: Mutex<Waiter>,
    changed: Condvar,
}

/// The thread that a signal wakes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiter {
    Busy,
    Waiting,
    Notified,
}

impl Signal for MonotonicSignal {
    fn notify(&self) {
        let mut waiter = self.waiter.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *waiter, Waiter::Notified);
        drop(waiter);
        if before == Waiter::Waiting {
            self.changed.notify_one();
        }
    }

    fn wait(&self, until: Option<Nanos>) {
        let mut waiter = self.waiter.lock().unwrap_or_else(PoisonError::into_inner);
        while *waiter != Waiter::Notified {
            let left = until.map(|until| until.since(self.clock.now()));
            if left == Some(Duration::ZERO) {
                break;
            }
            *waiter = Waiter::Waiting;
            waiter = match left {
                Some(left) => {
                    self.changed.wait_timeout(waiter, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(waiter).unwrap_or_else(PoisonError::into_inner),
            };
        }
        *waiter = Waiter::Busy;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_before_the_wait_is_not_lost_and_counts_once() {
        let clock = MonotonicClock::default();
        let signal = clock.signal();
        signal.notify();
        signal.notify();
        signal.wait(None);
        let until = clock.now() + Duration::from_millis(20);
        signal.wait(Some(until));
        assert!(clock.now() >= until, "nobody notified it again");
    }

    #[test]
    fn a_notification_ends_a_wait() {
        let signal = MonotonicClock::default().signal();
        std::thread::scope(|scope| {
            scope.spawn(|| signal.wait(None));
            signal.notify();
        });
    }

    #[test]
    fn a_time_that_has_passed_is_not_waited_for() {
        let clock = MonotonicClock::default();
        clock.signal().wait(Some(clock.now()));
    }
}
