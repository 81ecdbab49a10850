//! What an inference engine is: an [`Engine`] that this machine can run prepares a model file, a [`Prepared`] model
//! binds sessions, a [`Session`] runs. Each step is a type, so that none can be left out.

use std::path::{Path, PathBuf};

use orinoco_core::text::count;
use orinoco_core::{Diagnosis, TensorDesc, codes, shape_text};

use crate::context::EngineContext;
use crate::faults::unsupported;
use crate::scratch::Scratch;
#[cfg(feature = "cuda")]
use crate::tensor::DeviceTensor;
use crate::tensor::{TensorView, TensorViewMut};

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

    /// Binds a session with every dynamic axis fixed: `shapes` has one shape per input.
    fn session(&self, shapes: &[Vec<usize>]) -> Result<Box<dyn Session>, Diagnosis>;

    /// Whether it computes on the GPU.
    #[cfg(feature = "cuda")]
    fn is_on_device(&self) -> bool {
        false
    }

    /// The same with every tensor on the GPU; `None` where the engine computes elsewhere, or an output has no fixed shape. It
    /// has run. Where `scratch` has an area on the GPU it computes there, on the account of the model that is named.
    #[cfg(feature = "cuda")]
    fn device_session(
        &self,
        shapes: &[Vec<usize>],
        scratch: Option<(&Scratch, &str)>,
    ) -> Result<Option<Box<dyn DeviceSession>>, Diagnosis> {
        let _ = (shapes, scratch);
        Ok(None)
    }
}

/// A model bound to its tensors. Inputs start as zeros, and keep what was written from run to run.
pub trait Session: Send {
    /// The bound input `index`, to be written in place before a run.
    fn input(&mut self, index: usize) -> TensorViewMut<'_>;

    /// One inference. When it fails, the outputs hold nothing of use.
    fn run(&mut self) -> Result<(), Diagnosis>;

    /// Output `index` of the latest run. Panics before the first.
    fn output(&self, index: usize) -> TensorView<'_>;

    /// From now on computes in `scratch`, on the account of `model`. False where the engine keeps its own memory: it takes
    /// none of ours, or was not prepared for it ([`Options::shared_scratch`](crate::Options::shared_scratch)).
    fn compute_in(&mut self, scratch: &Scratch, model: &str) -> bool {
        let _ = (scratch, model);
        false
    }
}

/// A model bound to tensors on the GPU.
#[cfg(feature = "cuda")]
pub trait DeviceSession: Send {
    /// The bound inputs, to be written by kernels or copies that are done before a run.
    fn inputs(&self) -> &[DeviceTensor];

    /// The outputs, as the latest run left them.
    fn outputs(&self) -> &[DeviceTensor];

    /// One inference. It is done when this returns.
    fn run(&mut self) -> Result<(), Diagnosis>;
}

/// Checks that `shapes` fixes every axis of `inputs` as the graph allows, and that every tensor is of a type that
/// can be bound.
pub(crate) fn check_binding(
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
