//! What a supervisor takes, and what it has done.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use orinoco_board::Board;
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, StreamId};
use orinoco_pipeline::{SinkOutputs, SourceEnd};
use orinoco_telemetry::Event;

use crate::progress::Progress;
use crate::reloaded::{Reloaded, Reply};

/// All that can happen to a run. `P` is a prepared change.
pub(crate) enum Action<P> {
    /// The thread of a stream's source has ended, or panicked.
    SourceEnded(StreamId, Result<SourceEnd, Diagnosis>),
    /// The thread of a stream's sinks has ended, or panicked.
    SinkEnded(StreamId, Result<SinkOutputs, Diagnosis>),
    /// The thread of a lane has ended, or panicked.
    LaneEnded(usize, Result<(), Diagnosis>),
    /// Another board is wanted.
    Reload(Board, Reply),
    /// A change was prepared, or cannot be.
    Prepared(Result<P, Faults>),
    /// A prepared change was applied.
    Applied(Applied),
    /// Somebody wants to know how far the run is.
    Snapshot(Sender<Progress>),
    /// Nobody reads any of the outputs.
    Unread,
    /// The end is wanted.
    Stop,
    /// A deadline has come.
    Tick,
}

/// What became of a prepared change.
#[derive(Default)]
pub(crate) struct Applied {
    /// The board that is wanted from now on.
    pub(crate) board: Option<Board>,
    pub(crate) joined: Vec<Joined>,
    pub(crate) left: Vec<StreamId>,
    /// Lanes that were started for it.
    pub(crate) lanes: Vec<usize>,
    /// Why streams could not join.
    pub(crate) faults: Vec<Diagnosis>,
    /// Why streams could not join that can when the change is prepared once more.
    pub(crate) missed: Vec<Diagnosis>,
}

/// A stream that joined. Its sinks run; its source waits to be started.
pub(crate) struct Joined {
    pub(crate) stream: StreamId,
    pub(crate) name: Arc<str>,
    pub(crate) lane: usize,
    /// Its source goes on whether or not anybody takes its frames.
    pub(crate) is_live: bool,
}

/// What has to be done.
pub(crate) enum Effect<P> {
    /// Prepare the change to this board, on another thread.
    Prepare(Board),
    /// Apply a change, at once, and say what became of it.
    Apply(P),
    /// Answer those who wanted a change.
    Answer(Vec<Reply>, Result<Reloaded, Faults>),
    /// Start a stream's source.
    StartSource(StreamId),
    /// Give up a stream's source that was not started.
    DropSource(StreamId),
    /// Request the end of one stream.
    StopStream(StreamId),
    /// Request the end of all streams.
    StopAll,
    /// Let a lane end with its last stream.
    ReleaseLane(usize),
    /// End a lane after the batch at work.
    CloseLane(usize),
    /// Report an event.
    Emit(Event),
    /// Look after memory and readers, and tell who watches how far the run is.
    Look,
    /// Answer a request for a snapshot.
    Answered(Sender<Progress>),
    /// A stream has ended: keep its figures, and give up the rest.
    Retire(StreamId, StreamEnd),
    /// A stream that has ended is not on the board any more.
    Forget(StreamId),
    /// Everything has ended. The faults are those of lanes.
    Finish(Vec<Diagnosis>),
}

/// How a stream ended.
pub(crate) struct StreamEnd {
    pub(crate) source: Result<SourceEnd, Diagnosis>,
    pub(crate) sink: Result<SinkOutputs, Diagnosis>,
}

/// A run is over, and how it is to be summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndedBy {
    /// A stop was requested.
    pub(crate) stop: bool,
    /// It was ended because nobody read any of its outputs.
    pub(crate) unread: bool,
}

/// How a run is supervised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Time between two looks.
    pub(crate) look_every: Duration,
    /// Whether streams of files may begin again from their beginning when their lane is restarted.
    pub(crate) repeat_files: bool,
}
