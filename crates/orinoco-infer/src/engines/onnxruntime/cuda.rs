//! ONNX Runtime's CUDA provider, and sessions whose tensors stay on the GPU.
#![expect(unsafe_code, reason = "tensors of ONNX Runtime on the GPU are raw memory")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use orinoco_core::text::mebibytes;
use orinoco_core::{Diagnosis, TensorDesc};
use orinoco_cuda::{CaptureGuard, Device, DevicePool, Span};
use ort::Error;
use ort::ep::cuda::ConvAlgorithmSearch;
use ort::ep::{ArenaExtendStrategy, CUDA, ExecutionProvider};
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::builder::SessionBuilder;
use ort::session::{IoBinding, RunOptions, Session as OrtSession};
use ort::value::DynTensor;

use super::device_memory::{DevicePlace, inside, register};
use super::errors::why_not_run;
use super::library::Runtime;
use super::memory::{self, Place};
use super::tensors::{describe, fixed_shape, type_of};
use super::{OrtModel, Tensors};
use crate::engine::DeviceSession;
use crate::faults::{shorten, unsupported};
use crate::tensor::DeviceTensor;

/// Runs before a session may compute in a lane's pool: in its second, ONNX Runtime allocates by the pattern of the first.
const FIRST_RUNS: usize = 2;
/// Runs of a lane's thread in which ONNX Runtime may capture: it does so within the first, after a regular one, or in the
/// second, where the first was refused.
const CAPTURING_RUNS: usize = 2;
/// The GPU, as ONNX Runtime numbers it: [`crate::cuda::device`] is the same.
pub(super) const DEVICE: i32 = 0;

/// Whether there is a GPU, and a library that was built for one. If so, sessions may take their memory there from us.
pub(super) fn check(runtime: &Runtime) -> Result<(), String> {
    static REGISTERED: Mutex<bool> = Mutex::new(false);
    crate::cuda::device().map_err(|why| why.reason)?;
    if !CUDA::is_available().unwrap_or(false) {
        let library = runtime.info.library.as_ref();
        let library = library.map_or_else(|| "ONNX Runtime".into(), |path| path.display().to_string());
        let next = "name one that was as ort_library in the board file";
        return Err(format!("{library} was built without CUDA; {next}"));
    }
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*registered {
        register(&runtime.environment).map_err(|why| shorten(why.message()))?;
        *registered = true;
    }
    Ok(())
}

/// Lets ONNX Runtime allocate on this thread while another one captures. Said before every call that may.
pub(super) fn leave_captures_alone() {
    let open = crate::cuda::DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    // Where this fails, so does whatever the engine is called for.
    let _ = open.as_ref().map(|device| device.leave_captures_alone());
}

/// Held while ONNX Runtime may capture: what is freed meanwhile would end the capture.
fn capture_guard() -> Option<CaptureGuard> {
    let open = crate::cuda::DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    open.as_ref().map(Device::capture_guard)
}

/// Makes sessions compute on the GPU, and nowhere else: what an operator lacks there is an error, not a quiet copy to the
/// CPU and back. Their memory there comes from us, for tensors on the host if `shared_scratch`.
pub(super) fn choose(
    builder: SessionBuilder,
    memory: Tensors,
    shared_scratch: bool,
) -> Result<SessionBuilder, Error> {
    leave_captures_alone();
    let is_ours = match memory {
        Tensors::Host => shared_scratch,
        Tensors::Device(memory) => memory != Memory::Its,
    };
    let provider = CUDA::default()
        .with_device_id(DEVICE)
        .with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested)
        // Trying every algorithm takes minutes on a small board, and memory that is not planned for.
        .with_conv_algorithm_search(ConvAlgorithmSearch::Heuristic)
        // The graph says how exact the numbers are.
        .with_tf32(false)
        // Its own graph needs tensors that stay where they are, and memory that is there already.
        .with_cuda_graph(matches!(memory, Tensors::Device(Memory::Its | Memory::Ours)));
    let builder = if is_ours { builder.with_env_allocators()? } else { builder };
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
    /// Dropped after the session, which gives back what it has of it.
    place: Option<DevicePlace>,
    /// Runs in which ONNX Runtime may still capture.
    capturing_runs_left: usize,
    file: PathBuf,
}

impl CudaSession {
    /// Binds every tensor, and runs; `None` where an output has no fixed shape. It is going to compute in `pool`, on the
    /// account of the model's name, if `session` takes its memory from us.
    pub(super) fn bind(
        session: OrtSession,
        model: &OrtModel,
        shapes: &[Vec<usize>],
        pool: Option<(&Arc<DevicePool>, &str)>,
    ) -> Result<Option<Self>, Diagnosis> {
        let bound = memory::inside(&Place::System, || Self::bind_tensors(session, model, shapes));
        let bound = bound.map_err(|why| why_not_run(&model.file, &why))?;
        let Some(mut bound) = bound else { return Ok(None) };
        // Beside whatever the lane computes meanwhile, so in a pool of its own.
        let own = pool.map(|(pool, _)| Arc::new(DevicePool::measuring(pool.device())));
        bound.place = own.as_ref().map(|own| DevicePlace::new(own, &model.file.display().to_string()));
        bound.run_first()?;
        if let (Some(own), Some((lane, name))) = (own, pool) {
            bound.check_nothing_kept(&own)?;
            bound.place = Some(DevicePlace::new(lane, name));
        }
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
        Ok(Some(Self {
            session,
            binding,
            inputs,
            outputs,
            place: None,
            capturing_runs_left: CAPTURING_RUNS,
            file: model.file.clone(),
        }))
    }

    /// Runs that are not captured: ONNX Runtime keeps a graph for the thread that captured it, and this is not the lane's.
    fn run_first(&mut self) -> Result<(), Diagnosis> {
        const NOT_CAPTURED: &str = "-1";
        let Self { session, binding, place, .. } = self;
        let run = || -> Result<(), Error> {
            let mut options = RunOptions::new()?;
            options.set("gpu_graph_id", NOT_CAPTURED)?;
            for _ in 0..FIRST_RUNS {
                session.run_binding_with_options(binding, &options)?;
            }
            Ok(())
        };
        let ran = inside(place.as_ref(), || memory::inside(&Place::System, run));
        ran.map_err(|why| why_not_run(&self.file, &why))
    }

    /// One that is going to share a lane's pool must keep nothing there from run to run. That it computes in a pool of ours
    /// at all is checked too: a provider that does not ask would take memory which is in no plan.
    fn check_nothing_kept(&self, own: &DevicePool) -> Result<(), Diagnosis> {
        let usage = own.usage();
        if usage.allocations == 0 {
            let cause =
                "ONNX Runtime's CUDA provider does not take its memory from us, so it cannot be planned";
            return Err(unsupported(&self.file, cause));
        }
        if usage.held > 0 {
            let kept = mebibytes(usage.in_use_bytes as u64);
            let cause = format!("it keeps {kept} of the GPU's memory from run to run");
            let cause = format!("{cause}, and the memory planned for it is shared");
            return Err(unsupported(&self.file, &cause));
        }
        Ok(())
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
        leave_captures_alone();
        let _capturing = match self.capturing_runs_left.checked_sub(1) {
            Some(left) => {
                self.capturing_runs_left = left;
                capture_guard()
            }
            None => None,
        };
        let Self { session, binding, place, .. } = self;
        let run = || session.run_binding(binding).map(drop);
        let ran = inside(place.as_ref(), || memory::inside(&Place::System, run));
        ran.map_err(|why| why_not_run(&self.file, &why))
    }
}
