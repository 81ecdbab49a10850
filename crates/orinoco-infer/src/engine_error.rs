//! Failure of an engine, in the same words for every engine.

use std::path::Path;

use orinoco_core::text::count;
use orinoco_core::{Diagnosis, Dim, codes, shape_text};
use orinoco_model::{ModelFileError, unreadable};

use crate::device::CudaError;

/// Cause for a file that no ONNX parser accepts, in the same words for every engine.
pub(crate) const NOT_ONNX: &str = "the file is not ONNX, or it was cut short";

/// Maximum length of an engine's message, in characters: the shape of a node or a list of attributes can have
/// kilobytes.
const ENGINE_TEXT_CHARS_MAX: usize = 200;

/// Failure of an engine to prepare, bind or run a model. It does not name the model file, which the caller knows: see
/// [`EngineError::diagnosis`].
#[derive(Debug)]
pub enum EngineError {
    /// The file itself is at fault, and every other engine would report the same (`E0101`, `E0202`).
    File(ModelFileError),
    /// The engine cannot read the file, for this reason. Another engine may (`E0202`).
    Unreadable(String),
    /// The file is valid, but the engine does not support a part of it, for this reason (`E0206`).
    Unsupported(String),
    /// The shapes of a session are not those of the graph (`E0204`).
    Shapes(ShapeError),
    /// This machine cannot run the engine (`E0302`).
    Unavailable {
        /// Name of the engine.
        engine: &'static str,
        /// Reason in one sentence.
        why: String,
    },
    /// An inference, or what prepares one, failed (`E0304`).
    Run {
        /// The part of the message that gives the cause.
        cause: String,
        /// The engine's whole message.
        message: String,
    },
    /// A call of the CUDA driver failed (`E0304`).
    Device(CudaError),
}

/// Disagreement between the shapes of a session and the inputs of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// The graph has another number of inputs.
    Count {
        /// Number of inputs of the graph.
        inputs: usize,
        /// Number of shapes that were given.
        shapes: usize,
    },
    /// An input does not accept its shape.
    Refused {
        /// Name of the input.
        input: String,
        /// Axes that the graph declares.
        axes: Vec<Dim>,
        /// Shape that was given.
        shape: Vec<usize>,
    },
    /// An input of this shape exceeds the maximum size of an allocation.
    TooLarge {
        /// Name of the input.
        input: String,
        /// Shape that was given.
        shape: Vec<usize>,
    },
}

impl EngineError {
    /// Returns the failure of an inference, with the engine's message.
    pub fn run(message: impl Into<String>) -> Self {
        let message = message.into();
        Self::Run { cause: message.clone(), message }
    }

    /// Returns the fault of the model in `file` that a user sees.
    pub fn diagnosis(&self, file: &Path) -> Diagnosis {
        let shown = file.display();
        match self {
            Self::File(error) => error.diagnosis(file),
            Self::Unreadable(why) => unreadable(file, &shorten(why)).with_detail(why),
            Self::Unsupported(why) => {
                let next = "try another engine";
                Diagnosis::new(&codes::MODEL_UNSUPPORTED, shown, shorten(why), next).with_detail(why)
            }
            Self::Shapes(error) => {
                Diagnosis::new(&codes::MODEL_DISAGREES, shown, error.cause(), "see `orinoco models show`")
            }
            Self::Unavailable { engine, why } => {
                Diagnosis::new(&codes::ENGINE_UNAVAILABLE, *engine, why, "see `orinoco explain E0302`")
            }
            Self::Run { cause, message } => {
                let next = "try another engine (`orinoco models check` runs the model once on each)";
                Diagnosis::new(&codes::ENGINE_RUN, shown, shorten(cause), next).with_detail(message)
            }
            Self::Device(why) => {
                let next = "see `orinoco doctor` and the kernel's log; after a GPU fault the process must be restarted";
                Diagnosis::new(&codes::ENGINE_RUN, shown, format!("{why}: {}", why.source), next)
            }
        }
    }
}

impl From<ModelFileError> for EngineError {
    fn from(error: ModelFileError) -> Self {
        Self::File(error)
    }
}

impl From<CudaError> for EngineError {
    fn from(error: CudaError) -> Self {
        Self::Device(error)
    }
}

impl ShapeError {
    fn cause(&self) -> String {
        match self {
            Self::Count { inputs, shapes } => {
                let (inputs, shapes) = (count(*inputs as u64, "input"), count(*shapes as u64, "shape"));
                format!("it has {inputs}, but {shapes} were given")
            }
            Self::Refused { input, axes, shape } => {
                format!("input `{input}` has shape {}, which does not accept {shape:?}", shape_text(axes))
            }
            Self::TooLarge { input, shape } => {
                format!("input `{input}` of shape {shape:?} is larger than memory can be")
            }
        }
    }
}

/// Returns the first line of an engine's message with bounded length: whole sentences if one fits, else whole words.
pub(crate) fn shorten(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default().trim_end_matches(['.', ' ']);
    let Some((end, _)) = line.char_indices().nth(ENGINE_TEXT_CHARS_MAX) else { return line.to_owned() };
    let head = &line[..end];
    let sentence = [". ", "; "].iter().filter_map(|mark| head.rfind(mark)).max();
    let cut = sentence.filter(|at| head[..*at].chars().count() >= ENGINE_TEXT_CHARS_MAX / 4);
    let cut = cut.or_else(|| head.rfind(' ')).unwrap_or(end);
    format!("{} [...]", head[..cut].trim_end())
}
#[cfg(test)]
mod tests {
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
        let fault = |why: &str| EngineError::Unsupported(why.to_owned()).diagnosis(Path::new("m.onnx"));
        let long = fault(&text);
        assert_eq!((long.cause.as_str(), long.detail.as_deref()), ("no such node", Some(text.trim())));
        assert_eq!(fault("no such node.").detail, None);
    }

    #[test]
    fn shapes_that_do_not_fit_are_described() {
        let cause = |error: ShapeError| EngineError::Shapes(error).diagnosis(Path::new("m.onnx")).cause;
        let count = cause(ShapeError::Count { inputs: 1, shapes: 0 });
        assert_eq!(count, "it has 1 input, but 0 shapes were given");
        let (axes, shape) = (vec![Dim::Dynamic, Dim::Fixed(3)], vec![4, 2]);
        let refused = cause(ShapeError::Refused { input: "images".into(), axes, shape });
        assert_eq!(refused, "input `images` has shape [?,3], which does not accept [4, 2]");
        let huge = cause(ShapeError::TooLarge { input: "images".into(), shape: vec![1 << 62, 3] });
        assert!(huge.contains("larger than memory"), "{huge}");
    }
}
