//! Check of the sensors: each gives a value, or the reason why there is none.

use orinoco_api::{MachinePart, PartState};
use orinoco_board::readers::{Gap, Rail, RailReading, Sensors, Snapshot, Unknown};
use orinoco_sysroot::{ReadErrorKind, Sysroot};

use super::advice::System;
use super::check::{Group, part, with_fix};

/// Reports all sensors with the values of a snapshot.
pub(super) fn checks(
    sensors: &Sensors,
    snapshot: &Snapshot,
    sysroot: &Sysroot,
    system: &System,
) -> Vec<MachinePart> {
    let advice = Advice { sysroot, system };
    let rails = sensors.rails().iter().zip(&snapshot.rails);
    let mut parts: Vec<MachinePart> = rails.map(|(of, reading)| advice.rail(of, reading)).collect();
    for (zone, reading) in sensors.zones().iter().zip(&snapshot.zones) {
        let value = reading.as_ref().map(|temperature| format!("{temperature:.1}"));
        parts.push(advice.value("temperature", &zone.name, value, || vec![zone.path.clone()]));
    }
    for (device, reading) in sensors.devices().iter().zip(&snapshot.devices) {
        let value = reading.clock.as_ref().map(ToString::to_string);
        parts.push(advice.value("clock", &device.name, value, || vec![format!("{}/cur_freq", device.path)]));
    }
    for (policy, reading) in sensors.policies().iter().zip(&snapshot.cpu.policies) {
        let name = format!("CPU {}", cores(&policy.cores));
        let value = reading.clock.as_ref().map(ToString::to_string);
        parts.push(advice.value("clock", &name, value, || vec![format!("{}/scaling_cur_freq", policy.path)]));
    }
    parts.extend(sensors.gaps().iter().filter_map(|gap| advice.gap(gap, &parts)).collect::<Vec<_>>());
    parts
}

/// Board whose sensors are reported, and its system, for the corrections.
struct Advice<'a> {
    sysroot: &'a Sysroot,
    system: &'a System,
}

impl Advice<'_> {
    fn rail(&self, rail: &Rail, reading: &RailReading) -> MachinePart {
        let value = match (&reading.watts, &reading.volts, &reading.amperes) {
            (Ok(watts), Ok(volts), Ok(amperes)) => Ok(format!("{watts:.3} ({volts:.3}, {amperes:.3})")),
            (Ok(watts), ..) => Ok(format!("{watts:.3}")),
            (Err(unknown), ..) => Err(unknown),
        };
        self.value("rail", &rail.name, value, || self.denied_files(&rail.source))
    }

    /// Reports a value. `files` returns those that may be at fault.
    fn value(
        &self,
        kind: &str,
        name: &str,
        value: Result<String, &Unknown>,
        files: impl FnOnce() -> Vec<String>,
    ) -> MachinePart {
        let report = |state, says: String| part(Group::Sensors, kind, name, state, says);
        match value {
            Ok(value) => report(PartState::Ok, value),
            Err(Unknown::File(ReadErrorKind::Denied)) => {
                let files = files();
                let says = format!("permission denied: {}", files.join(", "));
                with_fix(report(PartState::Broken, says), self.system.allow_reading(&files))
            }
            Err(unknown) => report(state(unknown), unknown.to_string()),
        }
    }

    /// Reports something that cannot be read, unless one of `known` says so already, or it is merely not there.
    fn gap(&self, gap: &Gap, known: &[MachinePart]) -> Option<MachinePart> {
        let is_known = known.iter().any(|part| part.says.contains(&gap.path));
        let is_denied = gap.reason.starts_with(&ReadErrorKind::Denied.to_string());
        let is_absent = gap.reason == ReadErrorKind::Absent.to_string();
        if is_known {
            return None;
        }
        let state = match (is_denied, is_absent) {
            (true, _) => PartState::Broken,
            (_, true) => PartState::Missing,
            _ => PartState::NotChecked,
        };
        let found = part(Group::Sensors, "sensor", &*gap.path, state, &gap.reason);
        Some(match is_denied {
            true => with_fix(found, self.system.allow_reading(std::slice::from_ref(&gap.path))),
            false => found,
        })
    }

    /// Returns the files of a rail that may not be read.
    fn denied_files(&self, folder: &str) -> Vec<String> {
        let names = self.sysroot.entries(folder).unwrap_or_default();
        let values = names.iter().filter(|name| name.ends_with("_input") || name.starts_with("energy"));
        let paths = values.map(|name| format!("{folder}/{name}"));
        let is_denied =
            |path: &String| self.sysroot.bytes(path).is_err_and(|error| error.kind == ReadErrorKind::Denied);
        paths.filter(is_denied).collect()
    }
}

/// Returns the state of a sensor without a value.
fn state(unknown: &Unknown) -> PartState {
    match unknown {
        Unknown::File(ReadErrorKind::Absent) | Unknown::NotOffered => PartState::Missing,
        // It may have one at another time, or reports only alarms.
        Unknown::File(ReadErrorKind::Unavailable)
        | Unknown::NeedsSecondReading
        | Unknown::AlarmOnly
        | Unknown::Offline => PartState::NotChecked,
        _ => PartState::Broken,
    }
}

fn cores(numbers: &[u32]) -> String {
    match numbers {
        [first, .., last] => format!("{first}-{last}"),
        [one] => one.to_string(),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use orinoco_core::Nanos;
    use orinoco_sysroot::Recording;

    use super::*;

    #[test]
    fn a_recording_has_no_commands_for_this_machine() {
        let chip = "/sys/class/hwmon/hwmon3";
        let mut recording = Recording::synthetic();
        for (name, text) in [("name", "ina3221\n"), ("in1_label", "VDD_IN\n"), ("in1_input", "5000\n")] {
            recording.add_file(&format!("{chip}/{name}"), text).expect("a file of the board");
        }
        let denied = Err(ReadErrorKind::Denied);
        recording.add_value(&format!("{chip}/curr1_input"), Duration::ZERO, denied).expect("a value");
        let sysroot = Sysroot::replay(recording, || Duration::ZERO);
        let (mut sensors, mut snapshot) = (Sensors::discover(&sysroot), Snapshot::default());
        sensors.read(Nanos(0), &mut snapshot);
        let parts = checks(&sensors, &snapshot, &sysroot, &System::read(&sysroot));
        let rail = parts.iter().find(|part| part.kind == "rail").expect("there is one");
        assert_eq!(rail.says, format!("permission denied: {chip}/curr1_input"));
        assert_eq!(rail.fix, Vec::<String>::new());
        assert!(rail.next.as_ref().is_some_and(|next| next.contains("on the board")), "{rail:?}");
    }
}
