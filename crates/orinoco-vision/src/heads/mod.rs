//! Output heads: a model's raw tensors into findings. A new head is one file here and one line in [`ALL`].

mod centernet;
mod yolox;

use orinoco_core::{Detection, Dim, TensorDesc};

use crate::{InputSpec, Mapping};

/// How to read a model's outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadSpec {
    /// The head's name: one of [`names`].
    pub kind: String,
    /// Cell sizes in model pixels, finest first.
    pub strides: Vec<u32>,
    /// Number of classes.
    pub classes: usize,
    /// Findings below this are dropped.
    pub score_threshold: f32,
    /// Boxes of one class that overlap a better one by more than this are dropped.
    pub iou_threshold: f32,
    /// The most findings of one frame.
    pub detections_max: usize,
}

/// One output tensor, f32, row-major, batch first.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Its shape.
    pub shape: &'a [usize],
    /// Its values.
    pub data: &'a [f32],
}

impl<'a> Output<'a> {
    /// The values of one picture of the batch.
    pub fn item(&self, index: usize) -> &'a [f32] {
        let per_item = self.data.len() / self.shape[0];
        &self.data[index * per_item..][..per_item]
    }
}

/// Reads one model's outputs. Made for known shapes, so decoding cannot fail.
pub trait Head: Send {
    /// Reads picture `item` of the batch into `found`, which it clears first: boxes in source pixels, best first.
    fn decode(&mut self, outputs: &[Output<'_>], item: usize, mapping: &Mapping, found: &mut Vec<Detection>);
}

/// Makes a head for a model with these outputs, or says what does not fit.
pub type Build = fn(&HeadSpec, &InputSpec, &[TensorDesc]) -> Result<Box<dyn Head>, String>;

/// One kind of head.
pub struct HeadKind {
    /// Its name in model files.
    pub name: &'static str,
    /// Makes one.
    pub build: Build,
    /// What the spec would be if the outputs look like this head's, for a model without a description.
    pub guess: fn(width: u32, height: u32, outputs: &[TensorDesc]) -> Option<HeadSpec>,
}

/// Every head.
pub static ALL: &[HeadKind] = &[yolox::KIND, centernet::KIND];

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

/// The spec of the first head that the outputs look like.
pub fn guess(width: u32, height: u32, outputs: &[TensorDesc]) -> Option<HeadSpec> {
    ALL.iter().find_map(|kind| (kind.guess)(width, height, outputs))
}

/// The index of the output `name` of shape `[any, rest..]`, or what does not fit.
fn find_output(outputs: &[TensorDesc], name: &str, rest: &[usize]) -> Result<usize, String> {
    let found = outputs.iter().position(|output| output.name == name);
    let names = || outputs.iter().map(|o| o.name.as_str()).collect::<Vec<_>>().join(", ");
    let index = found.ok_or_else(|| format!("it has no output `{name}`; its outputs are {}", names()))?;
    check_shape(&outputs[index], rest)?;
    Ok(index)
}

/// Checks that `output` is `[any, rest..]`.
fn check_shape(output: &TensorDesc, rest: &[usize]) -> Result<(), String> {
    let axes = output.shape.get(1..).unwrap_or_default();
    if axes.len() == rest.len() && axes.iter().zip(rest).all(|(axis, size)| axis.accepts(*size)) {
        return Ok(());
    }
    let wanted: Vec<Dim> = std::iter::once(Dim::Dynamic).chain(rest.iter().map(|n| Dim::Fixed(*n))).collect();
    Err(format!(
        "its output is {output}, where the description makes it {}",
        orinoco_core::shape_text(&wanted)
    ))
}
