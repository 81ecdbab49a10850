//! Whether the helper of the governor is there, and answers.

use std::io::ErrorKind;
use std::path::PathBuf;

use orinoco_api::{MachinePart, PartState};
use orinoco_board::GovernorSpec;
use orinoco_core::text::count;
use orinoco_helper::{Client, ClientError, PowerState, RefusalReason, SOCKET};

use super::advice::System;
use super::check::{Fix, Group, part, with_fix};

/// Asks the helper of a board that is governed.
pub(super) fn check(spec: &GovernorSpec, system: &System) -> MachinePart {
    let socket = spec.helper.clone().unwrap_or_else(|| PathBuf::from(SOCKET));
    let name = format!("helper {}", socket.display());
    let report = |state, says: String| part(Group::BoardFile, "governor", name.clone(), state, says);
    let is_usual = socket.as_path() == std::path::Path::new(SOCKET);
    let start = |verb: &str| match is_usual {
        true => Fix::commands([system.as_root(&format!("systemctl {verb} orinoco-helper.socket"))]),
        false => Fix::words("start the helper that listens there, or correct `helper` in the board file"),
    };
    match Client::connect(&socket) {
        Ok((_, state)) => report(PartState::Ok, shown(&state)),
        Err(ClientError::Refused(refusal)) if refusal.reason == RefusalReason::Busy => {
            report(PartState::Ok, "it is running, and the daemon is connected to it".to_owned())
        }
        Err(ClientError::Refused(refusal)) if refusal.reason == RefusalReason::NotAllowed => {
            report(PartState::Ok, "it is running; only the daemon's user and root may connect".to_owned())
        }
        Err(ClientError::Connect(why)) if why.kind() == ErrorKind::NotFound => {
            let says = "its socket does not exist: the board file can run, but without the governor";
            with_fix(report(PartState::Missing, says.to_owned()), start("enable --now"))
        }
        Err(ClientError::Connect(why)) if why.kind() == ErrorKind::PermissionDenied => {
            let says = format!("permission denied for {}", system.user.name);
            with_fix(report(PartState::NotChecked, says), system.join_group("orinoco"))
        }
        Err(ClientError::Connect(why)) => {
            with_fix(report(PartState::Broken, format!("it cannot be reached: {why}")), start("restart"))
        }
        Err(why) => with_fix(report(PartState::Broken, why.to_string()), start("restart")),
    }
}

/// Returns what the helper can set.
fn shown(state: &PowerState) -> String {
    if let Some(device) = &state.blocked_by {
        return format!("it is running, but can change nothing until the kernel stops throttling ({device})");
    }
    let modes = state.power_modes.iter().filter(|mode| mode.can_be_set && !mode.is_current).count();
    let clocks = state.clocks.len();
    let (modes, clocks) = (count(modes as u64, "other power mode"), count(clocks as u64, "clock"));
    format!("can set {modes} without a reboot, and {clocks}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_sysroot::Sysroot;

    #[test]
    fn a_missing_helper_comes_with_the_command_that_starts_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let system = System::read(&Sysroot::at(dir.path()));
        let mut spec = GovernorSpec {
            power_limit: None,
            temperature_limit: None,
            p99: None,
            modes: None,
            actuators: Vec::new(),
            helper: Some(dir.path().join("socket")),
        };
        let missing = check(&spec, &system);
        assert_eq!((missing.state, missing.next.is_some()), (PartState::Missing, true));
        if !std::path::Path::new(SOCKET).exists() {
            spec.helper = None;
            let fix = check(&spec, &system).fix;
            assert!(fix[0].ends_with("systemctl enable --now orinoco-helper.socket"), "{fix:?}");
        }
    }
}
