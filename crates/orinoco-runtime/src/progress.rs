//! Progress of a run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Time over which a rate is averaged: long enough for a steady figure, short enough to show that a camera stopped.
const RATE_WINDOW: Duration = Duration::from_secs(5);
/// Maximum number of kept samples: one every 50 ms of the window, and one from before it.
const LOOKS_MAX: usize = 102;

/// Progress of a run.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Number of frames that all sources delivered.
    pub frames_in: u64,
    /// Number of frames that went through every model and sink.
    pub frames_out: u64,
    /// Time since the start.
    pub elapsed: Duration,
    /// Number of streams whose source has not ended.
    pub streams: usize,
    /// Streams among them that deliver no frames now, in the order in which they joined.
    pub away: Vec<OfflineStream>,
}

/// Stream whose source delivers no frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfflineStream {
    /// Name of the stream on this board.
    pub stream: Arc<str>,
    /// Whether the stream has delivered frames before.
    pub was_live: bool,
    /// Time since its latest frame, or since the start of the run.
    pub silence: Duration,
}

impl Progress {
    /// Describes the streams that deliver no frames, in one line: "cam1 offline 12 s". Empty if there are none.
    pub fn away_text(&self) -> String {
        let text = |away: &OfflineStream| {
            let state = if away.was_live { "offline" } else { "connecting" };
            format!("{} {state} {} s", away.stream, away.silence.as_secs())
        };
        self.away.iter().map(text).collect::<Vec<_>>().join(", ")
    }
}

/// Rate of finished frames over the last seconds.
#[derive(Clone, Debug, Default)]
pub struct SlidingRate {
    /// Elapsed time and number of finished frames at each sample.
    looks: VecDeque<(Duration, u64)>,
}

impl SlidingRate {
    /// Adds a sample, and returns the rate up to it, in frames per second.
    pub fn add(&mut self, progress: &Progress) -> f64 {
        let Progress { elapsed, frames_out, .. } = *progress;
        // One sample from before the window is kept, because the window's first frames are counted from it.
        while self.looks.len() >= LOOKS_MAX
            || self.looks.get(1).is_some_and(|(at, _)| *at + RATE_WINDOW <= elapsed)
        {
            self.looks.pop_front();
        }
        self.looks.push_back((elapsed, frames_out));
        let (from, frames) = self.looks[0];
        let frames = frames_out.saturating_sub(frames);
        frames as f64 / elapsed.saturating_sub(from).max(Duration::from_millis(1)).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64, frames_out: u64) -> Progress {
        Progress { elapsed: Duration::from_millis(millis), frames_out, ..Progress::default() }
    }

    #[test]
    fn a_rate_is_that_of_the_last_seconds() {
        let mut rate = SlidingRate::default();
        assert_eq!(rate.add(&at(0, 0)), 0.0);
        // The first 60 s have 20 frames per second, and then there are none.
        let mut seen = 0.0;
        for look in 1..=1200 {
            seen = rate.add(&at(look * 50, look));
        }
        assert!((seen - 20.0).abs() < 1e-9, "{seen}");
        for look in 1..=50 {
            seen = rate.add(&at(60_000 + look * 50, 1200));
        }
        assert!((seen - 10.0).abs() < 0.5, "half of the window was without frames: {seen}");
        for look in 51..=101 {
            seen = rate.add(&at(60_000 + look * 50, 1200));
        }
        assert_eq!(seen, 0.0);
        assert!(rate.looks.len() <= LOOKS_MAX);
    }

    #[test]
    fn streams_that_are_away_are_named_with_their_time() {
        let away = |stream: &str, was_live, seconds: u64| OfflineStream {
            stream: stream.into(),
            was_live,
            silence: Duration::from_millis(seconds * 1000 + 400),
        };
        let away = vec![away("cam1", true, 12), away("cam2", false, 3)];
        let progress = Progress { away, ..Progress::default() };
        assert_eq!(progress.away_text(), "cam1 offline 12 s, cam2 connecting 3 s");
        assert_eq!(Progress::default().away_text(), "");
    }
}
