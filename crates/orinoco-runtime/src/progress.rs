//! How far a run is, for those who watch it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The time over which a rate is taken: long enough for a steady figure, short enough to show a camera that stops.
const RATE_WINDOW: Duration = Duration::from_secs(5);
/// The most looks that are kept: one every 50 ms of the window, and one that began before it.
const LOOKS_MAX: usize = 102;

/// How far a run is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Frames delivered by all sources.
    pub frames_in: u64,
    /// Frames through every model and sink.
    pub frames_out: u64,
    /// Since the start.
    pub elapsed: Duration,
    /// Number of streams whose source has not ended.
    pub streams: usize,
    /// Those of them that deliver nothing, in the board's order.
    pub away: Vec<OfflineStream>,
}

/// A stream whose source delivers nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfflineStream {
    /// The stream's name on this board.
    pub stream: Arc<str>,
    /// Whether it has delivered before.
    pub was_live: bool,
    /// Time since its latest frame, or since the run started.
    pub silence: Duration,
}

impl Progress {
    /// The streams that deliver nothing, in one line; empty where there is none: "cam1 offline 12 s".
    pub fn away_text(&self) -> String {
        let text = |away: &OfflineStream| {
            let state = if away.was_live { "offline" } else { "connecting" };
            format!("{} {state} {} s", away.stream, away.silence.as_secs())
        };
        self.away.iter().map(text).collect::<Vec<_>>().join(", ")
    }
}

/// Frames out a second over the last seconds.
#[derive(Clone, Debug, Default)]
pub struct SlidingRate {
    /// Time and frames of each look.
    looks: VecDeque<(Duration, u64)>,
}

impl SlidingRate {
    /// Adds a look, and returns the rate up to it.
    pub fn add(&mut self, progress: &Progress) -> f64 {
        let Progress { elapsed, frames_out, .. } = *progress;
        // One look from before the window stays, where its first frames are counted from.
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
        // 20 frames a second for 60 s, then none.
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
