use std::time::Duration;

use orinoco_core::Nanos;

use crate::{Frame, LaneTimes, ModelResult, StageTimes};

/// Frames of a batch, and what was found in them.
pub(super) struct Batch {
    pub(super) frames: Vec<Frame>,
    /// Results of the models for each frame so far.
    pub(super) found: Vec<Vec<ModelResult>>,
    /// When the lane took it.
    taken: Nanos,
    /// Times of its executions so far, all models together.
    preprocess: Duration,
    postprocess: Duration,
}

impl Batch {
    /// Returns a batch before its first step, which the lane took at `taken`.
    pub(super) fn new(frames: Vec<Frame>, taken: Nanos) -> Self {
        let found = frames.iter().map(|_| Vec::new()).collect();
        Self { frames, found, taken, preprocess: Duration::ZERO, postprocess: Duration::ZERO }
    }

    /// Adds the times of an execution, for which all of its frames waited.
    pub(super) fn add_times(&mut self, times: &StageTimes) {
        self.preprocess += times.preprocess.duration();
        self.postprocess += times.postprocess.duration();
    }

    /// Reverses the order of the frames, so that [`Self::pop`] returns the first of them first.
    pub(super) fn reverse(&mut self) {
        self.frames.reverse();
        self.found.reverse();
    }

    /// Removes the last frame, and returns it with its results.
    pub(super) fn pop(&mut self) -> Option<(Frame, Vec<ModelResult>)> {
        let (mut frame, found) = (self.frames.pop()?, self.found.pop()?);
        frame.lane_times = LaneTimes::new(self.taken.since(frame.arrived), self.preprocess, self.postprocess);
        Some((frame, found))
    }
}
