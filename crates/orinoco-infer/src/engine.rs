//! Interface of an inference engine. An [`Engine`] that this machine can run prepares a model file, a [`Prepared`]
//! model binds sessions, and a [`Session`] executes. Each step is a type, so that none can be left out.

use std::path::{Path, PathBuf};

use orinoco_core::text::count;
use orinoco_core::{Diagnosis, TensorDesc, codes, shape_text};

use crate::context::EngineContext;
use crate::faults::unsupported;
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

    /// Checks that this machine can run the engine. Returns its version, or the reason in one sentence.
    fn check(&self, context: &EngineContext) -> Result<EngineInfo, String>;

    /// Reads a model file, and checks that the engine has every operator of it.
    fn prepare(&self, file: &Path, context: &EngineContext) -> Result<Box<dyn Prepared>, Diagnosis>;

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
    /// `E0204` for shapes that the graph does not allow; an error of the engine for a model that it cannot bind.
    fn session(&self, wanted: &SessionSpec<'_>) -> Result<Box<dyn Session>, Diagnosis>;
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
    /// `E0304`, with the engine's message.
    fn enqueue(&mut self, stream: &ExecutionStream) -> Result<(), Diagnosis>;

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
    fn run(&mut self) -> Result<(), Diagnosis> {
        self.enqueue(&ExecutionStream::Host)
    }
}

/// Checks that `shapes` fixes every axis of `inputs` as the graph allows, and that every tensor has a type that can be
/// bound. Every engine checks this first, so that all of them report it in the same words.
///
/// # Errors
/// `E0204` for a shape, `E0206` for an element type.
pub fn check_binding(
    file: &Path,
    inputs: &[TensorDesc],
    outputs: &[TensorDesc],
    shapes: &[Vec<usize>],
) -> Result<(), Diagnosis> {
    if let Some(odd) = inputs.iter().chain(outputs).find(|tensor| tensor.element.is_none()) {
        return Err(unsupported(file, &format!("tensor `{}` has an unsupported data type", odd.name)));
    }
    let disagree = |cause: String| {
        Err(Diagnosis::new(&codes::MODEL_DISAGREES, file.display(), cause, "see `orinoco models show`"))
    };
    if shapes.len() != inputs.len() {
        let (inputs, shapes) = (count(inputs.len() as u64, "input"), count(shapes.len() as u64, "shape"));
        return disagree(format!("it has {inputs}, but {shapes} were given"));
    }
    for (input, shape) in inputs.iter().zip(shapes) {
        let fits =
            input.shape.len() == shape.len() && input.shape.iter().zip(shape).all(|(d, n)| d.accepts(*n));
        if !fits {
            let axes = shape_text(&input.shape);
            return disagree(format!(
                "input `{}` has shape {axes}, which does not accept {shape:?}",
                input.name
            ));
        }
        if bytes_of(input, shape).is_none() {
            return disagree(format!(
                "input `{}` of shape {shape:?} is larger than memory can be",
                input.name
            ));
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
        let check = |shapes: &[Vec<usize>]| {
            check_binding(Path::new("m.onnx"), std::slice::from_ref(&input), &[], shapes).map_err(|d| d.cause)
        };
        assert_eq!(check(&[vec![4, 3]]), Ok(()));
        assert_eq!(check(&[]), Err("it has 1 input, but 0 shapes were given".into()));
        assert_eq!(
            check(&[vec![4, 2]]),
            Err("input `images` has shape [?,3], which does not accept [4, 2]".into())
        );
        let huge = check(&[vec![usize::MAX / 2, 3]]).unwrap_err();
        assert!(huge.contains("larger than memory"), "{huge}");
    }
}
