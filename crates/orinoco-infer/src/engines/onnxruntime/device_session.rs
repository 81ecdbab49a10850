//! Sessions whose tensors stay on the GPU.
#![expect(unsafe_code, reason = "tensors of ONNX Runtime on the GPU are raw memory")]

use std::sync::Arc;

use orinoco_core::TensorDesc;
use orinoco_core::text::mebibytes;
use orinoco_cuda::{CudaError, Device, DevicePool, Span};
use ort::Error;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, RunOptions, Session as OrtSession};
use ort::value::DynTensor;

use super::device_memory::{DevicePlace, inside};
use super::errors::run_error;
use super::graph::GraphDesc;
use super::memory;
use super::process::AllocationTarget;
use super::tensors::{describe, fixed_shape, type_of};
use crate::context::DEVICE;
use crate::engine::Session;
use crate::engine_error::EngineError;
use crate::stream::ExecutionStream;
use crate::tensor::{DeviceTensor, TensorMemory, TensorMut, TensorRef};

/// Number of runs before a session may compute in a lane's pool: in its second run, ONNX Runtime allocates by the
/// pattern of the first.
const FIRST_RUNS: usize = 2;
/// Number of runs on a lane's thread in which ONNX Runtime may capture: it captures within the first one, after a
/// regular run, or in the second, if the first capture was refused.
const CAPTURING_RUNS: usize = 2;

/// Session bound to tensors on the GPU.
pub(super) struct CudaSession {
    session: OrtSession,
    binding: IoBinding,
    inputs: Vec<DeviceTensor>,
    outputs: Vec<DeviceTensor>,
    /// Memory that the session computes in. It is dropped after the session, which frees its ranges there.
    place: DevicePlace,
    device: Device,
    /// Number of further runs in which ONNX Runtime may capture.
    capturing_runs_left: usize,
}

impl CudaSession {
    /// Binds every tensor, and executes the session; `None` if an output has no fixed shape. Later executions compute
    /// in `pool`, on the account of the named model, if `session` is configured to take its memory from Orinoco.
    pub(super) fn bind(
        session: OrtSession,
        graph: &GraphDesc,
        shapes: &[Vec<usize>],
        device: &Device,
        pool: Option<(&Arc<DevicePool>, &str)>,
    ) -> Result<Option<Self>, EngineError> {
        let kept = DevicePlace::kept(device);
        let bind = || Self::bind_tensors(session, graph, shapes, device);
        let bound = inside(&kept, || memory::inside(&AllocationTarget::System, bind));
        let bound = bound.map_err(|why| run_error(&why))?;
        let Some(mut bound) = bound else { return Ok(None) };
        bound.zero_inputs()?;
        // The first runs use a pool of their own, because the lane may compute in its pool at the same time.
        let own = pool.map(|_| Arc::new(DevicePool::measuring(device)));
        if let Some(own) = &own {
            bound.place = DevicePlace::pool(own, &graph.file.display().to_string());
        }
        bound.run_first()?;
        if let (Some(own), Some((lane, name))) = (own, pool) {
            bound.check_nothing_kept(&own)?;
            bound.place = DevicePlace::pool(lane, name);
        }
        Ok(Some(bound))
    }

    fn bind_tensors(
        session: OrtSession,
        graph: &GraphDesc,
        shapes: &[Vec<usize>],
        device: &Device,
    ) -> Result<Option<Self>, Error> {
        let memory = MemoryInfo::new(
            AllocationDevice::CUDA,
            DEVICE as i32,
            AllocatorType::Device,
            MemoryType::Default,
        )?;
        let allocator = Allocator::new(&session, memory)?;
        let mut binding = session.create_binding()?;
        let mut inputs = Vec::with_capacity(shapes.len());
        for (input, shape) in graph.inputs.iter().zip(shapes) {
            let tensor = DynTensor::new(&allocator, type_of(input)?, shape.as_slice())?;
            binding.bind_input(&input.name, &tensor)?;
            inputs.push(on_device(input, shape, tensor));
        }
        let mut outputs = Vec::with_capacity(graph.outputs.len());
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
            place: DevicePlace::kept(device),
            device: device.clone(),
            capturing_runs_left: CAPTURING_RUNS,
        }))
    }

    /// Fills the inputs with zeros. ONNX Runtime leaves memory on the GPU as it was.
    fn zero_inputs(&self) -> Result<(), CudaError> {
        let stream = self.device.stream()?;
        self.inputs.iter().try_for_each(|input| stream.write(&input.span, &vec![0; input.span.bytes()]))
    }

    /// Executes without capture: ONNX Runtime keeps a graph for the thread that captured it, and this is not the lane's
    /// thread.
    fn run_first(&mut self) -> Result<(), EngineError> {
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
        let ran = inside(place, || memory::inside(&AllocationTarget::System, run));
        ran.map_err(|why| run_error(&why))
    }

    /// Checks that a session which is going to share a lane's pool keeps nothing there from run to run. Also checks
    /// that it uses the pool at all: otherwise the provider would take memory that is in no memory plan.
    fn check_nothing_kept(&self, own: &DevicePool) -> Result<(), EngineError> {
        let usage = own.usage();
        if usage.allocations == 0 {
            let cause = "ONNX Runtime's CUDA provider does not allocate through Orinoco, so its memory cannot be planned";
            return Err(EngineError::Unsupported(cause.to_owned()));
        }
        if usage.held > 0 {
            let kept = mebibytes(usage.in_use_bytes as u64);
            let cause = format!("it keeps {kept} of GPU memory between inferences");
            let cause = format!("{cause}, but its planned memory is shared with other models");
            return Err(EngineError::Unsupported(cause));
        }
        Ok(())
    }
}

/// Converts `tensor`, which ONNX Runtime allocated on the GPU, to the type that kernels take.
fn on_device(desc: &TensorDesc, shape: &[usize], tensor: DynTensor) -> DeviceTensor {
    let element = desc.element.expect("a binding has only known types");
    let bytes = shape.iter().product::<usize>() * element.bytes();
    let address = tensor.data_ptr() as u64;
    // SAFETY: the tensor has that many bytes in the GPU's memory, where they stay until it is dropped.
    let span = unsafe { Span::foreign(address, bytes, Some(Arc::new(tensor))) };
    DeviceTensor { shape: shape.to_vec(), element, span }
}

impl Session for CudaSession {
    fn memory(&self) -> TensorMemory {
        TensorMemory::Device
    }

    fn input(&mut self, index: usize) -> TensorMut<'_> {
        TensorMut::Device(&self.inputs[index])
    }

    /// Executes on a CUDA stream and a graph of ONNX Runtime's own, and waits for the result.
    fn enqueue(&mut self, stream: &ExecutionStream) -> Result<(), EngineError> {
        stream.wait()?;
        // Freeing memory while ONNX Runtime captures would end the capture, so it is deferred.
        let _capturing = self.capturing_runs_left.checked_sub(1).map(|left| {
            self.capturing_runs_left = left;
            self.device.capture_guard()
        });
        let Self { session, binding, place, .. } = self;
        let run = || session.run_binding(binding).map(drop);
        let ran = inside(place, || memory::inside(&AllocationTarget::System, run));
        ran.map_err(|why| run_error(&why))
    }

    fn output(&self, index: usize) -> TensorRef<'_> {
        TensorRef::Device(&self.outputs[index])
    }
}
