//! Faults that engines report, in the same words for every engine.

use std::path::Path;

use orinoco_core::{Diagnosis, codes};

use crate::device::CudaError;

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

/// A call of the driver that failed while a model ran.
pub(crate) fn device_failed(file: &Path, why: &CudaError) -> Diagnosis {
    let next =
        "see `orinoco doctor` and the kernel's log; after a fault of the GPU the process has to start again";
    Diagnosis::new(&codes::ENGINE_RUN, file.display(), format!("{why}: {}", why.source), next)
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
