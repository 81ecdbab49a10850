//! Sessions whose tensors are in host memory.

use ort::Error;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, Session as OrtSession, SessionOutputs};
use ort::value::{DynTensor, DynTensorValueType};

#[cfg(feature = "cuda")]
use super::device_memory::{self, DevicePlace};
use super::errors::run_error;
use super::graph::GraphDesc;
use super::memory::{self, inside};
use super::process::AllocationTarget;
use super::spare::{Overrides, SpareSession};
use super::tensors::{allocate, copy, describe, fixed_shape, read, write};
use crate::device::Device;
use crate::engine::Session;
use crate::engine_error::EngineError;
use crate::scratch::Scratch;
use crate::stream::ExecutionStream;
use crate::tensor::{TensorMut, TensorRef, TensorView, TensorViewMut};

/// Session with its bound tensors. Inputs, and outputs of a known shape, are allocated once and keep their addresses.
/// ONNX Runtime allocates the other outputs in each run, and they are copied out of its memory.
pub(super) struct BoundSession {
    session: OrtSession,
    binding: IoBinding,
    /// Slot that takes the session when it is recycled, and the axis sizes with which it was loaded.
    home: (SpareSession, Overrides),
    /// Memory in which ONNX Runtime allocates outputs.
    host: MemoryInfo<'static>,
    inputs: Vec<Bound>,
    outputs: Vec<Bound>,
    /// Whether ONNX Runtime copies inputs when they are bound, so that they have to be bound before every run.
    copies_inputs: bool,
    /// Memory that the session computes in.
    place: ComputePlace,
    /// Memory to compute in after the first run, which binds a model while its lane works.
    lane: Option<ComputePlace>,
}

/// Memory that a run computes in.
struct ComputePlace {
    host: AllocationTarget,
    #[cfg(feature = "cuda")]
    device: Option<DevicePlace>,
}

impl ComputePlace {
    /// Returns the engine's own memory.
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "there is none"))]
    fn own(device: Option<&Device>) -> Self {
        Self {
            host: AllocationTarget::System,
            #[cfg(feature = "cuda")]
            device: device.map(DevicePlace::kept),
        }
    }

    /// Returns a lane's scratch, on the account of `model`.
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "there is none"))]
    fn lane(scratch: &Scratch, model: &str, device: Option<&Device>) -> Self {
        memory::know(scratch);
        Self {
            host: AllocationTarget::Lane(scratch.clone(), scratch.owner(model)),
            #[cfg(feature = "cuda")]
            device: device.map(|device| match scratch.device() {
                Some(pool) => DevicePlace::pool(pool, model),
                None => DevicePlace::kept(device),
            }),
        }
    }
}

struct Bound {
    name: String,
    shape: Vec<usize>,
    /// Memory of the tensor; `None` for an output of unknown shape before the first run.
    tensor: Option<DynTensor>,
    fixed: bool,
}

impl BoundSession {
    /// Binds every tensor of `session`, which computes on `device` if there is one.
    pub(super) fn bind(
        session: OrtSession,
        home: (SpareSession, Overrides),
        graph: &GraphDesc,
        shapes: &[Vec<usize>],
        device: Option<&Device>,
        scratch: Option<(&Scratch, &str)>,
    ) -> Result<Self, Error> {
        let mut binding = session.create_binding()?;
        let mut inputs = Vec::with_capacity(shapes.len());
        for (input, shape) in graph.inputs.iter().zip(shapes) {
            let tensor = allocate(input, shape)?;
            binding.bind_input(&input.name, &tensor)?;
            inputs.push(Bound::fixed(&input.name, shape, tensor));
        }
        let host = MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Device, MemoryType::CPUOutput)?;
        let mut outputs = Vec::with_capacity(graph.outputs.len());
        // With fixed axes, the graph's own shape inference knows more shapes than the file declares.
        for output in session.outputs().iter().map(describe) {
            if let Some(shape) = fixed_shape(&output) {
                let mut tensor = allocate(&output, &shape)?;
                binding.bind_output(&output.name, &mut tensor)?;
                outputs.push(Bound::fixed(&output.name, &shape, tensor));
            } else {
                binding.bind_output_to_device(&output.name, &host)?;
                outputs.push(Bound { name: output.name, shape: Vec::new(), tensor: None, fixed: false });
            }
        }
        Ok(Self {
            session,
            binding,
            home,
            host,
            inputs,
            outputs,
            copies_inputs: device.is_some(),
            place: ComputePlace::own(device),
            lane: scratch.map(|(scratch, model)| ComputePlace::lane(scratch, model, device)),
        })
    }
}

