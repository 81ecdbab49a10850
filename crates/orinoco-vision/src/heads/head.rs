//! What reads a model's outputs.

use orinoco_core::InferenceResult;

use crate::Mapping;

/// One output tensor, f32, row-major, batch first.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Its shape.
    pub shape: &'a [usize],
    /// Its values.
    pub data: &'a [f32],
    /// Pictures of the batch. [`check_batch`](super::check_batch) says whether the first axis is that.
    pub batch: usize,
}

impl<'a> Output<'a> {
    /// The values of one picture of the batch.
    pub fn item(&self, index: usize) -> &'a [f32] {
        let per_item = self.data.len().checked_div(self.batch).unwrap_or(0);
        &self.data[index * per_item..][..per_item]
    }
}

/// Reads one model's outputs. Made for known shapes, so decoding cannot fail.
pub trait Head: Send {
    /// Reads picture `item` of the batch into `found`, which is empty: detections in source pixels, best first. What is not
    /// a finite number is left out and counted (`not_finite`), so that everything in `found` but raw tensors is one.
    fn decode(&mut self, outputs: &[Output<'_>], item: usize, mapping: &Mapping, found: &mut InferenceResult);
}
