//! A model's head for the outputs that its session has.

use orinoco_core::{Dim, TensorDesc};
use orinoco_model::Model;
use orinoco_vision::{Head, heads};

/// No head reads more outputs than this.
pub(crate) const OUTPUTS_MAX: usize = 16;

/// The head of `model` for these outputs of a batch, or why they are not those of the head.
pub(crate) fn build(model: &Model, outputs: &[TensorDesc], batch: usize) -> Result<Box<dyn Head>, String> {
    heads::check_batch(model.head.kind, outputs, batch)?;
    heads::build(&model.head, &model.head_input(), outputs)
}

/// A declared output with the shape that it really has.
pub(crate) fn as_bound(declared: &TensorDesc, shape: &[usize]) -> TensorDesc {
    TensorDesc { shape: shape.iter().map(|size| Dim::Fixed(*size)).collect(), ..declared.clone() }
}

/// Too many outputs, in words.
pub(crate) fn too_many(outputs: usize) -> String {
    format!("it has {outputs} outputs, and at most {OUTPUTS_MAX} are supported")
}
