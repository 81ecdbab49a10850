use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{Clock, Nanos, Pts, Signal};
use orinoco_uri::Pace;

/// Delays frames until their presentation time, counted from the first one's.
pub(crate) struct Pacer {
    pace: Pace,
    clock: Arc<dyn Clock>,
    signal: Arc<dyn Signal>,
    /// Time at which the first frame came, and its presentation time.
    start: Option<(Nanos, Pts)>,
}

impl Pacer {
    pub(crate) fn new(pace: Pace, clock: Arc<dyn Clock>) -> Self {
        let signal = clock.signal();
        Self { pace, clock, signal, start: None }
    }

    /// Restarts the time with the next frame.
    pub(crate) fn restart(&mut self) {
        self.start = None;
    }

    /// Waits at most `wait` for the time of `pts`. Returns whether it has come.
    pub(crate) fn wait(&mut self, pts: Pts, wait: Duration) -> bool {
        if self.pace == Pace::Free {
            return true;
        }
        let now = self.clock.now();
        let (start, first) = *self.start.get_or_insert((now, pts));
        let left = (start + Duration::from_nanos(pts.0.saturating_sub(first.0))).since(now);
        wait_until(now + left.min(wait), &*self.clock, &*self.signal);
        left <= wait
    }
}

/// Waits for a time, at a signal that nobody notifies.
fn wait_until(until: Nanos, clock: &dyn Clock, signal: &dyn Signal) {
    while clock.now() < until {
        signal.wait(Some(until));
    }
}

/// Waits before something is asked again.
pub(crate) fn pause(wait: Duration, clock: &dyn Clock) {
    wait_until(clock.now() + wait, clock, &*clock.signal());
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_pipeline::MonotonicClock;

    #[test]
    fn time_counts_from_the_first_frame() {
        let mut pacer = Pacer::new(Pace::Pts, Arc::new(MonotonicClock::default()));
        let late = |millis: u64| Pts((90_000 + millis) * 1_000_000);
        assert!(pacer.wait(late(0), Duration::ZERO), "the first one is due at once");
        assert!(!pacer.wait(late(60_000), Duration::ZERO), "this one in a minute");
        assert!(pacer.wait(late(5), Duration::from_secs(5)));
        pacer.restart();
        assert!(pacer.wait(late(60_000), Duration::ZERO), "it is the first again");
    }
}
