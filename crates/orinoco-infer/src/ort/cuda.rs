//! ONNX Runtime's CUDA provider, and sessions whose tensors stay on the GPU.
#![expect(unsafe_code, reason = "tensors of ONNX Runtime on the GPU are raw memory")]

use std::path::PathBuf;
use std::sync::Arc;

use ::ort::Error;
use ::ort::ep::cuda::ConvAlgorithmSearch;
use ::ort::ep::{ArenaExtendStrategy, CUDA, ExecutionProvider};
use ::ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ::ort::session::builder::SessionBuilder;
use ::ort::session::{IoBinding, Session as OrtSession};
use ::ort::value::DynTensor;
use orinoco_core::{Diagnosis, TensorDesc};
use orinoco_cuda::Span;

use super::{OrtModel, Tensors, describe, essence, fixed_shape, type_of};
use crate::engine::{DeviceSession, DeviceTensor, EngineInfo, run_failed};

/// The GPU, as ONNX Runtime numbers it: [`crate::cuda::device`] is the same.
const DEVICE: i32 = 0;

/// Whether there is a GPU, and a library that was built for one.
pub(super) fn check(info: &EngineInfo) -> Result<(), String> {
    crate::cuda::device().map_err(|why| why.reason)?;
    if CUDA::is_available().unwrap_or(false) {
        return Ok(());
    }
    let library =
        info.library.as_ref().map_or_else(|| "ONNX Runtime".into(), |path| path.display().to_string());
    Err(format!("{library} was built without CUDA; name one that was as ort_library in the board file"))
}

/// Makes sessions compute on the GPU, and nowhere else: what an operator lacks there is an error, not a quiet copy to the
/// CPU and back.
pub(super) fn choose(builder: SessionBuilder, memory: Tensors) -> Result<SessionBuilder, Error> {
    let provider = CUDA::default()
        .with_device_id(DEVICE)
        .with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested)
        // Trying every algorithm takes minutes on a small board, and memory that is not planned for.
        .with_conv_algorithm_search(ConvAlgorithmSearch::Heuristic)
        // The graph says how exact the numbers are.
        .with_tf32(false)
        // Its own graph needs tensors that stay where they are.
        .with_cuda_graph(memory == Tensors::Device);
    let builder = builder.with_execution_providers([provider.build().error_on_failure()])?;
    Ok(builder.with_config_entry("session.disable_cpu_ep_fallback", "1")?)
}

/// A session bound to tensors on the GPU.
pub(super) struct CudaSession {
    session: OrtSession,
    binding: IoBinding,
    inputs: Vec<DeviceTensor>,
    outputs: Vec<DeviceTensor>,
    file: PathBuf,
}

impl CudaSession {
    /// Binds every tensor; `None` where an output has no fixed shape.
    pub(super) fn bind(
        session: OrtSession,
        model: &OrtModel,
        shapes: &[Vec<usize>],
    ) -> Result<Option<Self>, Error> {
        let memory =
            MemoryInfo::new(AllocationDevice::CUDA, DEVICE, AllocatorType::Device, MemoryType::Default)?;
        let allocator = Allocator::new(&session, memory)?;
        let mut binding = session.create_binding()?;
        let mut inputs = Vec::with_capacity(shapes.len());
        for (input, shape) in model.inputs.iter().zip(shapes) {
            let tensor = DynTensor::new(&allocator, type_of(input)?, shape.as_slice())?;
            binding.bind_input(&input.name, &tensor)?;
            inputs.push(on_device(input, shape, tensor));
        }
        let mut outputs = Vec::with_capacity(model.outputs.len());
        for output in session.outputs().iter().map(describe) {
            let Some(shape) = fixed_shape(&output) else { return Ok(None) };
            let mut tensor = DynTensor::new(&allocator, type_of(&output)?, shape.as_slice())?;
            binding.bind_output(&output.name, &mut tensor)?;
            outputs.push(on_device(&output, &shape, tensor));
        }
        Ok(Some(Self { session, binding, inputs, outputs, file: model.file.clone() }))
    }
}

/// `tensor`, which ONNX Runtime allocated on the GPU, as kernels take it.
fn on_device(desc: &TensorDesc, shape: &[usize], tensor: DynTensor) -> DeviceTensor {
    let element = desc.element.expect("a binding has only known types");
    let bytes = shape.iter().product::<usize>() * element.bytes();
    let address = tensor.data_ptr() as u64;
    // SAFETY: the tensor has that many bytes in the GPU's memory, where they stay until it is dropped.
    let span = unsafe { Span::foreign(address, bytes, Some(Arc::new(tensor))) };
    DeviceTensor { shape: shape.to_vec(), element, span }
}

impl DeviceSession for CudaSession {
    fn inputs(&self) -> &[DeviceTensor] {
        &self.inputs
    }

    fn outputs(&self) -> &[DeviceTensor] {
        &self.outputs
    }

    fn run(&mut self) -> Result<(), Diagnosis> {
        let ran = self.session.run_binding(&self.binding).map(drop);
        ran.map_err(|why| run_failed(&self.file, essence(why.message())))
    }
}
