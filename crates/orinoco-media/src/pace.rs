use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{Clock, Nanos, Pts};

use crate::Pace;

/// Holds frames back until their presentation time has come.
pub(crate) struct Pacer {
    pace: Pace,
    clock: Arc<dyn Clock>,
    start: Option<Nanos>,
}

impl Pacer {
    pub(crate) fn new(pace: Pace, clock: Arc<dyn Clock>) -> Self {
        Self { pace, clock, start: None }
    }

    /// The next frame starts the time anew.
    pub(crate) fn restart(&mut self) {
        self.start = None;
    }

    /// Waits at most `wait` for the time of `pts`; returns whether it has come.
    pub(crate) fn wait(&mut self, pts: Pts, wait: Duration) -> bool {
        if self.pace == Pace::Free {
            return true;
        }
        let now = self.clock.now();
        let start = *self.start.get_or_insert(now - Duration::from_nanos(pts.0));
        let left = (start + Duration::from_nanos(pts.0)).since(now);
        std::thread::sleep(left.min(wait));
        left <= wait
    }
}
