//! Classification of ONNX Runtime's errors, and reduction of their messages to the cause.

use ort::{Error, ErrorCode};

use crate::engine_error::{EngineError, NOT_ONNX};

/// Classifies an error of loading a model: the file is not ONNX, an operator is missing, or the model is broken.
pub(super) fn read_error(why: &Error) -> EngineError {
    classify(why.code(), why.message())
}

fn classify(code: ErrorCode, message: &str) -> EngineError {
    const LACKING: [&str; 6] = [
        "Could not find an implementation for",
        "is not a registered function/op",
        "No Op registered for",
        "is under development and support for this is limited",
        "Unsupported model IR version",
        "Unrecognized op",
    ];
    /// Text of the error where nodes would run on the CPU. It does not name them.
    const NOT_ON_GPU: &str = "fallback to CPU EP has been explicitly disabled";
    const ON_CPU: &str = "ONNX Runtime would run some of its nodes on the CPU: operators that its CUDA provider lacks, or computations of shapes";
    let text = essence(message);
    match code {
        _ if text.contains(NOT_ON_GPU) => EngineError::Unsupported(ON_CPU.to_owned()),
        ErrorCode::InvalidProtobuf | ErrorCode::NoModel => EngineError::Unreadable(NOT_ONNX.to_owned()),
        ErrorCode::NotImplemented => EngineError::Unsupported(text.to_owned()),
        _ if LACKING.iter().any(|lacking| text.contains(lacking)) => {
            EngineError::Unsupported(text.to_owned())
        }
        _ => EngineError::Unreadable(text.to_owned()),
    }
}

/// Returns the error of a failed run. ONNX Runtime repeats the message of each node around the failed one before the
/// reason.
pub(super) fn run_error(why: &Error) -> EngineError {
    let text = essence(why.message());
    EngineError::Run { cause: innermost(text), message: text.to_owned() }
}

/// Returns the failed node and its reason from a text such as
/// `... running If node. Name:'a' Status Message: ... Name:'b' Status Message: why`.
fn innermost(text: &str) -> String {
    let Some((head, why)) = text.rsplit_once(" Status Message: ") else { return text.to_owned() };
    match head.rsplit_once("Name:'") {
        Some((_, name)) => format!("node `{}`: {}", name.trim_end_matches('\''), essence(why)),
        None => essence(why).to_owned(),
    }
}

/// Returns the message of an error without the path, the status code and the C++ function:
/// `Load model from m.onnx failed:/src/graph.cc:1587 void f(int) [ONNXRuntimeError] : 1 : FAIL : message`.
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
    fn an_operator_that_the_gpu_lacks_is_no_fault_of_the_file() {
        let text = "This session contains graph nodes that are assigned to the default CPU EP, but fallback to CPU EP has \
                    been explicitly disabled by the user.";
        let error = classify(ErrorCode::GenericFailure, text);
        assert!(matches!(error, EngineError::Unsupported(_)), "{error:?}");
    }

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
