use orinoco_core::Nanos;

use crate::{Frame, ModelResult};

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
    /// Set once a step of it was suspended.
    pub(super) suspended: Option<Suspended>,
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
    /// Returns a batch before its first step.
    pub(super) fn new(group: usize, frames: Vec<Frame>, numbers: Vec<u64>) -> Self {
        let found = frames.iter().map(|_| Vec::new()).collect();
        Self { group, frames, numbers, found, step: 0, inputs_done: 0, suspended: None }
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
        Some((self.frames.pop()?, found, number))
    }
}
