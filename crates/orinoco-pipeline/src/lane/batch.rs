use std::time::Duration;

use orinoco_core::Nanos;

use crate::{Frame, LaneTimes, ModelResult, StageTimes};

/// A batch on its way through the steps of its group.
pub(super) struct Batch {
    pub(super) group: usize,
    pub(super) frames: Vec<Frame>,
    /// Number of each frame in its stream.
    pub(super) numbers: Vec<u64>,
    /// Results of the models for each frame so far.
    pub(super) found: Vec<Vec<ModelResult>>,
    /// Index of the step at work.
    pub(super) step: usize,
    /// Inputs of that step that are done.
    pub(super) inputs_done: usize,
    /// Inference interval with which that step began. The lane's may change while the step is suspended.
    pub(super) interval: u32,
    /// Set once a step of it was suspended.
    pub(super) suspended: Option<Suspended>,
    /// When the lane took it.
    taken: Nanos,
    /// Times of its executions so far, all models together.
    preprocess: Duration,
    postprocess: Duration,
}

/// The latest suspension of a batch.
#[derive(Clone, Copy)]
pub(super) struct Suspended {
    /// Time of the batch's first suspension.
    pub(super) first: Nanos,
    /// Time of this one.
    pub(super) since: Nanos,
    /// Inputs that wait for the answer.
    pub(super) inputs: usize,
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
            step: 0,
            inputs_done: 0,
            interval: 1,
            suspended: None,
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
