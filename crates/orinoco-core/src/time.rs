use core::ops::{Add, Sub};
use core::time::Duration;

/// A reading of a monotonic clock, in nanoseconds since an origin that the clock chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time from `earlier` to `self`; zero when `earlier` is later.
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Nanos {
    type Output = Nanos;
    fn add(self, by: Duration) -> Nanos {
        Nanos(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Nanos {
    type Output = Nanos;
    fn sub(self, by: Duration) -> Nanos {
        Nanos(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The one thing that reads time. The caller owns it, so a test can own it too.
pub trait Clock: Send + Sync {
    /// The time now. Never goes backwards.
    fn now(&self) -> Nanos;
}

/// A presentation timestamp in nanoseconds, on the clock that [`PtsClock`] names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Pts(pub u64);

/// Which clock a frame's [`Pts`] was read on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum PtsClock {
    /// Media time of a file or a test pattern: zero at its start.
    #[default]
    Media,
    /// Arrival, in stream time since the (re)connection: RTSP and HTTP.
    Arrival,
    /// The kernel's monotonic clock at capture: V4L2.
    Monotonic,
}
