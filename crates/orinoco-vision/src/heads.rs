//! Output heads: a model's raw tensors into findings. A new head is a file in this folder and a line in the list
//! (docs/extending.md).

mod boxes;
mod candidates;
mod grid;
mod guess;
mod head;
mod kind;
mod samples;
mod shapes;

pub use boxes::{BoxForm, BoxUnit};
pub use classification::KIND as CLASSIFICATION;
pub use head::{Head, Output};
pub use kind::{
    Build, Guess, GuessModel, HeadDescriptor, HeadKind, HeadResultKind, HeadSpec, KeypointShape, OutputForm,
};
pub use raw::KIND as RAW;
pub use samples::{HeadSamples, SampleModel, SampleShape, SampleValues};
pub use segmentation::KIND as SEGMENTATION;

use orinoco_core::{Choice, Dim, TensorDesc};

use crate::InputSpec;
use candidates::{add, best, is_candidate, labels_above, probability, sigmoid, suppress_as};
use grid::{Cell, cells};
use shapes::{check_axes, check_shape, find_output, fixed_after_batch, only};

/// Declares each head's module, and lists the kinds that it has.
macro_rules! heads {
    ($(mod $module:ident: $($kind:ident),+;)*) => {
        $(mod $module;)*

        /// All heads. Guesses try them in this order, with the most specific output shapes first.
        pub const ALL: &[HeadKind] = &[$($($module::$kind),+),*];
    };
}

heads! {
    mod centernet: KIND;
    mod yolox: KIND;
    mod nanodet: KIND;
    mod yolov8: SEGMENT, POSE, ORIENTED, DETECT;
    mod yolov5: KIND;
    mod end2end: KIND;
    mod listed: KIND;
    mod detr: KIND;
    mod ssd: KIND;
    mod fastestdet: KIND;
    mod classification: KIND;
    mod embedding: KIND;
    mod segmentation: KIND;
    mod raw: KIND;
}

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
            Err(format!("its output is {odd}; the first axis must be the batch ({batch})"))
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
