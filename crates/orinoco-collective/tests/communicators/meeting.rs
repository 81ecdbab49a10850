//! Place at which threads of a test wait for one another.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Longer than any test: threads that have not come by then have panicked.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// Like [`std::sync::Barrier`], but panics after a time if not all threads come. The test would not end otherwise.
pub(crate) struct Meeting {
    threads: usize,
    /// Threads that have come since the start, to this meeting and those before it.
    come: Mutex<usize>,
    others_came: Condvar,
}

impl Meeting {
    pub(crate) fn new(threads: usize) -> Self {
        Self { threads, come: Mutex::new(0), others_came: Condvar::new() }
    }

    /// Waits until all threads have come.
    ///
    /// # Panics
    /// If one has not come in time.
    #[expect(clippy::disallowed_methods, reason = "threads of the test wait in real time")]
    pub(crate) fn wait(&self) {
        let mut come = self.come.lock().expect("no thread panics with it");
        let awaited = (*come / self.threads + 1) * self.threads;
        *come += 1;
        self.others_came.notify_all();
        let (come, result) = self
            .others_came
            .wait_timeout_while(come, WAIT_MAX, |come| *come < awaited)
            .expect("no thread panics with it");
        let number = *come;
        drop(come);
        assert!(!result.timed_out(), "{number} of {awaited} threads have come, the others have failed");
    }
}
