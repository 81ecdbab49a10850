//! Length of the parts in which files are copied. It depends on the link, since a daemon fails a part that takes longer than 2.5 s.

use std::time::Duration;

use orinoco_api::MODEL_DATA_BYTES_MAX as MAX;

/// Length of the shortest part in bytes, and of the first one: 0.26 s at 500 kb/s. Over slower links the data delay the daemons' signs of life, so that epochs end.
const MIN: u64 = 16 << 10;
/// A part that came within this time doubles the length of the next, which then takes up to twice the time.
const QUICK: Duration = Duration::from_millis(800);
/// A part that took this time or more halves the length of the next.
const SLOW: Duration = Duration::from_millis(1600);

/// Length of the next part, from the time that the parts before took. It begins short: the rest of a part that fails is still sent, and
/// delays the parts after it.
pub(super) struct PartLength {
    bytes: u64,
}

impl PartLength {
    pub(super) fn new() -> Self {
        Self { bytes: MIN }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adapts to a part of so many bytes that came in this time. A file's last part, which is shorter, says little of the link.
    pub(super) fn came(&mut self, bytes: u64, time: Duration) {
        if time <= QUICK && bytes == self.bytes {
            self.bytes = (self.bytes * 2).min(MAX);
        } else if time >= SLOW {
            self.failed();
        }
    }

    /// Adapts to a part that did not come.
    pub(super) fn failed(&mut self) {
        self.bytes = (self.bytes / 2).max(MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time after which a daemon fails a part.
    const WAIT_MAX: f64 = 2.5;

    /// Reads parts over a link of this rate and round-trip time, on which nothing else is sent. Returns the number of those that failed, and
    /// the last length.
    fn read_parts(length: &mut PartLength, bytes_per_s: f64, round_trip_s: f64) -> (usize, u64) {
        let (mut late, mut backlog) = (0, 0.0);
        for _ in 0..50 {
            let bytes = length.bytes() as f64;
            let seconds = round_trip_s + (backlog + bytes) / bytes_per_s;
            if seconds > WAIT_MAX {
                late += 1;
                backlog = (backlog + bytes - (WAIT_MAX + 0.5) * bytes_per_s).max(0.0);
                length.failed();
            } else {
                backlog = 0.0;
                length.came(length.bytes(), Duration::from_secs_f64(seconds));
            }
        }
        (late, length.bytes())
    }

    #[test]
    fn parts_are_as_long_as_the_link_allows() {
        for (bits_per_s, round_trip_s, expected) in [
            (250e3, 0.1, MIN * 2),
            (1e6, 0.1, MIN * 8),
            (3e6, 0.05, MIN * 32),
            (10e6, 0.05, MAX),
            (1e9, 0.001, MAX),
        ] {
            let reached = read_parts(&mut PartLength::new(), bits_per_s / 8.0, round_trip_s);
            assert_eq!(reached, (0, expected), "{bits_per_s} b/s");
        }
    }

    #[test]
    fn short_files_do_not_lengthen_the_parts_of_long_ones() {
        let mut length = PartLength::new();
        for _ in 0..50 {
            length.came(100, Duration::from_millis(2));
        }
        assert_eq!(length.bytes(), MIN);
    }

    #[test]
    fn a_link_that_becomes_slow_is_noticed_in_time() {
        let mut length = PartLength::new();
        read_parts(&mut length, 125e6, 0.001);
        let (late, bytes) = read_parts(&mut length, 125e3, 0.05);
        // A part and the pause after it take 3 s, and one is tried for 30 s.
        assert!((1..10).contains(&late), "{late} late parts");
        assert_eq!(bytes, MIN * 8);
    }
}
