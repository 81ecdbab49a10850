//! Interface of an inference engine. An [`Engine`] that this machine can run prepares a model file, a [`Prepared`]
//! model binds sessions, and a [`Session`] executes. Each step is a type, so that none can be left out.

use std::path::{Path, PathBuf};

use orinoco_core::{ComputeUnit, TensorDesc};

use crate::context::EngineContext;
use crate::engine_error::{EngineError, ShapeError};
use crate::scratch::Scratch;
use crate::stream::ExecutionStream;
use crate::tensor::{TensorMemory, TensorMut, TensorRef};

/// Version and library of an engine that can run on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// Full version: `1.31.1`.
    pub version: String,
    /// Path of the library that it was loaded from; `None` when the engine is linked in.
    pub library: Option<PathBuf>,
}

/// Inference engine: a runtime, with the device that it computes on.
pub trait Engine: Send + Sync {
    /// Returns the engine's name in board files and messages: `ort-cpu`.
    fn name(&self) -> &'static str;

    /// Returns the unit that executes its models.
    fn compute_unit(&self) -> ComputeUnit {
        ComputeUnit::Cpu
    }

    /// Whether it needs the library of ONNX Runtime, which is found at run time.
    fn uses_onnx_runtime(&self) -> bool {
        false
    }

    /// Whether its sessions compute in a lane's scratch, if one is given: see [`SessionSpec::scratch`].
    fn computes_in_scratch(&self) -> bool {
        false
    }

    /// Checks that this machine can run the engine. Returns its version, or the reason in one sentence.
    fn check(&self, context: &EngineContext) -> Result<EngineInfo, String>;

    /// Reads a model file, and checks that the engine has every operator of it.
    ///
    /// # Errors
    /// [`EngineError::File`] if no engine can use the file (see [`orinoco_model::check_file`]);
    /// [`EngineError::Unreadable`] or [`EngineError::Unsupported`] if this one cannot.
    fn prepare(&self, file: &Path, context: &EngineContext) -> Result<Box<dyn Prepared>, EngineError>;

    /// Models of the shared suite (tests/conformance) that it must not run. A line whose model runs after all fails the
    /// suite.
    fn exceptions(&self) -> &'static [SuiteException] {
        &[]
    }
}

/// A model that an engine must not run, with the reason.
#[derive(Clone, Copy, Debug)]
pub struct SuiteException {
    /// Name of the model, or `*` for every graph of more than one node.
    pub model: &'static str,
    /// Reason in one sentence.
    pub reason: &'static str,
}

/// Model file that an engine has read.
pub trait Prepared: Send + Sync {
    /// Returns the inputs of the graph. An initialiser that the graph also lists as an input is not one.
    fn inputs(&self) -> &[TensorDesc];

    /// Returns the outputs of the graph.
    fn outputs(&self) -> &[TensorDesc];

    /// Returns the memory in which the engine computes. Sessions can have their tensors there, or in the host's memory.
    fn memory(&self) -> TensorMemory {
        TensorMemory::Host
    }

    /// Binds a session as `wanted`. [`Session::memory`] reports where its tensors really are.
    ///
    /// # Errors
    /// [`EngineError::Shapes`] for shapes that the graph does not allow; another error for a model that the engine
    /// cannot bind.
    fn session(&self, wanted: &SessionSpec<'_>) -> Result<Box<dyn Session>, EngineError>;
}

/// Settings of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionSpec<'a> {
    /// Shape of each input, with every dynamic axis fixed.
    pub shapes: &'a [Vec<usize>],
    /// Requested memory of the tensors. They are nevertheless in the host's memory if the engine computes there, or if
    /// an output has no fixed shape.
    pub memory: TensorMemory,
    /// Scratch that the session shares with the other models of its lane, and the model's name in its accounts. The
    /// first runs of a session do not compute in it, because they bind a model while the lane works. Engines that keep
    /// their own memory, or were prepared without [`Options::shared_scratch`](crate::Options::shared_scratch), ignore
    /// it.
    pub scratch: Option<(&'a Scratch, &'a str)>,
}

impl<'a> SessionSpec<'a> {
    /// Settings with tensors in the host's memory, computed in the engine's own scratch.
    pub fn new(shapes: &'a [Vec<usize>]) -> Self {
        Self { shapes, memory: TensorMemory::Host, scratch: None }
    }
}

