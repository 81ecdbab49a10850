use std::time::Duration;

use orinoco_core::Nanos;

use super::progress::BatchProgress;
use crate::{Frame, LaneTimes, ModelResult, StageTimes};

/// A batch on its way through the steps of its group.
pub(super) struct Batch {
    pub(super) group: usize,
    pub(super) frames: Vec<Frame>,
    /// Number of each frame in its stream.
    pub(super) numbers: Vec<u64>,
    /// Results of the models for each frame so far.
    pub(super) found: Vec<Vec<ModelResult>>,
    pub(super) progress: BatchProgress,
    /// When the lane took it.
    taken: Nanos,
    /// Times of its executions so far, all models together.
    preprocess: Duration,
    postprocess: Duration,
}

impl Batch {
    /// Returns a batch before its first step, which the lane took at `taken`.
    pub(super) fn new(group: usize, frames: Vec<Frame>, numbers: Vec<u64>, taken: Nanos) -> Self {
        let found = frames.iter().map(|_| Vec::new()).collect();
        Self {
            group,
            frames,
            numbers,
            found,
            progress: BatchProgress::default(),
            taken,
            preprocess: Duration::ZERO,
            postprocess: Duration::ZERO,
        }
    }

    /// Adds the times of an execution, for which all of its frames waited.
    pub(super) fn add_times(&mut self, times: &StageTimes) {
        self.preprocess += times.preprocess.duration();
        self.postprocess += times.postprocess.duration();
    }

    /// Reverses the order of the frames, so that [`Self::pop`] returns the first of them first.
    pub(super) fn reverse(&mut self) {
        self.frames.reverse();
        self.numbers.reverse();
        self.found.reverse();
    }

    /// Removes the last frame, and returns it with its results and its number in its stream.
    pub(super) fn pop(&mut self) -> Option<(Frame, Vec<ModelResult>, u64)> {
        let (found, number) = (self.found.pop()?, self.numbers.pop()?);
        let mut frame = self.frames.pop()?;
        frame.lane_times = LaneTimes::new(self.taken.since(frame.arrived), self.preprocess, self.postprocess);
        Some((frame, found, number))
    }
}
