//! State of streams, lanes and changes in a supervisor.

use std::collections::VecDeque;
use std::sync::Arc;

use orinoco_board::{Board, ChosenLevels};
use orinoco_core::{Diagnosis, Nanos, StreamId};
use orinoco_pipeline::{SinkOutputs, SourceEnd};

use crate::reloaded::{Reloaded, Reply};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Streams run and may join.
    Running,
    /// All streams are ending, and no other may join.
    Draining,
    /// Lanes and sinks have ended; sources must end by this time.
    Closing(Nanos),
    Over,
}

pub(super) struct Stream {
    pub(super) name: Arc<str>,
    pub(super) lane: usize,
    pub(super) is_live: bool,
    /// Whether the stream was asked to leave.
    pub(super) left: bool,
    pub(super) source: Source,
    pub(super) sink: Option<Result<SinkOutputs, Diagnosis>>,
    pub(super) retired: bool,
}

pub(super) enum Source {
    /// Waits until the source of the stream `before` has ended, at the latest until `until`.
    Waits {
        before: StreamId,
        until: Nanos,
    },
    Runs,
    /// Has ended because its lane accepts no more frames. The lane reports its end later, and decides what happens to the
    /// stream.
    Refused,
    Ended(Result<SourceEnd, Diagnosis>),
    /// Has ended, and its figures were handed over.
    Retired,
}

#[derive(Default)]
pub(super) struct Lane {
    pub(super) runs: bool,
    /// Times of its latest restarts.
    pub(super) restarts: VecDeque<Nanos>,
}

/// Change that is being prepared or applied.
pub(super) struct Change {
    /// Wanted board; `None` for the running one, of which streams are started again or levels of models change.
    pub(super) board: Option<Board>,
    pub(super) replies: Vec<Reply>,
    /// Replies of earlier changes that were applied, except for streams that missed their lane and that this change starts.
    pub(super) earlier: Vec<Reply>,
    pub(super) attempt: u32,
    pub(super) done: Reloaded,
    /// Faults of the lanes that the change is to restart.
    pub(super) restarts: Vec<Diagnosis>,
    /// Levels of models that are chosen with the change; `None` if those before it stay.
    pub(super) levels: Option<ChosenLevels>,
    /// Whether its preparation was cancelled, so that a lane is restarted first.
    pub(super) is_cancelled: bool,
    /// Whether that happened before. It happens once only: a lane that fails again and again would hold up the very change that may
    /// correct it.
    pub(super) was_put_off: bool,
}

/// Levels of models that are wanted.
pub(super) struct NextLevels {
    pub(super) levels: ChosenLevels,
    pub(super) reply: Reply,
    /// As of a [`Change`].
    pub(super) was_put_off: bool,
}

pub(super) struct Next {
    /// Wanted board; `None` for the running one, if that has lost streams.
    pub(super) board: Option<Board>,
    pub(super) replies: Vec<Reply>,
    /// As of a [`Change`].
    pub(super) earlier: Vec<Reply>,
    pub(super) restarts: Vec<Diagnosis>,
    /// Whether these lanes could not be restarted on the running board, so that it remains to try the wanted one.
    pub(super) restart_failed: bool,
    /// As of a [`Change`].
    pub(super) was_put_off: bool,
    /// Result so far of a change that is continued by this one.
    pub(super) done: Reloaded,
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

impl Change {
    /// Whether somebody waits for its result: it is not only to restart lanes.
    pub(super) fn was_asked(&self) -> bool {
        !self.replies.is_empty() || !self.earlier.is_empty()
    }

    /// Returns all replies, those of the oldest request first.
    pub(super) fn into_replies(self) -> Vec<Reply> {
        self.earlier.into_iter().chain(self.replies).collect()
    }
}

impl From<Next> for Change {
    fn from(next: Next) -> Self {
        let Next { board, replies, earlier, restarts, done, was_put_off, .. } = next;
        let (attempt, levels, is_cancelled) = (1, None, false);
        Self { board, replies, earlier, attempt, done, restarts, levels, is_cancelled, was_put_off }
    }
}

impl Next {
    /// Wants the running board again.
    pub(super) fn again() -> Self {
        let (replies, earlier, restarts) = (Vec::new(), Vec::new(), Vec::new());
        let done = Reloaded::default();
        let (restart_failed, was_put_off) = (false, false);
        Self { board: None, replies, earlier, restarts, restart_failed, was_put_off, done }
    }

    /// Takes the change to make first: lanes that have failed are restarted on the running board, because preparing
    /// another one may take minutes. Also returns what is still wanted after it.
    pub(super) fn split(self) -> (Self, Option<Self>) {
        if self.board.is_none() || self.restarts.is_empty() || self.restart_failed {
            return (self, None);
        }
        let Self { board, replies, earlier, restarts, done, was_put_off, .. } = self;
        let later = Self { board, replies, was_put_off, ..Self::again() };
        (Self { earlier, restarts, done, ..Self::again() }, Some(later))
    }

    /// Goes on with a change that was at work. Only then is there an earlier change to go on with.
    pub(super) fn go_on_with(&mut self, mut change: Change) {
        if change.attempt > 1 {
            // It was applied, except for the streams that missed their lane.
            change.earlier.append(&mut change.replies);
        }
        // The newest board counts.
        self.board = self.board.take().or(change.board);
        self.replies.splice(..0, change.replies);
        (self.earlier, self.done) = (change.earlier, change.done);
        self.restarts.splice(..0, change.restarts);
    }
}
