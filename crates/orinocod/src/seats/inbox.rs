//! Batches that wait for the thread of one seat.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orinoco_core::{Clock, Signal};
use orinoco_runtime::SeatBatch;

/// Batches that may wait. A lane waits for an answer for two seconds at most, so more would come too late.
pub(super) const BATCHES_MAX: usize = 8;

/// Batches that wait for the thread of one seat.
pub(super) struct Inbox {
    state: Mutex<State>,
    /// Wakes the thread.
    changed: Arc<dyn Signal>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct State {
    batches: VecDeque<SeatBatch>,
    is_closed: bool,
}

/// Reason for which a batch was not taken.
pub(super) enum NotTaken {
    Full,
    Closed,
}

/// Next thing for the thread of a seat.
pub(super) enum Next {
    Batch(SeatBatch),
    /// No batch came for the time that it waited.
    Idle,
    Closed,
}

impl Inbox {
    pub(super) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), changed: clock.signal(), clock: Arc::clone(clock) }
    }

    /// Adds a batch, or returns it if it is not taken.
    pub(super) fn push(&self, batch: SeatBatch) -> Option<(SeatBatch, NotTaken)> {
        let mut state = self.lock();
        if state.is_closed {
            return Some((batch, NotTaken::Closed));
        }
        if state.batches.len() >= BATCHES_MAX {
            return Some((batch, NotTaken::Full));
        }
        state.batches.push_back(batch);
        drop(state);
        self.changed.notify();
        None
    }

    /// Waits for a batch, at most for `wait`.
    pub(super) fn next(&self, wait: Duration) -> Next {
        let until = self.clock.now() + wait;
        loop {
            let mut state = self.lock();
            if state.is_closed {
                return Next::Closed;
            }
            if let Some(batch) = state.batches.pop_front() {
                return Next::Batch(batch);
            }
            drop(state);
            if self.clock.now() >= until {
                return Next::Idle;
            }
            self.changed.wait(Some(until));
        }
    }

    /// Takes no further batches, and returns those that wait.
    pub(super) fn close(&self) -> VecDeque<SeatBatch> {
        let mut state = self.lock();
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.batches);
        drop(state);
        self.changed.notify();
        waiting
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
