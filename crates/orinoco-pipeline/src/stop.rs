use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orinoco_core::StreamId;

/// The wish to end, shared by everything that waits: of all streams, or of one.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    shared: Arc<(Mutex<Wishes>, Condvar)>,
    /// The stream that this is about; all of them if `None`.
    stream: Option<StreamId>,
}

#[derive(Debug, Default)]
struct Wishes {
    all: bool,
    streams: BTreeSet<StreamId>,
}

impl Stop {
    /// The wish to end one stream; it ends with all of them, too.
    pub fn of(&self, stream: StreamId) -> Self {
        Self { shared: Arc::clone(&self.shared), stream: Some(stream) }
    }

    /// Asks for the end. May be called more than once.
    pub fn request(&self) {
        let mut wishes = self.lock();
        match self.stream {
            Some(stream) => drop(wishes.streams.insert(stream)),
            None => wishes.all = true,
        }
        self.shared.1.notify_all();
    }

    /// Forgets the wish to end one stream, which has ended: else wishes would add up.
    pub fn forget(&self) {
        if let Some(stream) = self.stream {
            self.lock().streams.remove(&stream);
        }
    }

    /// Whether the end was asked for.
    pub fn requested(&self) -> bool {
        self.is_wished(&self.lock())
    }

    /// Sleeps for `wait`, or until the end is asked for; returns whether it was.
    pub fn sleep(&self, wait: Duration) -> bool {
        let waiting = |wishes: &mut Wishes| !self.is_wished(wishes);
        let slept = self.shared.1.wait_timeout_while(self.lock(), wait, waiting);
        let (wishes, _) = slept.unwrap_or_else(PoisonError::into_inner);
        self.is_wished(&wishes)
    }

    fn is_wished(&self, wishes: &Wishes) -> bool {
        wishes.all || self.stream.is_some_and(|stream| wishes.streams.contains(&stream))
    }

    fn lock(&self) -> MutexGuard<'_, Wishes> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stream_ends_alone_and_with_all() {
        let all = Stop::default();
        let (a, b) = (all.of(StreamId(0)), all.of(StreamId(1)));
        a.request();
        assert_eq!([all.requested(), a.requested(), b.requested()], [false, true, false]);
        assert!(a.sleep(Duration::from_secs(60)), "it does not wait");
        all.request();
        assert!(b.requested());
    }
}
