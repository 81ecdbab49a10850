//! The protocol: a request is a line of JSON, and so is its answer. Their types are contracts.

use orinoco_api::helper::{Refusal, RefusalReason, Request};
use serde::Serialize;

/// Path of the socket, which systemd makes.
pub const SOCKET: &str = "/run/orinoco-helper.sock";
/// Version of the protocol.
pub const PROTOCOL_VERSION: u32 = 1;
/// Greatest length of a request with its new line, in bytes. The longest valid one has about 120.
pub const REQUEST_BYTES_MAX: usize = 512;
/// Greatest length of an answer with its new line, in bytes: 32 domains with 128 clocks each, and 64 modes.
pub const ANSWER_BYTES_MAX: usize = 128 << 10;

/// Creates a refusal.
pub(crate) fn refusal(reason: RefusalReason, text: impl Into<String>) -> Refusal {
    Refusal { reason, text: text.into() }
}

/// Reads a request from a line without its new line.
pub(crate) fn parse(line: &[u8]) -> Result<Request, Refusal> {
    serde_json::from_slice(line)
        .map_err(|why| format!("the line is not a valid request: {why}"))
        .map_err(|text| refusal(RefusalReason::NotARequest, text))
}

/// Returns a message as a line with its new line.
pub(crate) fn line_of(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("a message has only texts and whole numbers");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_one_of_the_verbs_and_nothing_more() {
        let parse = |text: &str| parse(text.as_bytes());
        assert_eq!(parse(r#"{"verb":"status"}"#), Ok(Request::Status {}));
        let clock = Request::SetClock { domain: "cpufreq/policy0".into(), hertz: 729_600_000 };
        assert_eq!(
            parse(r#"{"verb":"set-clock","domain":"cpufreq/policy0","hertz":729600000}"#),
            Ok(clock.clone())
        );
        assert_eq!(super::parse(line_of(&clock).trim_ascii_end()), Ok(clock));
        for wrong in [
            "",
            "{}",
            "null",
            r#"{"verb":"status","more":1}"#,
            r#"{"verb":"set-power-mode"}"#,
            r#"{"verb":"set-power-mode","name":3}"#,
            r#"{"verb":"set-power-mode","name":"15W","id":0}"#,
            r#"{"verb":"set-clock","domain":"x","hertz":-1}"#,
            r#"{"verb":"run","command":"id"}"#,
            r#"{"verb":"status"} {"verb":"status"}"#,
        ] {
            let refused = parse(wrong).expect_err(wrong);
            assert_eq!(refused.reason, RefusalReason::NotARequest, "{wrong}");
        }
    }
}
