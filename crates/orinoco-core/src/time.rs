use core::num::NonZeroU64;
use core::ops::{Add, Sub};
use core::time::Duration;

/// Reading of a monotonic clock, in nanoseconds since an origin that the clock chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Returns the time from `earlier` to `self`; zero when `earlier` is later.
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

/// Time of day: nanoseconds since 1970-01-01 00:00 UTC, without leap seconds (Unix time). A board without a battery for
/// its clock starts in 1970, until it gets the time from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct WallTime(NonZeroU64);

impl WallTime {
    /// Creates the time of day `nanos` nanoseconds after the start of 1970; 0 becomes 1.
    pub fn from_unix_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN))
    }

    /// Returns the nanoseconds since the start of 1970.
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

/// Presentation timestamp in nanoseconds, on the clock that [`PtsClock`] names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Pts(pub u64);

/// Clock of a frame's [`Pts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum PtsClock {
    /// Media time of a file or a test pattern; zero at its start.
    #[default]
    Media,
    /// Arrival time, in stream time since the (re)connection: RTSP and HTTP.
    Arrival,
    /// Kernel's monotonic clock at capture: V4L2.
    Monotonic,
}
