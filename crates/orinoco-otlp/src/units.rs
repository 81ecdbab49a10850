//! Names and units of metrics: Prometheus has the unit in the name, OpenTelemetry next to it.

use orinoco_telemetry::MetricKind;

/// Ends of names in Prometheus's form, with the units that they stand for (UCUM).
const UNITS: [(&str, &str); 7] = [
    ("_seconds", "s"),
    ("_bytes", "By"),
    ("_joules", "J"),
    ("_watts", "W"),
    ("_celsius", "Cel"),
    ("_hertz", "Hz"),
    ("_ratio", "1"),
];

/// Returns the name without `_total` and without its unit, and the unit; counts have none. A collector that serves Prometheus adds
/// both again, so that dashboards find the same names (OpenTelemetry, "Prometheus and OpenMetrics Compatibility").
pub(crate) fn name_and_unit(name: &'static str, kind: MetricKind) -> (&'static str, &'static str) {
    let name = match kind {
        MetricKind::Counter => name.strip_suffix("_total").unwrap_or(name),
        MetricKind::Gauge | MetricKind::Histogram => name,
    };
    let with_unit = UNITS.iter().find_map(|&(end, unit)| Some((name.strip_suffix(end)?, unit)));
    with_unit.unwrap_or((name, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use MetricKind::{Counter, Gauge, Histogram};

    /// Returns the name that a collector serves to Prometheus.
    fn served(name: &str, unit: &str, kind: MetricKind) -> String {
        let end = UNITS.iter().find(|(_, known)| *known == unit).map_or("", |(end, _)| end);
        let total = if kind == Counter { "_total" } else { "" };
        format!("{name}{end}{total}")
    }

    #[test]
    fn units_stand_next_to_names_and_come_back() {
        let check = |name, kind, expected: (&str, &str)| {
            let (short, unit) = name_and_unit(name, kind);
            assert_eq!((short, unit), expected);
            assert_eq!(served(short, unit, kind), name);
        };
        check("orinoco_build_info", Gauge, ("orinoco_build_info", ""));
        check("orinoco_frames_in_total", Counter, ("orinoco_frames_in", ""));
        check("orinoco_lane_busy_seconds_total", Counter, ("orinoco_lane_busy", "s"));
        check("orinoco_stream_stage_duration_seconds", Histogram, ("orinoco_stream_stage_duration", "s"));
        check("orinoco_rail_energy_joules_total", Counter, ("orinoco_rail_energy", "J"));
        check("orinoco_temperature_celsius", Gauge, ("orinoco_temperature", "Cel"));
        check("orinoco_fan_duty_ratio", Gauge, ("orinoco_fan_duty", "1"));
        check("orinoco_clock_hertz", Gauge, ("orinoco_clock", "Hz"));
        check("orinoco_rail_power_watts", Gauge, ("orinoco_rail_power", "W"));
        check("orinoco_machine_memory_bytes", Gauge, ("orinoco_machine_memory", "By"));
    }
}
