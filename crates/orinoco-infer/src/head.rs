//! Construction of a model's head for the outputs that its session has.

use orinoco_core::{Dim, TensorDesc};
use orinoco_model::Model;
use orinoco_vision::{Head, heads};

/// Maximum number of outputs that a head reads.
pub(crate) const OUTPUTS_MAX: usize = 16;

/// Builds the head of `model` for these outputs of a batch, or returns the reason why they do not fit.
pub(crate) fn build(model: &Model, outputs: &[TensorDesc], batch: usize) -> Result<Box<dyn Head>, String> {
    heads::check_batch(model.head.kind, outputs, batch)?;
    heads::build(&model.head, &model.head_input(), outputs)
}

/// Returns a declared output with the shape that it has at run time.
pub(crate) fn as_bound(declared: &TensorDesc, shape: &[usize]) -> TensorDesc {
    TensorDesc { shape: shape.iter().map(|size| Dim::Fixed(*size)).collect(), ..declared.clone() }
}

/// Returns the message for a model with more than [`OUTPUTS_MAX`] outputs.
pub(crate) fn too_many(outputs: usize) -> String {
    format!("it has {outputs} outputs, but at most {OUTPUTS_MAX} are supported")
}