/// Model bound to its tensors. Inputs start as zeros, and keep their values from run to run. Tensors keep their
/// addresses, except outputs whose shape depends on the results of a run.
pub trait Session: Send {
    /// Returns the memory that holds the tensors.
    fn memory(&self) -> TensorMemory {
        TensorMemory::Host
    }

    /// Lends input `index`, to be written in place before a run. Panics if there is no such input.
    fn input(&mut self, index: usize) -> TensorMut<'_>;

    /// Queues one inference on `stream`, after the work that is queued there and before work that is queued later. It
    /// may be done when this returns, and always is on [`ExecutionStream::Host`]; [`ExecutionStream::wait`] waits for
    /// it. After an error the outputs hold nothing of use.
    ///
    /// # Errors
    /// [`EngineError::Run`] or [`EngineError::Device`].
    fn enqueue(&mut self, stream: &ExecutionStream) -> Result<(), EngineError>;

    /// Whether [`Session::enqueue`] only queues launches, so that a CUDA graph can capture them.
    fn is_capturable(&self) -> bool {
        false
    }

    /// Lends output `index` of the latest run. Panics before the first run.
    fn output(&self, index: usize) -> TensorRef<'_>;

    /// Ends the session. An engine that can do so keeps the loaded model for the next session.
    fn recycle(self: Box<Self>) {}

    /// Executes one inference, and returns when it is done.
    ///
    /// # Errors
    /// Those of [`Session::enqueue`].
    fn run(&mut self) -> Result<(), EngineError> {
        self.enqueue(&ExecutionStream::Host)
    }
}

/// Checks that `shapes` fixes every axis of `inputs` as the graph allows, and that every tensor has a type that can be
/// bound. Every engine checks this first, so that all of them report it in the same words.
///
/// # Errors
/// [`EngineError::Shapes`], or [`EngineError::Unsupported`] for an element type.
pub fn check_binding(
    inputs: &[TensorDesc],
    outputs: &[TensorDesc],
    shapes: &[Vec<usize>],
) -> Result<(), EngineError> {
    if let Some(odd) = inputs.iter().chain(outputs).find(|tensor| tensor.element.is_none()) {
        let why = format!("tensor `{}` has an unsupported data type", odd.name);
        return Err(EngineError::Unsupported(why));
    }
    check_shapes(inputs, shapes).map_err(EngineError::Shapes)
}

fn check_shapes(inputs: &[TensorDesc], shapes: &[Vec<usize>]) -> Result<(), ShapeError> {
    if shapes.len() != inputs.len() {
        return Err(ShapeError::Count { inputs: inputs.len(), shapes: shapes.len() });
    }
    for (input, shape) in inputs.iter().zip(shapes) {
        let (name, axes) = (|| input.name.clone(), &input.shape);
        let fits = axes.len() == shape.len() && axes.iter().zip(shape).all(|(d, n)| d.accepts(*n));
        if !fits {
            return Err(ShapeError::Refused { input: name(), axes: axes.clone(), shape: shape.clone() });
        }
        if bytes_of(input, shape).is_none() {
            return Err(ShapeError::TooLarge { input: name(), shape: shape.clone() });
        }
    }
    Ok(())
}

/// Returns the size of a tensor in bytes; `None` if it exceeds the maximum size of an allocation.
fn bytes_of(tensor: &TensorDesc, shape: &[usize]) -> Option<usize> {
    let count = shape.iter().try_fold(1usize, |product, n| product.checked_mul(*n))?;
    let bytes = count.checked_mul(tensor.element?.bytes())?;
    (bytes <= isize::MAX as usize).then_some(bytes)
}
#[cfg(test)]
mod tests {
    use orinoco_core::{Dim, ElementType};

    use super::*;

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let input = TensorDesc {
            name: "images".into(),
            element: Some(ElementType::F32),
            shape: vec![Dim::Dynamic, Dim::Fixed(3)],
        };
        let check = |shapes: &[Vec<usize>]| check_shapes(std::slice::from_ref(&input), shapes);
        assert_eq!(check(&[vec![4, 3]]), Ok(()));
        assert_eq!(check(&[]), Err(ShapeError::Count { inputs: 1, shapes: 0 }));
        let (axes, shape) = (input.shape.clone(), vec![4, 2]);
        let refused = ShapeError::Refused { input: "images".into(), axes, shape: shape.clone() };
        assert_eq!(check(&[shape]), Err(refused));
        let shape = vec![usize::MAX / 2, 3];
        let huge = ShapeError::TooLarge { input: "images".into(), shape: shape.clone() };
        assert_eq!(check(&[shape]), Err(huge));
    }
}
