//! ONNX Runtime's errors, sorted and reduced to what they say.

use std::path::Path;

use orinoco_core::Diagnosis;
use ort::{Error, ErrorCode};

use crate::faults::{NOT_ONNX, run_failed, unreadable, unsupported};

/// ONNX Runtime's error for a model that it does not load, sorted: no ONNX, lacking an operator, or broken.
pub(super) fn read_error(file: &Path, why: &Error) -> Diagnosis {
    const LACKING: [&str; 6] = [
        "Could not find an implementation for",
        "is not a registered function/op",
        "No Op registered for",
        "is under development and support for this is limited",
        "Unsupported model IR version",
        "Unrecognized op",
    ];
    let text = essence(why.message());
    match why.code() {
        ErrorCode::InvalidProtobuf | ErrorCode::NoModel => unreadable(file, NOT_ONNX),
        ErrorCode::NotImplemented => unsupported(file, text),
        _ if LACKING.iter().any(|lacking| text.contains(lacking)) => unsupported(file, text),
        _ => unreadable(file, text),
    }
}

/// ONNX Runtime's error of a run. Each node around the one that failed repeats itself before the reason.
pub(super) fn run_error(file: &Path, why: &Error) -> Diagnosis {
    let text = essence(why.message());
    run_failed(file, &innermost(text)).with_detail(text)
}

/// The node that failed and why, from `... running If node. Name:'a' Status Message: ... Name:'b' Status Message: why`.
fn innermost(text: &str) -> String {
    let Some((head, why)) = text.rsplit_once(" Status Message: ") else { return text.to_owned() };
    match head.rsplit_once("Name:'") {
        Some((_, name)) => format!("node `{}`: {}", name.trim_end_matches('\''), essence(why)),
        None => essence(why).to_owned(),
    }
}

/// What an error of ONNX Runtime says, without the path, the status code and the C++ function it came from:
/// `Load model from m.onnx failed:/src/graph.cc:1587 void f(int) [ONNXRuntimeError] : 1 : FAIL : what it says`.
fn essence(text: &str) -> &str {
    let loading = text.strip_prefix("Load model from ").and_then(|rest| rest.split_once(" failed:"));
    let text = loading.map_or(text, |(_, rest)| rest);
    let text = match text.rsplit_once("[ONNXRuntimeError] : ") {
        Some((_, status)) => status.splitn(3, " : ").last().unwrap_or(status),
        None => text,
    };
    let Some(at) = text.find(".cc:").or_else(|| text.find(".h:")) else { return text };
    let mut depth = 0;
    for (index, character) in text.char_indices().skip_while(|(index, _)| *index < at) {
        match character {
            '(' => depth += 1,
            ')' if depth == 1 => return text[index + 1..].trim_start_matches(" const").trim_start(),
            ')' => depth -= 1,
            _ => {}
        }
    }
    text
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_reduced_to_what_they_say() {
        let check = |text: &str, expected: &str| assert_eq!(essence(text), expected);
        check("Load model from a b.onnx failed:Protobuf parsing failed.", "Protobuf parsing failed.");
        check(
            "Load model from m failed:/o/graph.cc:1587 void o::Graph::Init() Output does not exist.",
            "Output does not exist.",
        );
        check(
            "Load model from m failed:/o/graph.cc:14 o::Graph::Graph(const std::map<int(int)>&, bool) \
             [ONNXRuntimeError] : 1 : FAIL : Type mismatch : 1 != 17",
            "Type mismatch : 1 != 17",
        );
        check("a message without a place", "a message without a place");
    }

    #[test]
    fn of_nodes_inside_nodes_the_one_that_failed_is_named() {
        let outer = "Non-zero status code returned while running If node. Name:'If_0' Status Message: ";
        let inner =
            "Non-zero status code returned while running Conv node. Name:'conv' Status Message: no room";
        assert_eq!(innermost(&format!("{outer}{inner}")), "node `conv`: no room");
        assert_eq!(innermost("no node in it"), "no node in it");
    }
}
