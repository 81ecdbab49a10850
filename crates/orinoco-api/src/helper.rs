//! Messages between a client (`orinocod`, `orinoco doctor`) and `orinoco-helper`, each a line of JSON, and the helper's state file.

use serde::{Deserialize, Serialize};

/// Name of the contract of [`Request`].
pub const REQUEST_SCHEMA: &str = "orinoco.helper-request/1";
/// Name of the contract of [`Answer`].
pub const ANSWER_SCHEMA: &str = "orinoco.helper-answer/1";
/// Name of the contract of [`SavedState`].
pub const SAVED_STATE_SCHEMA: &str = "orinoco.helper-state/1";

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
        /// Clock that the status lists for it, in hertz.
        hertz: u64,
    },
    /// Restores what was there before the first change.
    Restore {},
}

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// It was done; this is the state now.
    Done(PowerState),
    /// It was refused. Unless it failed, nothing was changed.
    Refused(Refusal),
}

/// Power settings of a board.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct PowerState {
    /// Version of the protocol.
    pub version: u32,
    /// Power modes, in the order of the board's configuration; empty where the board has none.
    pub power_modes: Vec<ModeState>,
    /// Domains of clocks, without those whose limit cannot be read now, because the kernel throttles them.
    pub clocks: Vec<ClockState>,
    /// Whether something is changed that the helper will restore.
    pub is_changed: bool,
    /// Cooling device that lowers clocks now, if nothing can be changed until that ends: what was set cannot be read meanwhile, so it
    /// could not be restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
}

/// Power mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ModeState {
    /// Name.
    pub name: String,
    /// Whether it is set.
    pub is_current: bool,
    /// Whether it can be set now: no reboot is needed, and what is set now is known, so that it can be restored.
    pub can_be_set: bool,
}

/// Domain of clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Refusal {
    /// Reason, for programs.
    pub reason: RefusalReason,
    /// Reason, for people.
    pub text: String,
}

/// Reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
    /// The kernel throttles, so what is set now cannot be read.
    Throttled,
    /// The board did not take the value.
    Failed,
}

/// Power settings before the first change, as the helper's state file holds them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SavedState {
    /// Name of the power mode; null where it was not known; then no mode can be set.
    pub power_mode: Option<String>,
    /// Highest clock of each domain.
    pub clocks: Vec<SavedClock>,
}

/// Highest clock of a domain before the first change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SavedClock {
    /// Name of the domain, such as `devfreq/17000000.gpu`.
    pub domain: String,
    /// Clock, in hertz.
    pub hertz: u64,
}
