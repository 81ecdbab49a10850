//! Image models on a GPU: upload of the frames, preprocessing, engine and head, bound once. The kernel launches are
//! captured in two CUDA graphs, one before the engine's call and one after it.

mod images;
mod intake;
mod readout;

use std::sync::Arc;

use orinoco_core::TensorDesc;
use orinoco_cuda::{Device, Element};
use orinoco_model::{Binding, Model};
use orinoco_vision::InputSpec;

pub(crate) use self::images::DeviceImages;
pub(crate) use self::readout::DeviceHead;
use self::readout::SharedParts;
use crate::bound::BoundModel;
use crate::engine::{Prepared, Session};
use crate::marks::StageMarks;
use crate::plan_error::PlanError;
use crate::states::States;
use crate::stream::ExecutionStream;

/// Whether the kernels support the preprocessing and the head of `model`: its only input is an image, in floating point
/// or plain bytes, and neither input nor outputs are quantised.
pub(crate) fn serves(model: &Model, binding: &Binding, inputs: &[TensorDesc]) -> bool {
    let plain = model.input_quantization.is_none() && model.output_quantization.is_none();
    let element = inputs[binding.input].element.and_then(Element::of);
    plain && model.input.image().is_some() && model.extra_inputs.is_empty() && element.is_some()
}

/// Binds `model`, which the kernels [support](serves), to a session of `prepared` on `device`.
pub(crate) fn bind(
    model: &Model,
    image: &InputSpec,
    binding: &Binding,
    prepared: &dyn Prepared,
    mut session: Box<dyn Session>,
    device: &Device,
) -> Result<BoundModel<DeviceImages, DeviceHead>, PlanError> {
    let file = model.file.clone();
    let input = session.input(binding.input).device().clone();
    let stream = ExecutionStream::Device(device.stream()?);
    let marks = Arc::new(StageMarks::new(device)?);
    let adapter = DeviceImages::new(image, &input, binding.batch, Arc::clone(&marks), device)?;
    let shared = SharedParts { table: adapter.table(), marks: Arc::clone(&marks) };
    let readout = DeviceHead::new(model, prepared, session.as_ref(), binding.batch, shared, device)?;
    Ok(BoundModel { file, adapter, session, states: States::default(), readout, stream, marks: Some(marks) })
}
