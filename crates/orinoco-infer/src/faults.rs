//! Errors of engines, in the same words for every engine.

use std::path::Path;

use orinoco_core::{Diagnosis, codes};

use crate::device::CudaError;

/// Cause for a file that no ONNX parser accepts, in the same words for every engine.
pub(crate) const NOT_ONNX: &str = "the file is not ONNX, or it was cut short";

/// Maximum length of an engine's message, in characters: the shape of a node or a list of attributes can have
/// kilobytes.
const ENGINE_TEXT_CHARS_MAX: usize = 200;

/// Returns the error for a file that cannot be read, with the engine's message.
pub(crate) fn unreadable(file: &Path, cause: &str) -> Diagnosis {
    orinoco_model::unreadable(file, &shorten(cause)).with_detail(cause)
}

/// Returns the error for a valid file with a feature that the engine does not support.
pub(crate) fn unsupported(file: &Path, cause: &str) -> Diagnosis {
    let next = "try another engine";
    Diagnosis::new(&codes::MODEL_UNSUPPORTED, file.display(), shorten(cause), next).with_detail(cause)
}

/// Returns the error for a failed inference.
pub(crate) fn run_failed(file: &Path, cause: &str) -> Diagnosis {
    let next = "try another engine (`orinoco models check` runs the model once on each)";
    Diagnosis::new(&codes::ENGINE_RUN, file.display(), shorten(cause), next).with_detail(cause)
}

/// Returns the error for a call of the CUDA driver that failed during an inference.
pub(crate) fn device_failed(file: &Path, why: &CudaError) -> Diagnosis {
    let next = "see `orinoco doctor` and the kernel's log; after a GPU fault the process must be restarted";
    Diagnosis::new(&codes::ENGINE_RUN, file.display(), format!("{why}: {}", why.source), next)
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
        let fault = unsupported(Path::new("m.onnx"), &text);
        assert_eq!((fault.cause.as_str(), fault.detail.as_deref()), ("no such node", Some(text.trim())));
        assert_eq!(unsupported(Path::new("m.onnx"), "no such node.").detail, None);
    }
}
