//! What an inference engine is: an [`Engine`] that this machine can run prepares a model file, a [`Prepared`] model
//! binds sessions, a [`Session`] runs. Each step is a type, so that none can be left out.

use std::path::{Path, PathBuf};

use orinoco_core::text::count;
use orinoco_core::{Diagnosis, TensorDesc, codes, shape_text};

use crate::context::EngineContext;
use crate::faults::unsupported;
use crate::scratch::Scratch;
use crate::stream::ExecutionStream;
use crate::tensor::{TensorMemory, TensorMut, TensorRef};

/// An engine that can run on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// Its full version: `1.31.1`.
    pub version: String,
    /// The library it was loaded from; `None` when it is linked in.
    pub library: Option<PathBuf>,
}

/// A way to run models.
pub trait Engine: Send + Sync {
    /// Its name in board files and messages: `ort-cpu`.
    fn name(&self) -> &'static str;

    /// Whether this machine can run it; if not, the reason in one sentence.
    fn check(&self, context: &EngineContext) -> Result<EngineInfo, String>;

    /// Reads a model and makes sure that the engine has every operator.
    fn prepare(&self, file: &Path, context: &EngineContext) -> Result<Box<dyn Prepared>, Diagnosis>;
}

/// A model that an engine has read.
pub trait Prepared: Send + Sync {
    /// What the graph takes. An initialiser that the graph also lists as an input is not one.
    fn inputs(&self) -> &[TensorDesc];

    /// What the graph gives.
    fn outputs(&self) -> &[TensorDesc];

    /// Where the engine computes: in addition to the host's memory, sessions can have their tensors there.
    fn memory(&self) -> TensorMemory {
        TensorMemory::Host
    }

    /// Binds a session as `wanted`. It says itself where its tensors are.
    ///
    /// # Errors
    /// `E0204` for shapes that the graph does not allow; a fault of the engine for what it cannot do.
    fn session(&self, wanted: &SessionSpec<'_>) -> Result<Box<dyn Session>, Diagnosis>;
}

/// What a session is to be.
#[derive(Clone, Copy, Debug)]
pub struct SessionSpec<'a> {
    /// One shape per input: every dynamic axis fixed.
    pub shapes: &'a [Vec<usize>],
    /// Where its tensors are wanted. They are in the host's memory nevertheless where the engine computes there, or where
    /// an output has no fixed shape.
    pub memory: TensorMemory,
    /// The scratch that it shares with the other models of its lane, and the model's name there. Its first runs bind
    /// a model while the lane works, and are computed elsewhere. Engines that keep their own memory, or were prepared
    /// without [`Options::shared_scratch`](crate::Options::shared_scratch), do so here, too.
    pub scratch: Option<(&'a Scratch, &'a str)>,
}

impl<'a> SessionSpec<'a> {
    /// Tensors in the host's memory, computed in the engine's own.
    pub fn new(shapes: &'a [Vec<usize>]) -> Self {
        Self { shapes, memory: TensorMemory::Host, scratch: None }
    }
}

/// A model bound to its tensors. Inputs start as zeros, and keep what was written from run to run. Tensors stay where they
/// are, but for outputs whose shape follows from what a run finds.
pub trait Session: Send {
    /// Where its tensors are.
    fn memory(&self) -> TensorMemory {
        TensorMemory::Host
    }

    /// Lends input `index`, to be written in place before a run.
    fn input(&mut self, index: usize) -> TensorMut<'_>;

    /// Queues one inference on `stream`, after what is queued there and before what is queued next. It may be done already
    /// when this returns; [`ExecutionStream::wait`] waits for it. On [`ExecutionStream::Host`] it is done. When it fails, the
    /// outputs hold nothing of use.
    ///
    /// # Errors
    /// `E0304`, in the engine's words.
    fn enqueue(&mut self, stream: &ExecutionStream) -> Result<(), Diagnosis>;

    /// Whether [`Session::enqueue`] does nothing but queue launches, so that a CUDA graph can capture them.
    fn is_capturable(&self) -> bool {
        false
    }

    /// Lends output `index` of the latest run. Panics before the first.
    fn output(&self, index: usize) -> TensorRef<'_>;

    /// Ends it, and leaves what it has loaded to the model's next session, where the engine can.
    fn recycle(self: Box<Self>) {}

    /// One inference, which is done when this returns.
    ///
    /// # Errors
    /// As [`Session::enqueue`].
    fn run(&mut self) -> Result<(), Diagnosis> {
        self.enqueue(&ExecutionStream::Host)
    }
}

/// Checks that `shapes` fixes every axis of `inputs` as the graph allows, and that every tensor is of a type that
/// can be bound. Every engine checks this first, and so in the same words.
///
/// # Errors
/// `E0204` for a shape, `E0206` for a type.
pub fn check_binding(
    file: &Path,
    inputs: &[TensorDesc],
    outputs: &[TensorDesc],
    shapes: &[Vec<usize>],
) -> Result<(), Diagnosis> {
    if let Some(odd) = inputs.iter().chain(outputs).find(|tensor| tensor.element.is_none()) {
        return Err(unsupported(
            file,
            &format!("tensor `{}` is of a type that Orinoco does not carry", odd.name),
        ));
    }
    let disagree = |cause: String| {
        Err(Diagnosis::new(&codes::MODEL_DISAGREES, file.display(), cause, "see `orinoco models show`"))
    };
    if shapes.len() != inputs.len() {
        let (inputs, shapes) = (count(inputs.len() as u64, "input"), count(shapes.len() as u64, "shape"));
        return disagree(format!("it has {inputs}, but got {shapes}"));
    }
    for (input, shape) in inputs.iter().zip(shapes) {
        let fits =
            input.shape.len() == shape.len() && input.shape.iter().zip(shape).all(|(d, n)| d.accepts(*n));
        if !fits {
            let axes = shape_text(&input.shape);
            return disagree(format!("input `{}` is {axes}, which cannot be {shape:?}", input.name));
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

/// The size of a tensor, if it has one that an allocation can have.
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
        assert_eq!(check(&[]), Err("it has 1 input, but got 0 shapes".into()));
        assert_eq!(check(&[vec![4, 2]]), Err("input `images` is [?,3], which cannot be [4, 2]".into()));
        let huge = check(&[vec![usize::MAX / 2, 3]]).unwrap_err();
        assert!(huge.contains("larger than memory"), "{huge}");
    }
}
