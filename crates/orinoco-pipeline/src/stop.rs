use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The wish to end, shared by everything that waits.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Asks everybody to end. May be called more than once.
    pub fn request(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Whether the end was asked for.
    pub fn requested(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps for `wait`, or until the end is asked for; returns whether it was.
    pub fn sleep(&self, wait: Duration) -> bool {
        let guard = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (stopped, _) = self
            .0
            .1
            .wait_timeout_while(guard, wait, |stopped| !*stopped)
            .unwrap_or_else(PoisonError::into_inner);
        *stopped
    }
}
