//! Output heads: a model's raw tensors into findings. A new head is one file here and one line in [`ALL`].

mod candidates;
mod centernet;
mod classification;
mod detr;
mod embedding;
mod end2end;
mod fastestdet;
mod grid;
mod guess;
mod kind;
mod listed;
mod nanodet;
mod raw;
mod segmentation;
mod shapes;
mod spec;
mod ssd;
mod yolov5;
mod yolov8;
mod yolox;

pub use classification::KIND as CLASSIFICATION;
pub use guess::{Guess, KeypointShape};
pub use kind::{Build, Finds, GuessModel, HeadDescriptor, HeadKind, OutputForm};
pub use raw::KIND as RAW;
pub use segmentation::KIND as SEGMENTATION;
pub use spec::{BoxForm, BoxUnit, HeadSpec};

use orinoco_core::{Dim, Findings, TensorDesc};

use crate::{InputSpec, Mapping};
use candidates::{add, best, is_candidate, labels_above, probability, sigmoid, suppress_as};
use grid::{Cell, cells};
use shapes::{check_axes, check_shape, find_output, fixed_after_batch, only};

/// One output tensor, f32, row-major, batch first.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Its shape.
    pub shape: &'a [usize],
    /// Its values.
    pub data: &'a [f32],
    /// Pictures of the batch. [`check_batch`] says whether the first axis is that.
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
    fn decode(&mut self, outputs: &[Output<'_>], item: usize, mapping: &Mapping, found: &mut Findings);
}

/// Every head. Guesses are tried in this order: the shapes that say most come first.
pub const ALL: &[HeadKind] = &[
    centernet::KIND,
    yolox::KIND,
    nanodet::KIND,
    yolov8::SEGMENT,
    yolov8::POSE,
    yolov8::ORIENTED,
    yolov8::DETECT,
    yolov5::KIND,
    end2end::KIND,
    listed::KIND,
    detr::KIND,
    ssd::KIND,
    fastestdet::KIND,
    classification::KIND,
    embedding::KIND,
    segmentation::KIND,
    raw::KIND,
];

/// Makes the head of `spec`, or returns what does not fit.
pub fn build(spec: &HeadSpec, input: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    (spec.kind.build)(spec, input, outputs)
}

/// Checks that the first axis of every output, as a run gave it, is the batch: a graph may take any batch, and reshape to
/// one that was written into it. Some heads read outputs without that axis, if there is a single picture.
pub fn check_batch(kind: HeadKind, outputs: &[TensorDesc], batch: usize) -> Result<(), String> {
    let is_whole = batch == 1 && (kind.takes_whole)(outputs);
    match outputs.iter().find(|output| output.shape.first() != Some(&Dim::Fixed(batch))) {
        Some(odd) if !is_whole => {
            Err(format!("its output is {odd} for a batch of {batch}, which has to be the first axis"))
        }
        _ => Ok(()),
    }
}

/// What the first head that the outputs look like makes of the model. There always is one: `raw` takes anything.
pub fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    ALL.iter().find_map(|kind| (kind.guess)(input, outputs))
}

#[cfg(test)]
pub(crate) mod tests;
