//! Decoder of a model's outputs.

use orinoco_core::InferenceResult;

use crate::Mapping;

/// Output tensor of a run: f32, row-major, batch first.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Shape of the tensor.
    pub shape: &'a [usize],
    /// Elements of the tensor.
    pub data: &'a [f32],
    /// Batch size, in images. [`check_batch`](super::check_batch) checks that the first axis is the batch.
    pub batch: usize,
}

impl<'a> Output<'a> {
    /// Returns the elements of one image of the batch.
    pub fn item(&self, index: usize) -> &'a [f32] {
        let per_item = self.data.len().checked_div(self.batch).unwrap_or(0);
        &self.data[index * per_item..][..per_item]
    }
}

/// Decodes the outputs of one model. It is built for known shapes, so decoding cannot fail.
pub trait Head: Send {
    /// Decodes image `item` of the batch into `found`, which is empty before: detections in source pixels, best first.
    /// Values that are not finite are left out and counted (`not_finite`), so everything in `found` except raw tensors
    /// is finite.
    fn decode(&mut self, outputs: &[Output<'_>], item: usize, mapping: &Mapping, found: &mut InferenceResult);
}
