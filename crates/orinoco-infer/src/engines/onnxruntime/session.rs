//! Sessions whose tensors are in host memory.

use std::path::PathBuf;

use orinoco_core::Diagnosis;
use ort::Error;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, Session as OrtSession, SessionOutputs};
use ort::value::{DynTensor, DynTensorValueType};

use super::errors::why_not_run;
use super::memory::{self, Place, inside};
use super::tensors::{allocate, copy, describe, fixed_shape, read, write};
use super::{OrtModel, Provider};
#[cfg(feature = "cuda")]
use super::{cuda, device_memory};
use crate::engine::Session;
use crate::scratch::Scratch;
use crate::tensor::{TensorView, TensorViewMut};

/// A session with its bound tensors. Inputs, and outputs of a known shape, are allocated once and stay where they
/// are; other outputs are allocated by ONNX Runtime in each run, and copied out of its memory.
pub(super) struct BoundSession {
    session: OrtSession,
    binding: IoBinding,
    /// Where ONNX Runtime leaves the outputs that it allocates.
    host: MemoryInfo<'static>,
    inputs: Vec<Bound>,
    outputs: Vec<Bound>,
    file: PathBuf,
    /// Whether inputs are copied when they are bound, so that they are bound before every run.
    copies_inputs: bool,
    shared_scratch: bool,
    place: Place,
    #[cfg(feature = "cuda")]
    device_place: Option<device_memory::DevicePlace>,
}

struct Bound {
    name: String,
    shape: Vec<usize>,
    /// `None` for an output of unknown shape before the first run.
    tensor: Option<DynTensor>,
    fixed: bool,
}

impl BoundSession {
    pub(super) fn bind(session: OrtSession, model: &OrtModel, shapes: &[Vec<usize>]) -> Result<Self, Error> {
        let mut binding = session.create_binding()?;
        let mut inputs = Vec::with_capacity(shapes.len());
        for (input, shape) in model.inputs.iter().zip(shapes) {
            let tensor = allocate(input, shape)?;
            binding.bind_input(&input.name, &tensor)?;
            inputs.push(Bound::fixed(&input.name, shape, tensor));
        }
        let host = MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Device, MemoryType::CPUOutput)?;
        let mut outputs = Vec::with_capacity(model.outputs.len());
        // With the axes fixed, the graph's own shape inference knows more than the file declared.
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
            host,
            inputs,
            outputs,
            file: model.file.clone(),
            copies_inputs: model.provider != Provider::Cpu,
            shared_scratch: model.options.shared_scratch,
            place: Place::System,
            #[cfg(feature = "cuda")]
            device_place: None,
        })
    }
}

impl BoundSession {
    fn compute(&mut self) -> Result<(), Error> {
        #[cfg(feature = "cuda")]
        if self.copies_inputs {
            cuda::leave_captures_alone();
        }
        let Self { session, binding, inputs, copies_inputs, place, .. } = self;
        let run = move || {
            // Moved, so that what was found may refer to them.
            let (session, binding) = (session, binding);
            if *copies_inputs {
                bind_inputs(binding, inputs)?;
            }
            session.run_binding(binding)
        };
        #[cfg(feature = "cuda")]
        let run = || device_memory::inside(self.device_place.as_ref(), run);
        let found = inside(place, run);
        let kept = found.and_then(|found| keep(&mut self.outputs, found));
        kept.and(self.release_outputs())
    }

    /// Lets go of what ONNX Runtime allocated in a run. The binding would hold it, and refuse a next run in which the
    /// output has another shape.
    fn release_outputs(&mut self) -> Result<(), Error> {
        for output in self.outputs.iter().filter(|output| !output.fixed) {
            self.binding.bind_output_to_device(output.name.as_str(), &self.host)?;
        }
        Ok(())
    }
}

/// Takes what was written into the inputs, where the engine does not read them itself.
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

    /// Copies `value`, into the tensor of the run before where the shape is the same.
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
    fn input(&mut self, index: usize) -> TensorViewMut<'_> {
        let Bound { shape, tensor, .. } = &mut self.inputs[index];
        let tensor = tensor.as_mut().expect("inputs are allocated when they are bound");
        TensorViewMut { shape, data: write(tensor) }
    }

    fn run(&mut self) -> Result<(), Diagnosis> {
        self.compute().map_err(|why| why_not_run(&self.file, &why))
    }

    fn output(&self, index: usize) -> TensorView<'_> {
        let Bound { shape, tensor, .. } = &self.outputs[index];
        let tensor = tensor.as_ref().expect("an output is read after a run");
        TensorView { shape, data: read(tensor) }
    }

    fn compute_in(&mut self, scratch: &Scratch, model: &str) -> bool {
        if self.shared_scratch {
            memory::know(scratch);
            self.place = Place::Lane(scratch.clone(), scratch.owner(model));
            #[cfg(feature = "cuda")]
            {
                let place = |pool| device_memory::DevicePlace::new(pool, model);
                self.device_place = scratch.device().map(place);
            }
        }
        self.shared_scratch
    }
}
