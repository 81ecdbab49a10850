//! Output heads: decode a model's raw tensors into results. A new head is one file here and one line in [`ALL`].

mod boxes;
mod candidates;
mod centernet;
mod classification;
mod detr;
mod embedding;
mod end2end;
mod fastestdet;
mod grid;
mod guess;
mod head;
mod kind;
mod listed;
mod nanodet;
mod raw;
mod segmentation;
mod shapes;
mod ssd;
mod yolov5;
mod yolov8;
mod yolox;

pub use boxes::{BoxForm, BoxUnit};
pub use classification::KIND as CLASSIFICATION;
pub use head::{Head, Output};
pub use kind::{
    Build, Guess, GuessModel, HeadDescriptor, HeadKind, HeadResultKind, HeadSpec, KeypointShape, OutputForm,
};
pub use raw::KIND as RAW;
pub use segmentation::KIND as SEGMENTATION;

use orinoco_core::{Choice, Dim, TensorDesc};

use crate::InputSpec;
use candidates::{add, best, is_candidate, labels_above, probability, sigmoid, suppress_as};
use grid::{Cell, cells};
use shapes::{check_axes, check_shape, find_output, fixed_after_batch, only};

/// All heads. Guesses try them in this order, with the most specific output shapes first.
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

impl Choice for HeadKind {
    const ALL: &'static [Self] = ALL;

    fn name(self) -> &'static str {
        self.0.name
    }
}

/// Builds the head of `spec`, or returns the reason why the outputs do not fit.
pub fn build(spec: &HeadSpec, input: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    (spec.kind.build)(spec, input, outputs)
}

/// Checks that the first axis of every output of a run is the batch: a graph may accept any batch size, but reshape to
/// one that was written into it. Some heads accept outputs without that axis for a single image.
pub fn check_batch(kind: HeadKind, outputs: &[TensorDesc], batch: usize) -> Result<(), String> {
    let is_whole = batch == 1 && (kind.takes_whole)(outputs);
    match outputs.iter().find(|output| output.shape.first() != Some(&Dim::Fixed(batch))) {
        Some(odd) if !is_whole => {
            Err(format!("its output is {odd} for a batch of {batch}, which has to be the first axis"))
        }
        _ => Ok(()),
    }
}

/// Returns the guess of the first head that the outputs may belong to. There always is one, because `raw` accepts any
/// outputs.
pub fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    ALL.iter().find_map(|kind| (kind.guess)(input, outputs))
}

#[cfg(test)]
pub(crate) mod tests;
