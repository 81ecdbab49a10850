//! Value that is computed at most once at a time and at most once in a while, for all who ask together.

#![expect(clippy::disallowed_methods, reason = "how long a client waits for an answer is I/O")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orinoco_core::{Clock, Nanos};
use tokio::sync::watch;
use tokio::time::timeout;

/// Function that computes the value, on a blocking thread.
type Compute<T> = dyn Fn() -> T + Send + Sync;

/// Value that is shared for a while. However many ask, one computation is in progress at most; who leaves before it is done
/// does not end it, and leaves nothing behind.
pub(crate) struct Cached<T> {
    compute: Arc<Compute<T>>,
    shared_for: Duration,
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<CacheState<T>>>,
}

struct CacheState<T> {
    /// Latest value, with the time at which its computation began: it is as old as that.
    latest: Option<(Nanos, Arc<T>)>,
    /// Receiver of the value that is being computed.
    pending: Option<watch::Receiver<Option<Arc<T>>>>,
}

/// Reason why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unanswered {
    /// The computation takes longer than the caller waits.
    #[error("the run did not answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The computation panicked.
    #[error("the run could not report its state, because of a bug in Orinoco")]
    Panicked,
}

impl<T: Send + Sync + 'static> Cached<T> {
    /// Creates a value that has not been computed yet. `compute` is called on a blocking thread of the runtime.
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        shared_for: Duration,
        compute: impl Fn() -> T + Send + Sync + 'static,
    ) -> Self {
        let state = CacheState { latest: None, pending: None };
        Self { compute: Arc::new(compute), shared_for, clock, state: Arc::new(Mutex::new(state)) }
    }

    /// Returns the value: the latest one if it is young enough, else the one whose computation is in progress, else a new
    /// one. Waits for `wait_max` at most.
    pub(crate) async fn get(&self, wait_max: Duration) -> Result<Arc<T>, Unanswered> {
        let mut pending = {
            let mut state = lock(&self.state);
            match &state.latest {
                Some((at, value)) if self.clock.now().since(*at) < self.shared_for => {
                    return Ok(Arc::clone(value));
                }
                _ => self.join(&mut state),
            }
        };
        match timeout(wait_max, pending.wait_for(Option::is_some)).await {
            Ok(Ok(value)) => Ok(value.clone().expect("a value was waited for")),
            Ok(Err(_)) => Err(Unanswered::Panicked),
            Err(_) => Err(Unanswered::TimedOut(wait_max)),
        }
    }

    /// Returns the receiver of the computation in progress; starts one if there is none.
    fn join(&self, state: &mut CacheState<T>) -> watch::Receiver<Option<Arc<T>>> {
        // The sender of a computation that panicked is gone.
        if let Some(pending) = state.pending.as_ref().filter(|pending| pending.has_changed().is_ok()) {
            return pending.clone();
        }
        let (sender, receiver) = watch::channel(None);
        state.pending = Some(receiver.clone());
        let (compute, shared, began) = (Arc::clone(&self.compute), Arc::clone(&self.state), self.clock.now());
        tokio::task::spawn_blocking(move || {
            let value = Arc::new(compute());
            let mut state = lock(&shared);
            state.latest = Some((began, Arc::clone(&value)));
            state.pending = None;
            drop(state);
            sender.send_replace(Some(value));
        });
        receiver
    }
}

fn lock<T>(state: &Mutex<CacheState<T>>) -> MutexGuard<'_, CacheState<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
