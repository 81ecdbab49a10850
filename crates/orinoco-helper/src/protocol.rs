//! The protocol: a request is a line of JSON, and so is its answer.

use serde::{Deserialize, Serialize};

/// Path of the socket, which systemd makes.
pub const SOCKET: &str = "/run/orinoco-helper.sock";
/// Version of the protocol.
pub const PROTOCOL_VERSION: u32 = 1;
/// Greatest length of a request with its new line, in bytes. The longest valid one has about 120.
pub const REQUEST_BYTES_MAX: usize = 512;
/// Greatest length of an answer with its new line, in bytes: 32 domains with 128 clocks each, and 64 modes.
pub const ANSWER_BYTES_MAX: usize = 128 << 10;

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Asks what is set, and what can be set.
    Status {},
    /// Sets a power mode by its name.
    SetPowerMode {
        /// Name of a mode that the status lists and that needs no reboot.
        name: String,
    },
    /// Sets the highest clock of a domain.
    SetClock {
        /// Name of a domain that the status lists.
        domain: String,
        /// Clock that the status lists for it.
        hertz: u64,
    },
    /// Restores what was there before the first change.
    Restore {},
}

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// It was done; this is the state now.
    Done(PowerState),
    /// It was refused, and nothing was changed.
    Refused(Refusal),
}

/// Power settings of a board.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerState {
    /// Version of the protocol.
    pub version: u32,
    /// Power modes, in the order of the board's configuration; empty where the board has none.
    pub power_modes: Vec<ModeState>,
    /// Domains of clocks.
    pub clocks: Vec<ClockState>,
    /// Whether something is changed, which is going to be restored.
    pub is_changed: bool,
}

/// Power mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeState {
    /// Name.
    pub name: String,
    /// Whether it is set.
    pub is_current: bool,
    /// Whether it can be set now: no reboot is needed, and what is set now is known.
    pub can_be_set: bool,
}

/// Domain of clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockState {
    /// Name, such as `devfreq/17000000.gpu`.
    pub domain: String,
    /// Highest clock that is allowed now, in hertz.
    pub max: u64,
    /// Clocks that can be set, in hertz, in ascending order. The last is what the power mode or the administrator allows.
    pub available: Vec<u64>,
}

/// Refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Reason, for programs.
    pub reason: RefusalReason,
    /// Reason, for people.
    pub text: String,
}

/// Reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalReason {
    /// The line is no request.
    NotARequest,
    /// This user may not ask.
    NotAllowed,
    /// Another client is connected.
    Busy,
    /// The board does not list this value.
    NotListed,
    /// The power mode needs a reboot.
    NeedsReboot,
    /// The board did not take the value.
    Failed,
}

impl Refusal {
    /// Creates a refusal.
    pub(crate) fn new(reason: RefusalReason, text: impl Into<String>) -> Self {
        Self { reason, text: text.into() }
    }
}

impl Request {
    /// Reads a request from a line without its new line.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, Refusal> {
        serde_json::from_slice(line)
            .map_err(|why| format!("the line is not a valid request: {why}"))
            .map_err(|text| Refusal::new(RefusalReason::NotARequest, text))
    }
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
        let parse = |text: &str| Request::parse(text.as_bytes());
        assert_eq!(parse(r#"{"verb":"status"}"#), Ok(Request::Status {}));
        let clock = Request::SetClock { domain: "cpufreq/policy0".into(), hertz: 729_600_000 };
        assert_eq!(
            parse(r#"{"verb":"set-clock","domain":"cpufreq/policy0","hertz":729600000}"#),
            Ok(clock.clone())
        );
        assert_eq!(Request::parse(line_of(&clock).trim_ascii_end()), Ok(clock));
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
