//! What a supervisor knows of streams, lanes and changes.

use std::collections::VecDeque;
use std::sync::Arc;

use orinoco_board::Board;
use orinoco_core::{Diagnosis, Nanos, StreamId};
use orinoco_pipeline::{SinkOutputs, SourceEnd};

use crate::reloaded::{Reloaded, Reply};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Streams run and may join.
    Running,
    /// The last stream is on its way out: no other may join.
    Draining,
    /// Lanes and sinks have ended; sources have until this time.
    Closing(Nanos),
    Over,
}

pub(super) struct Stream {
    pub(super) name: Arc<str>,
    pub(super) lane: usize,
    pub(super) is_live: bool,
    /// It was asked to leave.
    pub(super) left: bool,
    pub(super) source: Source,
    pub(super) sink: Option<Result<SinkOutputs, Diagnosis>>,
    pub(super) retired: bool,
}

pub(super) enum Source {
    /// It is to be started when the source of another stream has ended, at the latest at that time.
    Waits {
        before: StreamId,
        until: Nanos,
    },
    Runs,
    Ended(Result<SourceEnd, Diagnosis>),
    /// Ended, and taken over by who keeps the figures.
    Retired,
}

#[derive(Default)]
pub(super) struct Lane {
    pub(super) runs: bool,
    /// Its latest restarts.
    pub(super) restarts: VecDeque<Nanos>,
}

/// A change that is being prepared or applied.
pub(super) struct Change {
    pub(super) replies: Vec<Reply>,
    pub(super) attempt: u32,
    pub(super) done: Reloaded,
    /// Why lanes failed that it is to restart.
    pub(super) restarts: Vec<Diagnosis>,
}

pub(super) struct Next {
    /// The board; `None` for the one that runs, where that lost streams.
    pub(super) board: Option<Board>,
    pub(super) replies: Vec<Reply>,
    pub(super) restarts: Vec<Diagnosis>,
}

impl Source {
    pub(super) fn has_ended(&self) -> bool {
        matches!(self, Self::Ended(_) | Self::Retired)
    }
}

impl Stream {
    pub(super) fn has_ended(&self) -> bool {
        self.retired || (self.source.has_ended() && self.sink.is_some())
    }
}

impl Next {
    /// The board that runs, once more.
    pub(super) fn again() -> Self {
        Self { board: None, replies: Vec::new(), restarts: Vec::new() }
    }
}
