//! Description of this board, by its files.

use orinoco_api::{MachinePart, PartState};
use orinoco_board::{CounterReport, Detection, Fact};

use super::check::{Group, part};

/// Reports what the files of a board say of it, what they contradict, and what is not known.
pub(super) fn checks(found: &Detection) -> Vec<MachinePart> {
    let mut parts = answers(found);
    for conflict in &found.conflicts {
        parts.push(part(Group::Board, "conflict", "files", PartState::Broken, conflict));
    }
    parts
}

/// Returns whether the board is a Jetson, or may be one.
pub(super) fn may_be_jetson(found: &Detection) -> bool {
    found.is_jetson.as_ref().is_none_or(|fact| fact.value)
}

fn answers(found: &Detection) -> Vec<MachinePart> {
    let answer = |key, name: &str, value: Option<(String, &str)>| answer(found, key, name, value);
    let mut parts = vec![answer("model", "model", text(&found.model))];
    if may_be_jetson(found) {
        parts.push(answer("module", "module", text(&found.module)));
        parts.push(answer("soc", "SoC", text(&found.soc)));
        parts.push(answer("l4t", "L4T", text(&found.l4t)));
        parts.push(answer("jetpack", "JetPack", text(&found.jetpack)));
    }
    let memory = found.memory_gib.as_ref().map(|fact| (format!("{} GB", fact.value), fact.source.as_str()));
    parts.push(answer("memory_gb", "memory", memory));
    if may_be_jetson(found) {
        let mode = found.power_mode.as_ref();
        parts.push(answer(
            "power_mode",
            "power mode",
            mode.map(|fact| (fact.value.name.clone(), fact.source.as_str())),
        ));
    }
    parts.extend(found.is_jetson.as_ref().map(|_| total_power(found)));
    let profile = found.profile.as_ref();
    parts.push(answer(
        "profile",
        "profile",
        profile.map(|fact| (fact.value.name.clone(), fact.source.as_str())),
    ));
    parts
}

/// Reports which rail measures the whole input, or the counters of a host's processor, and what they cover.
fn total_power(found: &Detection) -> MachinePart {
    let covers = found.total_covers.as_ref().map_or("", |covers| covers.value.as_str());
    let (readable, denied): (Vec<_>, Vec<_>) =
        found.energy_counters.iter().partition(|counter| counter.unavailable.is_none());
    let names = |counters: &[&CounterReport]| {
        counters.iter().map(|of| of.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let (state, says) = match &found.total_rail {
        Some(rail) => (PartState::Ok, format!("{}: {covers}", rail.value)),
        None if found.rails.is_empty() && !readable.is_empty() => {
            (PartState::Ok, format!("energy counters {}. {covers}", names(&readable)))
        }
        None if found.rails.is_empty() && !denied.is_empty() => {
            (PartState::Missing, format!("energy counters {} cannot be read. {covers}", names(&denied)))
        }
        None if found.rails.is_empty() => {
            let places = match may_be_jetson(found) {
                true => "/sys/class/hwmon, /sys/bus/i2c or /sys/bus/iio",
                false => "/sys/class/hwmon, /sys/class/powercap or /sys/bus/iio",
            };
            (PartState::Missing, format!("there is no power sensor under {places}"))
        }
        None if covers.is_empty() => {
            (PartState::NotChecked, "unknown which rail measures the whole input".to_owned())
        }
        None => (PartState::Missing, covers.to_owned()),
    };
    part(Group::Board, "board", "total power", state, says)
}

fn text(fact: &Option<Fact<String>>) -> Option<(String, &str)> {
    fact.as_ref().map(|fact| (fact.value.clone(), fact.source.as_str()))
}

/// Reports an answer with its source, or the file that gave none.
fn answer(found: &Detection, key: &str, name: &str, value: Option<(String, &str)>) -> MachinePart {
    let (state, says) = match value {
        Some((value, source)) => (PartState::Ok, format!("{value} ({source})")),
        None => {
            let problem = found.problems.iter().find(|problem| problem.key == key);
            let why = problem.map(|problem| format!("unknown: {} {}", problem.path, problem.cause));
            (PartState::NotChecked, why.unwrap_or_else(|| "unknown: no file says it".to_owned()))
        }
    };
    part(Group::Board, "board", name, state, says)
}
