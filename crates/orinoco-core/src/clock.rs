use alloc::sync::Arc;

use crate::{Nanos, WallTime};

/// Source of time, and of signals to wait for it. The caller owns it, so a test can own it too.
pub trait Clock: Send + Sync {
    /// Returns the time now. It never goes backwards.
    fn now(&self) -> Nanos;

    /// Returns the time of day now. It may jump in both directions, when a person or the network sets it.
    fn wall(&self) -> WallTime;

    /// Creates a signal on which one thread waits, by this clock.
    fn signal(&self) -> Arc<dyn Signal>;
}

/// Wake-up signal of one thread, which waits for a notification or until a time. A thread that runs a sans-I/O core
/// locks the core, asks it for its next action, unlocks it, and then acts or waits here.
pub trait Signal: Send + Sync {
    /// Wakes the waiting thread, or makes its next wait return at once, so a notification between the look at the core
    /// and the wait is not lost. Several notifications before one wait count as one.
    fn notify(&self);

    /// Waits for a notification, and at most until `until`. It may return earlier, so the caller must check again. Only
    /// one thread waits at a time.
    fn wait(&self, until: Option<Nanos>);
}
