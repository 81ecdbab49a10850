use std::fmt;
use std::ops::RangeInclusive;

use crate::fault::Fault;

/// Range of both terms of a frame rate: enough for NTSC's exact 30000/1001, and a term times the nanoseconds of a
/// second fits 64 bits.
const WRITTEN_TERM: RangeInclusive<u32> = 1..=1_000_000;

/// Frame rate as a fraction: frames in seconds. Neither is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    frames: u32,
    seconds: u32,
}

impl Rate {
    /// Creates the rate of `frames` in `seconds`; `None` where one of them is zero.
    pub const fn new(frames: u32, seconds: u32) -> Option<Self> {
        if frames > 0 && seconds > 0 { Some(Self { frames, seconds }) } else { None }
    }

    /// Parses both terms; `None` where one is not an integer from 1 to a million.
    pub fn from_terms(frames: &str, seconds: &str) -> Option<Self> {
        let term = |text: &str| text.parse().ok().filter(|number| WRITTEN_TERM.contains(number));
        Some(Self { frames: term(frames)?, seconds: term(seconds)? })
    }

    /// Returns the number of frames in [`Rate::seconds`].
    pub fn frames(self) -> u32 {
        self.frames
    }

    /// Returns the number of seconds that [`Rate::frames`] take.
    pub fn seconds(self) -> u32 {
        self.seconds
    }

    /// Returns the frames per second.
    pub fn per_second(self) -> f64 {
        f64::from(self.frames) / f64::from(self.seconds)
    }

    /// Returns the time of frame `number`, in nanoseconds, when frame 0 is at zero.
    pub fn nanos(self, number: u64) -> u64 {
        let nanos = u128::from(number) * u128::from(self.seconds) * 1_000_000_000 / u128::from(self.frames);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

/// Formats a rate as in a URI: `30` or `30000/1001`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.frames / self.seconds, self.frames % self.seconds) {
            (per_second, 0) => write!(f, "{per_second}"),
            _ => write!(f, "{}/{}", self.frames, self.seconds),
        }
    }
}

/// Parses `30` or `30000/1001`.
pub(crate) fn read_rate(text: &str) -> Result<Rate, Fault> {
    let (frames, seconds) = text.split_once('/').unwrap_or((text, "1"));
    let next = "write frames per second as fps=30 or fps=30000/1001";
    Rate::from_terms(frames, seconds).ok_or_else(|| Fault::new(format!("`fps={text}` is not valid"), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_shown_as_it_is_written() {
        let shown = |frames, seconds| Rate::new(frames, seconds).map(|rate| rate.to_string());
        assert_eq!(shown(30_000, 1001).as_deref(), Some("30000/1001"));
        assert_eq!(shown(60, 2).as_deref(), Some("30"));
        assert_eq!((shown(0, 1), shown(30, 0)), (None, None));
    }

    #[test]
    fn frames_come_at_exact_times() {
        let rate = Rate::from_terms("30000", "1001").expect("NTSC");
        assert_eq!([0, 1, 30_000].map(|number| rate.nanos(number)), [0, 33_366_666, 1_001_000_000_000]);
        assert_eq!(Rate::from_terms("1", "1000000").expect("slow").nanos(u64::MAX), u64::MAX);
        assert_eq!((Rate::from_terms("30", "0"), Rate::from_terms("1000001", "1")), (None, None));
    }
}