impl BoundSession {
    fn compute(&mut self) -> Result<(), Error> {
        let Self { session, binding, inputs, copies_inputs, place, .. } = self;
        let run = move || {
            // Both are moved into the closure, so that the outputs may refer to them.
            let (session, binding) = (session, binding);
            if *copies_inputs {
                bind_inputs(binding, inputs)?;
            }
            session.run_binding(binding)
        };
        #[cfg(feature = "cuda")]
        let run = || match &place.device {
            Some(place) => device_memory::inside(place, run),
            None => run(),
        };
        let found = inside(&place.host, run);
        let kept = found.and_then(|found| keep(&mut self.outputs, found));
        kept.and(self.release_outputs())?;
        if let Some(lane) = self.lane.take() {
            self.place = lane;
        }
        Ok(())
    }

    /// Releases the outputs that ONNX Runtime allocated in a run. The binding would keep them, and refuse a next run in
    /// which the output has another shape.
    fn release_outputs(&mut self) -> Result<(), Error> {
        for output in self.outputs.iter().filter(|output| !output.fixed) {
            self.binding.bind_output_to_device(output.name.as_str(), &self.host)?;
        }
        Ok(())
    }
}

/// Binds the inputs again, so that ONNX Runtime copies their new values to the GPU.
fn bind_inputs(binding: &mut IoBinding, inputs: &[Bound]) -> Result<(), Error> {
    for Bound { name, tensor, .. } in inputs {
        let tensor = tensor.as_ref().expect("inputs are allocated when they are bound");
        binding.bind_input(name.as_str(), tensor)?;
    }
    Ok(())
}

/// Copies the outputs that ONNX Runtime allocated in a run.
fn keep(outputs: &mut [Bound], mut found: SessionOutputs<'_>) -> Result<(), Error> {
    for output in outputs.iter_mut().filter(|output| !output.fixed) {
        let value = found.remove(&output.name).expect("every output is bound by name");
        output.keep(&value.downcast::<DynTensorValueType>()?)?;
    }
    Ok(())
}

impl Bound {
    fn fixed(name: &str, shape: &[usize], tensor: DynTensor) -> Self {
        Self { name: name.to_owned(), shape: shape.to_vec(), tensor: Some(tensor), fixed: true }
    }

    /// Copies `value`, into the tensor of the previous run if the shape is the same.
    fn keep(&mut self, value: &DynTensor) -> Result<(), Error> {
        let size = |n: &i64| usize::try_from(*n).expect("a size is not negative");
        self.shape.clear();
        self.shape.extend(value.shape().iter().map(size));
        let before = self.tensor.take().filter(|before| before.shape() == value.shape());
        let mut kept = match before {
            Some(before) => before,
            None => DynTensor::new(&Allocator::default(), *value.data_type(), self.shape.as_slice())?,
        };
        copy(value, &mut kept);
        self.tensor = Some(kept);
        Ok(())
    }
}
impl Session for BoundSession {
    fn input(&mut self, index: usize) -> TensorMut<'_> {
        let Bound { shape, tensor, .. } = &mut self.inputs[index];
        let tensor = tensor.as_mut().expect("inputs are allocated when they are bound");
        TensorMut::Host(TensorViewMut { shape, data: write(tensor) })
    }

    fn enqueue(&mut self, stream: &ExecutionStream) -> Result<(), EngineError> {
        stream.wait()?;
        self.compute().map_err(|why| run_error(&why))
    }

    fn output(&self, index: usize) -> TensorRef<'_> {
        let Bound { shape, tensor, .. } = &self.outputs[index];
        let tensor = tensor.as_ref().expect("an output is read after a run");
        TensorRef::Host(TensorView { shape, data: read(tensor) })
    }

    fn recycle(self: Box<Self>) {
        let Self { session, binding, home: (spare, overrides), .. } = *self;
        drop(binding);
        spare.put(session, overrides);
    }
}
