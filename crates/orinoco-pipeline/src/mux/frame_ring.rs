use std::collections::VecDeque;
use std::sync::Weak;
use std::time::Duration;

use orinoco_core::{DropPolicy, Nanos, StreamId};

use super::suspensions::SUSPENDED_FRAMES_MAX;
use crate::{Frame, Slot};

/// One stream's ring.
#[derive(Clone, Copy, Debug)]
pub struct StreamQueue {
    /// Streams of one group share batches, because their frames run through the same models.
    pub group: usize,
    /// Frames that may wait.
    pub frames_max: usize,
    /// Policy for frames that come while the ring is full.
    pub policy: DropPolicy,
    /// Longest time for which a frame waits for others to fill its batch.
    pub batch_wait: Duration,
}

/// The ring of one stream, and what of it is on its way.
pub(super) struct Ring {
    pub(super) stream: StreamId,
    pub(super) queue: StreamQueue,
    /// Maximum batch size, in frames; of a group's streams the largest counts.
    pub(super) batch_max: usize,
    pub(super) frames: VecDeque<(Nanos, Frame)>,
    /// Maximum number of frames that its source can have delivered and not got back, if that is known.
    pub(super) source_frames_max: Option<usize>,
    /// Frames that were handed out and wait for an answer, or behind frames that do.
    pub(super) held: usize,
    /// Slots of frames that were handed out, of a source whose maximum is known: the lane and the sinks hold some of them.
    pub(super) handed_out: Vec<Weak<Slot>>,
    /// Its source found it full, and has not been resumed.
    pub(super) is_blocking: bool,
    pub(super) open: bool,
    /// Turn at which it was last served.
    pub(super) served: u64,
}

impl Ring {
    /// Order of turns: the ring with the least goes first. Streams that were served at the same time go by the age of their
    /// frames.
    pub(super) fn turn(&self) -> (u64, Option<Nanos>) {
        (self.served, self.frames.front().map(|(came, _)| *came))
    }

    /// The most frames that can wait here. A source that has a slot for each of its frames delivers no more than are not held
    /// elsewhere, so that a batch must not wait for them.
    pub(super) fn frames_max(&self) -> usize {
        if !self.open {
            return self.frames.len();
        }
        let held = || self.handed_out.iter().filter(|slot| is_held(slot)).count();
        let left = self.source_frames_max.map(|max| max.saturating_sub(held()).max(self.frames.len()));
        self.queue.frames_max.min(left.unwrap_or(usize::MAX))
    }

    /// The most frames that can be handed out at a time: all, unless frames before them wait for an answer.
    pub(super) fn takeable(&self) -> usize {
        if self.held == 0 { usize::MAX } else { SUSPENDED_FRAMES_MAX.saturating_sub(self.held) }
    }

    /// Whether a frame can be handed out in addition to those of a batch.
    pub(super) fn is_takeable(&self, batch: &[Frame]) -> bool {
        self.held == 0
            || batch.iter().filter(|frame| frame.desc.stream == self.stream).count() < self.takeable()
    }

    pub(super) fn has_left(&self) -> bool {
        !self.open && self.frames.is_empty() && self.held == 0
    }

    /// A source that found the ring full goes on when no more frames than this wait. It then works on several in a row, and
    /// its caches are filled once for all of them. The next batch is there meanwhile.
    pub(super) fn frames_to_go_on(&self) -> usize {
        let StreamQueue { frames_max, .. } = self.queue;
        self.batch_max.max(frames_max / 4).min(frames_max - 1)
    }

    /// Time at which its oldest frame has waited long enough; none while it cannot be handed out.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        let takeable = self.frames.front().filter(|_| self.takeable() > 0);
        takeable.map(|(came, _)| *came + self.queue.batch_wait)
    }
}

/// Whether somebody still holds a frame in this slot.
pub(super) fn is_held(slot: &Weak<Slot>) -> bool {
    slot.strong_count() > 0
}
