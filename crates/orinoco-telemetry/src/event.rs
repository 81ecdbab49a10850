use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use orinoco_core::Diagnosis;

/// State of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceState {
    /// Opening the file or reaching the camera.
    Connecting,
    /// Delivering frames.
    Live,
    /// Connected, but no frame came in time.
    Stalled,
    /// Waiting before the next attempt.
    BackingOff,
    /// Over: end of file, told to stop, or given up.
    Ended,
}

impl SourceState {
    /// The name in summaries and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Live => "live",
            Self::Stalled => "stalled",
            Self::BackingOff => "backing-off",
            Self::Ended => "ended",
        }
    }
}

/// Anything an operator might count. Declared once, here; field names are those of the exporters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A source went into another state. Of one that is lost again and again the first, second, fourth time and so on are told.
    Source {
        /// The stream's name on this board.
        stream: Arc<str>,
        /// The new state.
        state: SourceState,
        /// Cause, if it is a failure.
        why: Option<Diagnosis>,
    },
    /// The user's cache is not used: somebody else could have written it.
    CacheRefused {
        /// Reason, as a sentence.
        why: String,
    },
    /// A source will be opened again. Of many attempts the first, second, fourth and so on are told.
    SourceRetry {
        /// The stream's name on this board.
        stream: Arc<str>,
        /// Attempts since it last delivered for a while, counted from 1.
        attempt: u32,
        /// Time to the attempt.
        wait: Duration,
    },
    /// A source that was lost delivers again.
    SourceRecovered {
        /// The stream's name on this board.
        stream: Arc<str>,
        /// From its loss to its first frame.
        after: Duration,
    },
    /// An engine could not take a model; the next in order is tried.
    EngineRefused {
        /// The model's name on this board.
        model: String,
        /// The engine's name.
        engine: String,
        /// Cause.
        why: String,
    },
    /// An engine was proved by a real inference and serves the model.
    EngineChosen {
        /// The model's name on this board.
        model: String,
        /// The engine's name.
        engine: &'static str,
        /// The engine's version.
        version: String,
    },
    /// The board's memory was planned, and does not fit its budget.
    MemoryRefused {
        /// Bytes that it would take.
        needed_bytes: u64,
        /// Bytes that it may.
        budget_bytes: u64,
        /// The refused plan. Shown, it is a table of what needs what, with the change that fits.
        refused: Arc<dyn Shown>,
    },
    /// A batch failed in the engine; its frames are dropped.
    ExecutionFailed {
        /// The model's name on this board.
        model: String,
        /// Cause.
        why: Diagnosis,
    },
    /// A model's outputs are not all finite numbers; what they would have been is left out. Reported once for each model.
    OutputNotFinite {
        /// The model's name on this board.
        model: String,
        /// Observation and remedy.
        why: Diagnosis,
    },
    /// A lane stopped working; the run ends.
    LaneFailed {
        /// Number of the lane.
        lane: usize,
        /// Cause.
        why: Diagnosis,
    },
    /// A lane stopped working, and is started again with its models and streams.
    LaneRestarted {
        /// Number of the lane.
        lane: usize,
        /// Cause of its end.
        why: Diagnosis,
        /// Restarts that are left for the next minutes, before the run ends.
        restarts_left: usize,
    },
    /// Nobody reads an output any more, and it ends: a pipe, a socket or a terminal. Its stream runs on.
    SinkUnread {
        /// The stream's name on this board.
        stream: Arc<str>,
        /// The output's path, or "standard output".
        output: String,
    },
    /// A sink stopped working and gets no more frames.
    SinkFailed {
        /// The stream's name on this board.
        stream: Arc<str>,
        /// Cause.
        why: Diagnosis,
    },
}

/// Data of a crate that this one does not know, which shows itself to people. Nobody makes text of it but who shows it.
pub trait Shown: fmt::Display + fmt::Debug + Send + Sync {}

impl<T: fmt::Display + fmt::Debug + Send + Sync> Shown for T {}

/// Takes events. Called on data-plane threads: it must not block.
pub trait EventSink: Send + Sync {
    /// Takes one event.
    fn emit(&self, event: Event);
}
