//! What an inference engine is: an [`Engine`] that this machine can run prepares a model file, a [`Prepared`] model
//! binds sessions, a [`Session`] runs. Each step is a type, so that none can be left out.
//!
//! Tensors cross this boundary as typed slices of the engine's own aligned memory; there are no casts on either side.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Once;

use crate::scratch::Scratch;
use half::f16;
use orinoco_core::text::count;
use orinoco_core::{Diagnosis, ElementType, TensorDesc, codes, shape_text};
#[cfg(feature = "cuda")]
use orinoco_cuda::Span;

/// How engines are to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Threads that share the work of one operator; 0 counts as 1. tract always runs on the caller's thread alone.
    pub threads: usize,
    /// The ONNX Runtime library to load, instead of looking for one.
    pub ort_library: Option<PathBuf>,
    /// Whether sessions are going to compute in memory of ours ([`Session::compute_in`]), where the engine allows it.
    pub shared_scratch: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: 1, ort_library: None, shared_scratch: false }
    }
}

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
    fn check(&self, options: &Options) -> Result<EngineInfo, String>;

    /// Reads a model and makes sure that the engine has every operator.
    fn prepare(&self, file: &Path, options: &Options) -> Result<Box<dyn Prepared>, Diagnosis>;
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
    /// none of ours, or was not prepared for it ([`Options::shared_scratch`]).
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

/// A tensor on the GPU, row-major. It stays where it is.
#[cfg(feature = "cuda")]
#[derive(Clone, Debug)]
pub struct DeviceTensor {
    /// Its axes.
    pub shape: Vec<usize>,
    /// The type of its elements.
    pub element: ElementType,
    /// Its bytes.
    pub span: Span,
}

/// A tensor to read, row-major.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorView<'a> {
    /// Its axes.
    pub shape: &'a [usize],
    /// Its elements.
    pub data: Elements<'a>,
}

/// A tensor to write, row-major.
#[derive(Debug)]
pub struct TensorViewMut<'a> {
    /// Its axes.
    pub shape: &'a [usize],
    /// Its elements.
    pub data: ElementsMut<'a>,
}

macro_rules! elements {
    ($($variant:ident $type:ty, $to_f32:expr, $from_f32:expr;)*) => {
        /// The elements of a tensor, typed.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each variant is the element type of the same name")]
        pub enum Elements<'a> { $($variant(&'a [$type]),)* }

        /// The elements of a tensor, typed, to write.
        #[derive(Debug)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each variant is the element type of the same name")]
        pub enum ElementsMut<'a> { $($variant(&'a mut [$type]),)* }

        impl Elements<'_> {
            /// Their type.
            pub fn element(&self) -> ElementType {
                match self { $(Self::$variant(_) => ElementType::$variant,)* }
            }

            /// Replaces the content of `target` by these elements as f32. Reuses its memory.
            pub fn to_f32(&self, target: &mut Vec<f32>) {
                target.clear();
                match self { $(Self::$variant(source) => target.extend(source.iter().map(|x| $to_f32(*x))),)* }
            }
        }

        impl ElementsMut<'_> {
            /// Their type.
            pub fn element(&self) -> ElementType {
                match self { $(Self::$variant(_) => ElementType::$variant,)* }
            }

            /// Their number.
            #[allow(clippy::len_without_is_empty, reason = "a tensor to write is never asked whether it is empty")]
            pub fn len(&self) -> usize {
                match self { $(Self::$variant(target) => target.len(),)* }
            }

            /// Writes every element from `source`: rounded to the nearest and kept in range for integers, false only
            /// for zero. Panics unless there are as many.
            pub fn copy_from_f32(&mut self, source: &[f32]) {
                self.map_from_f32(source, |x| x);
            }

            /// The same with `map` of every number.
            pub fn map_from_f32(&mut self, source: &[f32], map: impl Fn(f32) -> f32) {
                match self { $(Self::$variant(target) => {
                    assert_eq!(target.len(), source.len(), "a tensor is written whole");
                    target.iter_mut().zip(source).for_each(|(target, x)| *target = $from_f32(map(*x)));
                })* }
            }
        }
    };
}

elements! {
    F32 f32, |x: f32| x, |x: f32| x;
    F16 f16, f16::to_f32, f16::from_f32;
    U8 u8, |x: u8| f32::from(x), |x: f32| x.round_ties_even() as u8;
    I8 i8, |x: i8| f32::from(x), |x: f32| x.round_ties_even() as i8;
    I32 i32, |x: i32| x as f32, |x: f32| x.round_ties_even() as i32;
    I64 i64, |x: i64| x as f32, |x: f32| x.round_ties_even() as i64;
    Bool bool, |x: bool| f32::from(u8::from(x)), |x: f32| x != 0.0;
}

