use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use orinoco_core::{Clock, Signal, StreamId};

use crate::sync::{Mutex, MutexGuard};

/// Stop request, shared by everything that waits: of a whole run, or of a part of it.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    shared: Arc<Mutex<StopRequests>>,
    /// The part that this is about; the whole run if `None`.
    part: Option<Part>,
}

/// Part of a run that can be stopped alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Stream(StreamId),
    /// Preparation of a change, by its number.
    Preparation(u64),
}

#[derive(Default)]
struct StopRequests {
    all: bool,
    parts: BTreeSet<Part>,
    /// Notified of each request: its thread looks whether it is meant.
    signals: Vec<Weak<dyn Signal>>,
}

impl Stop {
    /// Returns the stop request of one stream; it ends with the run, too.
    pub fn of(&self, stream: StreamId) -> Self {
        self.of_part(Part::Stream(stream))
    }

    /// Returns the stop request of the preparation with this number; it ends with the run, too.
    pub fn of_preparation(&self, number: u64) -> Self {
        self.of_part(Part::Preparation(number))
    }

    fn of_part(&self, part: Part) -> Self {
        Self { shared: Arc::clone(&self.shared), part: Some(part) }
    }

    /// Asks for the end. May be called more than once.
    pub fn request(&self) {
        let mut wishes = self.lock();
        match self.part {
            Some(part) => drop(wishes.parts.insert(part)),
            None => wishes.all = true,
        }
        for signal in wishes.signals.iter().filter_map(Weak::upgrade) {
            signal.notify();
        }
    }

    /// Notifies a signal of every request from now on, for as long as somebody holds it.
    pub fn watch(&self, signal: &Arc<dyn Signal>) {
        let mut wishes = self.lock();
        wishes.signals.retain(|signal| signal.strong_count() > 0);
        wishes.signals.push(Arc::downgrade(signal));
    }

    /// Forgets the stop request of a part that has ended: else requests would add up.
    pub fn forget(&self) {
        if let Some(part) = self.part {
            self.lock().parts.remove(&part);
        }
    }

    /// Whether the end was asked for.
    pub fn requested(&self) -> bool {
        self.is_wished(&self.lock())
    }

    /// Sleeps for `wait`, or until the end is asked for; returns whether it was.
    pub fn sleep(&self, clock: &dyn Clock, wait: Duration) -> bool {
        let (signal, until) = (clock.signal(), clock.now() + wait);
        self.watch(&signal);
        while !self.requested() && clock.now() < until {
            signal.wait(Some(until));
        }
        self.requested()
    }

    fn is_wished(&self, wishes: &StopRequests) -> bool {
        wishes.all || self.part.is_some_and(|part| wishes.parts.contains(&part))
    }

    fn lock(&self) -> MutexGuard<'_, StopRequests> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for StopRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { all, parts, signals } = self;
        write!(f, "StopRequests(all {all}, parts {parts:?}, {} signals)", signals.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MonotonicClock;

    #[test]
    fn one_stream_ends_alone_and_with_all() {
        let all = Stop::default();
        let (a, b) = (all.of(StreamId(0)), all.of(StreamId(1)));
        a.request();
        assert_eq!([all.requested(), a.requested(), b.requested()], [false, true, false]);
        assert!(a.sleep(&MonotonicClock::default(), Duration::from_secs(60)), "it does not wait");
        all.request();
        assert!(b.requested());
    }

    #[test]
    fn a_preparation_ends_alone_and_with_all() {
        let all = Stop::default();
        let (first, second) = (all.of_preparation(0), all.of_preparation(1));
        first.request();
        assert_eq!([all.requested(), first.requested(), second.requested()], [false, true, false]);
        assert!(!all.of(StreamId(0)).requested(), "a stream with the same number runs on");
        first.forget();
        assert!(!first.requested());
        all.request();
        assert!(second.requested());
    }

    #[test]
    fn a_request_wakes_who_sleeps() {
        let stop = Stop::default();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| stop.sleep(&MonotonicClock::default(), Duration::from_secs(3600)));
            stop.request();
            assert!(sleeper.join().expect("it does not panic"));
        });
    }
}
