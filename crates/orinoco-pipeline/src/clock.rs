use std::time::{Instant, SystemTime, UNIX_EPOCH};

use orinoco_core::{Clock, Nanos, WallTime};

/// The operating system's monotonic clock, counted from its creation.
#[derive(Debug)]
pub struct MonotonicClock(Instant);

impl Default for MonotonicClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wall(&self) -> WallTime {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime::from_unix_nanos(u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX))
    }
}
