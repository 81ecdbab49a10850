//! Invariants of a supervisor between two actions, checked in tests and debug builds.

use super::Supervisor;
use super::state::{Change, Next, Phase, Source};

impl<P> Supervisor<P> {
    /// Checks the invariants that hold between two actions.
    pub(crate) fn check(&self) {
        for (id, stream) in &self.streams {
            assert!(stream.lane < self.lanes.len(), "stream {id} is on lane {}", stream.lane);
            assert!(!(stream.retired && stream.left), "stream {id} has ended and left, and is still here");
            assert!(stream.retired || !stream.has_ended(), "stream {id} has ended and was not handed over");
            let mut same = self.streams.values().filter(|other| other.name == stream.name && !other.left);
            assert!(stream.left || same.by_ref().count() == 1, "two streams are called {}", stream.name);
            if let Source::Waits { before, .. } = stream.source {
                let before = self.streams.get(&before).map(|before| before.source.has_ended());
                assert_eq!(before, Some(false), "stream {id} waits for a source that has ended");
                assert!(!self.by.stop, "stream {id} waits although a stop was requested");
            }
        }
        if let Some(memory) = &self.memory {
            let running = memory.running();
            assert!(running.budget.covers(running.spent()), "more is held than the budget:\n{running}");
        }
        let is_wanted = self.next.is_some() || self.next_levels.is_some();
        assert!(!is_wanted || self.change.is_some(), "a change is wanted, and nobody prepares it");
        let restarts_first = |next: &Next| !next.restarts.is_empty() && !next.restart_failed;
        let gives_way = |change: &Change| change.is_cancelled || change.was_put_off;
        let is_cancelled = self.change.as_ref().is_some_and(gives_way);
        assert!(
            is_cancelled || !self.next.as_ref().is_some_and(restarts_first),
            "a lane has failed, and another change is prepared first"
        );
        assert!(!is_wanted || !self.by.stop, "a change is wanted of a run that ends");
        assert!(self.phase != Phase::Running || !self.by.stop, "it runs although a stop was requested");
        assert!(self.by.stop == self.end_max.is_some(), "an end that was requested has a deadline");
        if self.phase == Phase::Over {
            assert!(self.streams.values().all(|stream| stream.retired), "a stream outlived the run");
            assert!(self.lanes.iter().all(|lane| !lane.runs), "a lane outlived the run");
        }
    }
}