impl<'a> Elements<'a> {
    /// The values, if they are f32.
    pub fn f32(self) -> Option<&'a [f32]> {
        match self {
            Self::F32(values) => Some(values),
            _ => None,
        }
    }
}

impl<'a> ElementsMut<'a> {
    /// The values, if they are f32.
    pub fn f32(self) -> Option<&'a mut [f32]> {
        match self {
            Self::F32(values) => Some(values),
            _ => None,
        }
    }
}

/// A file that no ONNX parser accepts, in the same words for every engine.
pub(crate) const NOT_ONNX: &str = "the file is not ONNX, or it was cut short";

/// An engine's own words are cut here: the shape of a node or an attribute list can run to kilobytes.
const ENGINE_TEXT_CHARS_MAX: usize = 200;

/// A fault of the file itself, in the engine's words.
pub(crate) fn unreadable(file: &Path, cause: &str) -> Diagnosis {
    orinoco_model::unreadable(file, &shorten(cause)).with_detail(cause)
}

/// A sound file with something in it that the engine lacks.
pub(crate) fn unsupported(file: &Path, cause: &str) -> Diagnosis {
    let next = "try another engine";
    Diagnosis::new(&codes::MODEL_UNSUPPORTED, file.display(), shorten(cause), next).with_detail(cause)
}

/// A run that failed.
pub(crate) fn run_failed(file: &Path, cause: &str) -> Diagnosis {
    let next = "try another engine, or run it once more with zeros as input";
    Diagnosis::new(&codes::ENGINE_RUN, file.display(), shorten(cause), next).with_detail(cause)
}

/// The first line of an engine's message, of bounded length: whole sentences where one fits, else whole words.
pub(crate) fn shorten(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default().trim_end_matches(['.', ' ']);
    let Some((end, _)) = line.char_indices().nth(ENGINE_TEXT_CHARS_MAX) else { return line.to_owned() };
    let head = &line[..end];
    let sentence = [". ", "; "].iter().filter_map(|mark| head.rfind(mark)).max();
    let cut = sentence.filter(|at| head[..*at].chars().count() >= ENGINE_TEXT_CHARS_MAX / 4);
    let cut = cut.or_else(|| head.rfind(' ')).unwrap_or(end);
    format!("{} [...]", head[..cut].trim_end())
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

thread_local! {
    /// Whether a panic on this thread is expected and will be reported by [`catch_panic`].
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` in code that may panic on a malformed model; a panic becomes its message, and is not printed. Panics of
/// other threads, and of this one outside `work`, go to the process's own hook as before.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !CATCHING.try_with(Cell::get).unwrap_or(false) {
                previous(info);
            }
        }));
    });
    let outer = CATCHING.replace(true);
    // The caller drops whatever `work` had in its hands, so nothing half-changed is seen.
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(outer);
    result.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
        format!("the engine panicked: {text}")
    })
}

#[cfg(test)]
mod tests {
    use orinoco_core::Dim;

    use super::*;

    #[test]
    fn long_engine_texts_become_one_bounded_line() {
        assert_eq!(shorten("\n  no such node.\nat line 3"), "no such node");
        let long = shorten(&"é".repeat(1000));
        assert_eq!(long.chars().count(), ENGINE_TEXT_CHARS_MAX + " [...]".len());
        let sentences = format!("{}. {}", "no such node ".repeat(10).trim(), "and more ".repeat(20));
        assert_eq!(shorten(&sentences), format!("{} [...]", "no such node ".repeat(10).trim()));
        let words = shorten(&"and more ".repeat(40));
        assert!(words.ends_with(" and [...]") || words.ends_with(" more [...]"), "{words}");
    }

    #[test]
    fn the_full_cause_is_kept_where_it_was_shortened() {
        let text = format!("no such node\n{}", "more ".repeat(100));
        let fault = unsupported(Path::new("m.onnx"), &text);
        assert_eq!((fault.cause.as_str(), fault.detail.as_deref()), ("no such node", Some(text.trim())));
        assert_eq!(unsupported(Path::new("m.onnx"), "no such node.").detail, None);
    }

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(catch_panic(|| 7), Ok(7));
        let caught = catch_panic(|| panic!("index {} of {}", 3, 2)).map(|()| 0);
        assert_eq!(caught, Err("the engine panicked: index 3 of 2".to_owned()));
        assert!(!CATCHING.get());
    }

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

    #[test]
    fn values_are_rounded_into_the_type_of_the_tensor() {
        let (mut bytes, mut halves) = ([0u8; 4], [f16::ZERO; 1]);
        ElementsMut::U8(&mut bytes).copy_from_f32(&[-3.0, 1.5, 2.5, 300.0]);
        ElementsMut::F16(&mut halves).copy_from_f32(&[0.5]);
        assert_eq!(bytes, [0, 2, 2, 255]);
        let mut back = Vec::new();
        Elements::F16(&halves).to_f32(&mut back);
        assert_eq!(back, [0.5]);
    }
}
