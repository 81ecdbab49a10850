use std::sync::Arc;
use std::time::Duration;

use orinoco_core::Diagnosis;
use orinoco_memory::ChangeRefused;

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
    /// Ended: end of file, stop requested, or no attempts left.
    Ended,
}

impl SourceState {
    /// Returns the name in summaries and messages.
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

/// Event that an operator might count. All events are declared here; field names are those of the exporters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A source entered another state. If it is lost again and again, only the first, second, fourth time and so on are
    /// reported.
    Source {
        /// The stream's name on this board.
        stream: Arc<str>,
        /// The new state.
        state: SourceState,
        /// Cause, if it is a failure.
        why: Option<Diagnosis>,
    },
    /// The user's cache is not used, because another user could have written it.
    CacheRefused {
        /// Reason, as a sentence.
        why: String,
    },
    /// A source will be opened again. Of many attempts, only the first, second, fourth and so on are reported.
    SourceRetry {
        /// The stream's name on this board.
        stream: Arc<str>,
        /// Attempts since the source last delivered for a while, counted from 1.
        attempt: u32,
        /// Time until the attempt.
        wait: Duration,
    },
    /// A source that was lost delivers frames again.
    SourceRecovered {
        /// The stream's name on this board.
        stream: Arc<str>,
        /// Time from the loss of the source to its next frame.
        after: Duration,
    },
    /// An engine cannot execute a model; the next engine in the order is tried.
    EngineRefused {
        /// The model's name on this board.
        model: String,
        /// The engine's name.
        engine: String,
        /// Cause.
        why: String,
    },
    /// An engine passed its probe inference and serves the model.
    EngineChosen {
        /// The model's name on this board.
        model: String,
        /// The engine's name.
        engine: &'static str,
        /// The engine's version.
        version: String,
    },
    /// A lane takes another version of a model between two batches; the streams that use it continue.
    ModelReplaced {
        /// The model's name on this board.
        model: String,
        /// Number of the lane.
        lane: usize,
    },
    /// Another seat of the cluster did not infer images of a model. Reported when the seat goes offline, for each other
    /// fault of the seat, and for every other cause once for each model of a lane.
    SeatMissed {
        /// The model's name on this board.
        model: String,
        /// Name of the seat.
        seat: String,
        /// Cause, and what happens to the images.
        why: Diagnosis,
    },
    /// A seat that was offline infers images of a model again.
    SeatRecovered {
        /// The model's name on this board.
        model: String,
        /// Name of the seat.
        seat: String,
    },
    /// The board takes part in an epoch of its cluster.
    EpochBegan {
        /// Number of the epoch.
        epoch: u32,
        /// Names of its members, with commas between them.
        members: String,
        /// Transport of its messages: `tcp` or `rdma`.
        transport: &'static str,
        /// Reason for which it is not RDMA, although the board file lists it.
        fallback: Option<String>,
    },
    /// The board's epoch is over; it joins the next.
    EpochEnded {
        /// Number of the epoch.
        epoch: u32,
        /// Reason.
        why: String,
        /// Whether a seat failed, or a connection.
        has_failed: bool,
    },
    /// The board takes part in no epoch of its cluster. Reported when the cause is another than before.
    ClusterFault {
        /// Cause, and next step.
        why: String,
    },
    /// The inference interval of a model was changed on lanes that run it.
    IntervalChanged {
        /// The model's name on this board.
        model: String,
        /// Interval from now on: the model infers one of this many frames of a stream.
        interval: u32,
    },
    /// The board's memory plan does not fit its budget.
    MemoryRefused {
        /// Memory that the board needs, in bytes.
        needed_bytes: u64,
        /// Memory budget of the board, in bytes.
        budget_bytes: u64,
        /// Refused plan or change: its areas in bytes, and the smallest change that fits. Whoever prints the event makes a table of it.
        refused: Arc<ChangeRefused>,
    },
    /// A batch failed in the engine; its frames are dropped.
    ExecutionFailed {
        /// The model's name on this board.
        model: String,
        /// Cause.
        why: Diagnosis,
    },
    /// A model's outputs contain values that are not finite; results with such values are left out. Reported once for each
    /// model.
    OutputNotFinite {
        /// The model's name on this board.
        model: String,
        /// Observation and next step.
        why: Diagnosis,
    },
    /// A lane failed; the run ends.
    LaneFailed {
        /// Number of the lane.
        lane: usize,
        /// Cause.
        why: Diagnosis,
    },
    /// A lane failed, and is restarted with its models and streams.
    LaneRestarted {
        /// Number of the lane.
        lane: usize,
        /// Cause of its end.
        why: Diagnosis,
        /// Number of restarts left within the restart window; after the last one, a failure of the lane ends the run.
        restarts_left: usize,
    },
    /// Lanes that have failed could not be restarted on the running board; another board is wanted, and is tried instead.
    RestartFailed {
        /// Cause.
        why: Diagnosis,
    },
    /// An output has lost its reader and ends: a pipe, a socket or a terminal. Its stream continues.
    SinkUnread {
        /// The stream's name on this board.
        stream: Arc<str>,
        /// The output's path, or "standard output".
        output: String,
    },
    /// The governor can change power settings.
    GovernorReady {
        /// Its actuators with their present levels.
        actuators: String,
    },
    /// The governor changed a power setting.
    GovernorStep {
        /// Name of the actuator, such as `power-mode`.
        actuator: String,
        /// Level before.
        from: String,
        /// Level now.
        to: String,
        /// `up` to more power, `down` to less.
        direction: &'static str,
        /// Reason.
        why: String,
    },
    /// The governor cannot do what it is there for. Reported once, until that has changed.
    GovernorFault {
        /// Cause.
        why: Diagnosis,
    },
    /// The thread that reads the board's sensors failed; the run continues without readings and figures of energy.
    SensorsFailed {
        /// Cause.
        why: Diagnosis,
    },
    /// A sink failed and gets no more frames.
    SinkFailed {
        /// The stream's name on this board.
        stream: Arc<str>,
        /// Cause.
        why: Diagnosis,
    },
}

/// Receiver of events. It is called on threads of the data plane, and must not block.
pub trait EventSink: Send + Sync {
    /// Receives one event.
    fn emit(&self, event: Event);
}
