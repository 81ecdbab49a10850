//! Reads `[governor]`.

use std::ops::RangeInclusive;
use std::time::Duration;

use orinoco_config::TableReader;
use orinoco_core::{Celsius, Choice, Watts, codes};

use crate::{GovernorActuator, GovernorSpec, SocketSpec};

/// Range of power limits, in watts: from less than the smallest module takes to more than the largest.
const POWER_W: RangeInclusive<f64> = 1.0..=500.0;
/// Range of temperature limits, in degrees Celsius: below, a board in the sun could do nothing; above, every Jetson throttles.
const TEMPERATURE_C: RangeInclusive<f64> = 40.0..=105.0;
/// Range of latencies, in milliseconds.
const P99_MS: RangeInclusive<f64> = 1.0..=60_000.0;

/// Quantity of a key: its units with their size, its range in the first unit, and an example.
struct Quantity {
    units: &'static [(&'static str, f64)],
    range: RangeInclusive<f64>,
    example: &'static str,
}

/// Reads the governor; `None` where the board file has none, or switches it off.
pub(super) fn read_governor(table: TableReader<'_>, is_there: bool) -> Option<GovernorSpec> {
    if !is_there {
        table.finish();
        return None;
    }
    let power = Quantity { units: &[("W", 1.0)], range: POWER_W, example: "15 W" };
    let temperature =
        Quantity { units: &[("°C", 1.0), ("C", 1.0)], range: TEMPERATURE_C, example: "80 °C" };
    let latency = Quantity { units: &[("ms", 1.0), ("s", 1_000.0)], range: P99_MS, example: "100 ms" };
    let spec = GovernorSpec {
        power_limit: read_quantity(&table, "power_limit", &power).map(Watts::from_f64),
        temperature_limit: read_quantity(&table, "temperature_limit", &temperature).map(Celsius::from_f64),
        p99: read_quantity(&table, "p99", &latency).map(|ms| Duration::from_secs_f64(ms / 1e3)),
        modes: read_modes(&table),
        actuators: read_actuators(&table),
        helper: read_helper(&table),
    };
    let is_enabled = table.boolean("enabled").unwrap_or(true);
    let limits = ["power_limit", "temperature_limit", "p99"];
    if is_enabled && !limits.iter().any(|key| table.has(key)) {
        let next = "set power_limit, temperature_limit or p99, or enabled = false";
        table.fault("enabled", &codes::KEY_MISSING, "[governor] has no limit and no p99 target", next);
    }
    table.finish();
    is_enabled.then_some(spec)
}

/// Reads a text such as `15 W`, in the first of its units.
fn read_quantity(table: &TableReader<'_>, key: &'static str, quantity: &Quantity) -> Option<f64> {
    let text = table.text(key)?;
    let split = |(unit, size): &(&str, f64)| {
        let number: f64 = text.trim().strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * size)
    };
    let Quantity { units, range, example } = quantity;
    let value = units.iter().find_map(split).filter(|value| value.is_finite());
    let cause = match value {
        Some(value) if range.contains(&value) => return Some(value),
        Some(_) => {
            let unit = units[0].0;
            format!("`{text}` is outside {} {unit} to {} {unit}", range.start(), range.end())
        }
        None => format!("`{text}` is not a number with its unit"),
    };
    table.fault(key, &codes::KEY_RANGE, cause, format!("write {key} = \"{example}\""));
    None
}

fn read_modes(table: &TableReader<'_>) -> Option<Vec<String>> {
    let modes = table.texts_given("modes")?;
    if modes.is_empty() || modes.iter().any(|mode| mode.trim().is_empty()) {
        let next = "list names of power modes (`orinoco board detect` shows them), or remove the key";
        table.fault("modes", &codes::KEY_RANGE, "the list is empty or has an empty name", next);
    }
    Some(modes)
}

/// Reads the settings that may be changed: by default all but the clocks of cores.
fn read_actuators(table: &TableReader<'_>) -> Vec<GovernorActuator> {
    let Some(names) = table.texts_given("actuators") else {
        use GovernorActuator::{GpuClock, Interval, ModelVariant, PowerMode};
        return vec![PowerMode, GpuClock, Interval, ModelVariant];
    };
    let mut actuators = Vec::new();
    let choices: Vec<&str> = GovernorActuator::ALL.iter().map(|actuator| actuator.name()).collect();
    let next = format!("use {}", choices.join(", "));
    for name in &names {
        match GovernorActuator::from_name(name) {
            Some(actuator) if !actuators.contains(&actuator) => actuators.push(actuator),
            Some(_) => {
                let cause = format!("`{name}` is listed more than once");
                table.fault("actuators", &codes::REFERENCE, cause, "list it once");
            }
            None => {
                let cause = format!("no actuator is called `{name}`");
                table.fault("actuators", &codes::KEY_RANGE, cause, &next);
            }
        }
    }
    if names.is_empty() {
        table.fault("actuators", &codes::KEY_RANGE, "the list is empty", next);
    }
    actuators
}

fn read_helper(table: &TableReader<'_>) -> Option<std::path::PathBuf> {
    let text = table.text("helper")?;
    let is_path = !text.is_empty() && text.len() <= SocketSpec::PATH_BYTES_MAX;
    if !is_path {
        let cause = format!("the path has {} bytes", text.len());
        let next = format!("write the path of a socket, of at most {} bytes", SocketSpec::PATH_BYTES_MAX);
        table.fault("helper", &codes::KEY_RANGE, cause, next);
    }
    Some(text.into())
}
