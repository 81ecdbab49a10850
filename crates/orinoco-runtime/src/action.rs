//! Actions that a supervisor receives, and effects that it wants carried out.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use orinoco_board::{Board, ChosenLevels};
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, StreamId};
use orinoco_pipeline::{SinkOutputs, SourceEnd};
use orinoco_telemetry::Event;

use crate::model_version::LanePlan;
use crate::progress::Progress;
use crate::reloaded::{Reloaded, Reply};
use crate::run_memory::AdmittedMemory;

/// Everything that can happen to a run. `P` is the type of a prepared change.
pub(crate) enum Action<P> {
    /// The source thread of a stream has ended or panicked.
    SourceEnded(StreamId, Result<SourceEnd, Diagnosis>),
    /// The sink thread of a stream has ended or panicked.
    SinkEnded(StreamId, Result<SinkOutputs, Diagnosis>),
    /// The thread of a lane has ended or panicked.
    LaneEnded(usize, Result<(), Diagnosis>),
    /// A reload to another board is requested.
    Reload(Board, Reply),
    /// Other levels of the board's models are wanted, in place of those that were chosen before.
    ChooseLevels(ChosenLevels, Reply),
    /// A change was prepared, or its preparation failed.
    Prepared(Result<P, Faults>),
    /// A prepared change was applied.
    Applied(Applied),
    /// A lane has dropped a plan, and with it the memory that the plan held.
    PlanDropped(LanePlan),
    /// A snapshot of the run's progress is requested.
    Snapshot(Sender<Progress>),
    /// No output of the run has a reader any more.
    Unread,
    /// The end of the run is requested.
    Stop,
    /// A deadline has passed.
    Tick,
}

/// Result of applying a prepared change.
#[derive(Default)]
pub(crate) struct Applied {
    /// The wanted board from now on; `None` leaves it unchanged.
    pub(crate) board: Option<Board>,
    pub(crate) joined: Vec<Joined>,
    pub(crate) left: Vec<StreamId>,
    /// Plans that lanes replace.
    pub(crate) replaced: Vec<Replaced>,
    /// Lanes that were started for the change.
    pub(crate) lanes: Vec<usize>,
    /// Faults of streams that could not join.
    pub(crate) faults: Vec<Diagnosis>,
    /// Faults of streams that could not join, but can when the change is prepared again.
    pub(crate) missed: Vec<Diagnosis>,
    /// Memory with which the change was admitted, if the board has a budget.
    pub(crate) memory: Option<Box<AdmittedMemory>>,
}

/// Plan that a lane takes in the place of another one, between two batches.
pub(crate) struct Replaced {
    /// Name of the model.
    pub(crate) name: Arc<str>,
    /// Plan that is replaced. It is reported as dropped later.
    pub(crate) old: LanePlan,
}

/// Stream that has joined. Its sinks run; its source is not started yet.
pub(crate) struct Joined {
    pub(crate) stream: StreamId,
    pub(crate) name: Arc<str>,
    pub(crate) lane: usize,
    /// Whether the source is live: it delivers at its own pace, whether its frames are read or not.
    pub(crate) is_live: bool,
}

/// Effect that the supervisor wants carried out.
pub(crate) enum Effect<P> {
    /// Prepare the change to this board, on a thread of its own.
    Prepare(Box<Board>, ChangeKind),
    /// Cancel that preparation. Its result is still reported: a failure, if it was cancelled in time.
    CancelPreparation,
    /// Apply a change at once, and report the result as an action.
    Apply(P),
    /// Answer the requests for a change.
    Answer(Vec<Reply>, Result<Reloaded, Faults>),
    /// Start a stream's source.
    StartSource(StreamId),
    /// Drop the source of a stream before it was started.
    DropSource(StreamId),
    /// Request the end of one stream.
    StopStream(StreamId),
    /// Request the end of all streams.
    StopAll,
    /// Let a lane end after its last stream.
    ReleaseLane(usize),
    /// End a lane after the batch that it executes.
    CloseLane(usize),
    /// Report an event.
    Emit(Event),
    /// Sample memory use, readers and progress, and report the progress to the watcher.
    Sample,
    /// Answer a request for a snapshot of the progress.
    Answered(Sender<Progress>),
    /// Keep the figures of a stream that has ended, and release everything else of it.
    Retire(StreamId, StreamEnd),
    /// Remove an ended stream that is no longer on the board.
    Forget(StreamId),
    /// End the run, in which everything has ended. The faults are those of lanes.
    Finish(Vec<Diagnosis>),
}

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// The board file was reloaded, or a lane has failed: streams may leave and join.
    Board,
    /// Other levels of models were chosen, for which no stream leaves.
    Levels,
}

/// Ends of a stream's source and sinks.
pub(crate) struct StreamEnd {
    pub(crate) source: Result<SourceEnd, Diagnosis>,
    pub(crate) sink: Result<SinkOutputs, Diagnosis>,
}

/// Reasons for which a run was ended early, for its summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndedBy {
    /// Whether a stop was requested.
    pub(crate) stop: bool,
    /// Whether the run was ended because no output had a reader any more.
    pub(crate) unread: bool,
}

/// Rules by which a run is supervised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Time between two checks of progress, memory and readers.
    pub(crate) sample_every: Duration,
    /// Whether streams of files may start again at their beginning when their lane is restarted.
    pub(crate) repeat_files: bool,
}
