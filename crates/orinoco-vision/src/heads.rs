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

pub use guess::Guess;
pub use spec::{BoxForm, BoxUnit, HeadSpec};
pub use yolox::STRIDES as YOLOX_STRIDES;

use orinoco_core::{Dim, Findings, TensorDesc};

use crate::{InputSpec, Mapping, Rounding};
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

/// Makes a head for a model with these outputs, or says what does not fit.
pub type Build = fn(&HeadSpec, &InputSpec, &[TensorDesc]) -> Result<Box<dyn Head>, String>;

/// One kind of head.
pub struct HeadKind {
    /// Its name in model files.
    pub name: &'static str,
    /// Makes one.
    pub build: Build,
    /// What a model without a description would be if its outputs look like this head's. `input` is what its graph says:
    /// size, layout and channels.
    pub guess: fn(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess>,
}

/// Every head. Guesses are tried in this order: the shapes that say most come first.
pub static ALL: &[HeadKind] = &[
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

/// The names of all heads.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|kind| kind.name).collect()
}

/// Makes the head that `spec` names, or says what does not fit.
pub fn build(spec: &HeadSpec, input: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    let kind = ALL.iter().find(|kind| kind.name == spec.kind);
    let kind =
        kind.ok_or_else(|| format!("`{}` is not a head; use one of {}", spec.kind, names().join(", ")))?;
    (kind.build)(spec, input, outputs)
}

/// Checks that the first axis of every output, as a run gave it, is the batch: a graph may take any batch, and reshape to
/// one that was written into it. Of a single picture `raw` takes any tensors, and `listed` lists without that axis.
pub fn check_batch(kind: &str, outputs: &[TensorDesc], batch: usize) -> Result<(), String> {
    let takes_whole = kind == raw::KIND.name || (kind == listed::KIND.name && listed::is_flat(outputs));
    let is_whole = takes_whole && batch == 1;
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

/// Whether findings of this head name classes, so that its description must.
pub fn has_classes(kind: &str) -> bool {
    ![embedding::KIND.name, raw::KIND.name].contains(&kind)
}

/// Whether this head finds boxes.
pub fn has_boxes(kind: &str) -> bool {
    has_classes(kind) && ![classification::KIND.name, segmentation::KIND.name].contains(&kind)
}

/// How the trainers of this head's models round the sides of a letterboxed picture (docs/model-files.md has the table);
/// those that never letterbox cut the exact product.
pub fn rounding(kind: &str) -> Rounding {
    let ultralytics = [
        yolov5::KIND.name,
        yolov8::DETECT.name,
        yolov8::SEGMENT.name,
        yolov8::POSE.name,
        yolov8::ORIENTED.name,
        end2end::KIND.name,
    ];
    match kind {
        kind if ultralytics.contains(&kind) => Rounding::Nearest,
        kind if kind == yolox::KIND.name => Rounding::Down,
        _ => Rounding::Exact,
    }
}

#[cfg(test)]
pub(crate) mod tests;
