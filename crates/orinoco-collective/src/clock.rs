//! The one file of the crate that reads and waits for real time.

#![expect(clippy::disallowed_methods, reason = "this is the clock")]

use std::thread;
use std::time::{Duration, Instant};

/// A moment of the system's monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks(Instant);

impl Ticks {
    pub(crate) fn now() -> Self {
        Self(Instant::now())
    }

    /// Time from an earlier moment to this one.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }
}

/// Waits for a time, or until another thread unparks this one.
pub(crate) fn pause(time: Duration) {
    thread::park_timeout(time);
}
