use alloc::sync::Arc;
use core::num::NonZeroU64;
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

/// The one thing that reads time and waits for it. The caller owns it, so a test can own it too.
pub trait Clock: Send + Sync {
    /// The time now. Never goes backwards.
    fn now(&self) -> Nanos;

    /// The time of day now. It may jump, in both directions: somebody sets it, or the network does.
    fn wall(&self) -> WallTime;

    /// Makes a signal for one thread, which waits on this clock.
    fn signal(&self) -> Arc<dyn Signal>;
}

/// A time of day: nanoseconds since 1970-01-01 00:00 UTC, without leap seconds (Unix time). A board without a battery for
/// its clock starts in 1970, until the network tells it the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct WallTime(NonZeroU64);

impl WallTime {
    /// The time `nanos` nanoseconds after the start of 1970; the first nanosecond stands for what is earlier.
    pub fn from_unix_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN))
    }

    /// Nanoseconds since the start of 1970.
    pub fn unix_nanos(self) -> u64 {
        self.0.get()
    }
}

impl Sub<Duration> for WallTime {
    type Output = WallTime;
    fn sub(self, by: Duration) -> WallTime {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        Self::from_unix_nanos(self.unix_nanos().saturating_sub(by))
    }
}

/// What one thread waits for: a notification, or a time. A thread that runs a core without I/O locks it, asks it what comes
/// next, unlocks it, and then acts or waits here.
pub trait Signal: Send + Sync {
    /// Wakes the thread that waits, or lets its next wait return at once: a notification between the look at the core and
    /// the wait is not lost. Several before one wait count as one.
    fn notify(&self);

    /// Waits for a notification, and at most until `until`. May return earlier, so the caller looks again. One thread waits
    /// at a time.
    fn wait(&self, until: Option<Nanos>);
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
