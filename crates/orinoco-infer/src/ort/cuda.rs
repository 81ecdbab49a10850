//! ONNX Runtime's CUDA provider, and sessions whose tensors stay on the GPU.
#![expect(unsafe_code, reason = "tensors of ONNX Runtime on the GPU are raw memory")]

use std::path::PathBuf;
use std::sync::Arc;

use ::ort::Error;
use ::ort::ep::cuda::ConvAlgorithmSearch;
use ::ort::ep::{ArbitrarilyConfigurableExecutionProvider, ArenaExtendStrategy, CUDA, ExecutionProvider};
use ::ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ::ort::session::builder::SessionBuilder;
use ::ort::session::{IoBinding, RunOptions, Session as OrtSession};
use ::ort::value::DynTensor;
use orinoco_core::{Diagnosis, TensorDesc};
use orinoco_cuda::{DevicePool, Span};

use super::device_memory::{DevicePlace, functions, inside};
use super::{OrtModel, Tensors, describe, essence, fixed_shape, type_of};
use crate::engine::{DeviceSession, DeviceTensor, EngineInfo, run_failed, unsupported};

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
/// CPU and back. Their memory there comes from us, for tensors on the host if `shared_scratch`.
pub(super) fn choose(
    builder: SessionBuilder,
    memory: Tensors,
    shared_scratch: bool,
) -> Result<SessionBuilder, Error> {
    let is_ours = match memory {
        Tensors::Host => shared_scratch,
        Tensors::Device(memory) => memory != Memory::Its,
    };
    let mut provider = CUDA::default()
        .with_device_id(DEVICE)
        .with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested)
        // Trying every algorithm takes minutes on a small board, and memory that is not planned for.
        .with_conv_algorithm_search(ConvAlgorithmSearch::Heuristic)
        // The graph says how exact the numbers are.
        .with_tf32(false)
        // Its own graph needs tensors that stay where they are, and memory that is there already.
        .with_cuda_graph(matches!(memory, Tensors::Device(Memory::Its | Memory::Ours)));
    if is_ours {
        let (alloc, free) = functions();
        provider = provider.with_arbitrary_config("gpu_external_alloc", alloc);
        provider = provider.with_arbitrary_config("gpu_external_free", free);
    }
    let builder = builder.with_execution_providers([provider.build().error_on_failure()])?;
    Ok(builder.with_config_entry("session.disable_cpu_ep_fallback", "1")?)
}

/// What a session whose tensors are on the GPU computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// ONNX Runtime's own arena.
    Its,
    /// A pool of ours.
    Ours,
    /// A pool of ours that measures.
    Measured,
}

impl Memory {
    pub(super) fn of(pool: Option<(&Arc<DevicePool>, &str)>) -> Self {
        match pool {
            None => Self::Its,
            Some((pool, _)) if pool.is_measuring() => Self::Measured,
            Some(_) => Self::Ours,
        }
    }
}

/// A session bound to tensors on the GPU.
pub(super) struct CudaSession {
    session: OrtSession,
    binding: IoBinding,
    inputs: Vec<DeviceTensor>,
    outputs: Vec<DeviceTensor>,
    place: Option<DevicePlace>,
    file: PathBuf,
}

impl CudaSession {
    /// Binds every tensor, and runs once; `None` where an output has no fixed shape. It is going to compute in `pool`, on the
    /// account of the model's name, if `session` takes its memory from us.
    pub(super) fn bind(
        session: OrtSession,
        model: &OrtModel,
        shapes: &[Vec<usize>],
        pool: Option<(&Arc<DevicePool>, &str)>,
    ) -> Result<Option<Self>, Diagnosis> {
        let bound = Self::bind_tensors(session, model, shapes);
        let bound = bound.map_err(|why| run_failed(&model.file, essence(why.message())))?;
        let Some(mut bound) = bound else { return Ok(None) };
        bound.run_first(pool)?;
        bound.place = pool.map(|(pool, name)| DevicePlace::new(pool, name));
        Ok(Some(bound))
    }

    fn bind_tensors(
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
        Ok(Some(Self { session, binding, inputs, outputs, place: None, file: model.file.clone() }))
    }

    /// A run beside whatever the lane computes meanwhile, so in a pool of its own: one that is going to share a lane's pool
    /// must keep nothing there from run to run. It is not captured, because ONNX Runtime keeps a graph for the thread that
    /// captured it, and this is not the lane's.
    fn run_first(&mut self, pool: Option<(&Arc<DevicePool>, &str)>) -> Result<(), Diagnosis> {
        const NOT_CAPTURED: &str = "-1";
        let Self { session, binding, file, .. } = self;
        let mut run = || -> Result<(), Error> {
            let mut options = RunOptions::new()?;
            options.set("gpu_graph_id", NOT_CAPTURED)?;
            session.run_binding_with_options(binding, &options).map(drop)
        };
        let failed = |why: Error| run_failed(file, essence(why.message()));
        let Some((lane, name)) = pool else { return run().map_err(failed) };
        let own = Arc::new(DevicePool::measuring(lane.device()));
        inside(Some(&DevicePlace::new(&own, name)), &mut run).map_err(failed)?;
        match own.usage() {
            usage if usage.held == 0 => Ok(()),
            usage => {
                let bytes = usage.in_use_bytes;
                let cause = format!("it keeps {bytes} bytes of the GPU's memory from run to run");
                Err(unsupported(file, &format!("{cause}, and the memory planned for it is shared")))
            }
        }
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
        let Self { session, binding, place, .. } = self;
        let ran = inside(place.as_ref(), || session.run_binding(binding).map(drop));
        ran.map_err(|why| run_failed(&self.file, essence(why.message())))
    }
}
