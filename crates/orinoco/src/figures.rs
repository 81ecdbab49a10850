//! Figures of a board's status as text, as `orinoco status` and `orinoco top` show them.

use orinoco_api::{EnergyFigure, EventJson, StageSummary, Status, StreamStatus};

/// Shown where a value is not known.
pub(crate) const UNKNOWN: &str = "-";

/// Formats a time in its two greatest units.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3_600 => format!("{} min {} s", whole / 60, whole % 60),
        3_600..86_400 => format!("{} h {} min", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{} d {} h", whole / 86_400, whole % 86_400 / 3_600),
    }
}

/// Formats a value with this number of decimals, or `-`.
pub(crate) fn value(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| format!("{value:.decimals$}"))
}

/// Formats a share as whole percents, or `-`.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| UNKNOWN.to_owned(), |share| format!("{:.0} %", share * 100.0))
}

/// Returns the percentiles of a stage.
pub(crate) fn stage<'s>(stages: &'s [StageSummary], name: &str) -> Option<&'s StageSummary> {
    stages.iter().find(|stage| stage.stage == name)
}

/// Formats a percentile of a stage in milliseconds, or `-` where the stage has no samples.
pub(crate) fn milliseconds(stage: Option<&StageSummary>, percentile: fn(&StageSummary) -> f64) -> String {
    value(stage.map(|stage| percentile(stage) / 1e3), 2)
}

/// Returns the number of a stream's dropped frames.
pub(crate) fn dropped(stream: &StreamStatus) -> u64 {
    stream.dropped.iter().map(|dropped| dropped.frames).sum()
}

/// Whether a stream delivers frames, or has delivered all of them.
pub(crate) fn delivers(stream: &StreamStatus) -> bool {
    matches!(stream.state.as_str(), "live" | "ended")
}

/// Formats an energy with its half-width: `12.3 ± 0.4`, or `-` where it is not measured.
pub(crate) fn millijoules(figure: Option<&EnergyFigure>) -> String {
    let Some(mj) = figure.and_then(|figure| figure.mj) else { return UNKNOWN.to_owned() };
    match figure.and_then(|figure| figure.half_width_mj) {
        Some(half_width) => format!("{mj:.1} ± {half_width:.1}"),
        None => format!("{mj:.1}"),
    }
}

/// Formats an energy with the unit that leaves few digits.
pub(crate) fn joules(joules: f64) -> String {
    match joules.abs() {
        0.0..1e4 => format!("{joules:.0} J"),
        1e4..1e7 => format!("{:.1} kJ", joules / 1e3),
        _ => format!("{:.1} MJ", joules / 1e6),
    }
}

/// Returns the power of the rails that the board adds up, in watts; `None` where one of them is not known.
pub(crate) fn total_watts(status: &Status) -> Option<f64> {
    let rails = &status.energy.rails;
    let watts = |name: &String| status.sensors.rails.iter().find(|rail| rail.name == *name)?.watts;
    let watts: Option<Vec<f64>> = rails.iter().map(watts).collect();
    watts.filter(|watts| !watts.is_empty()).map(|watts| watts.iter().sum())
}

/// Returns the parts of an event: its age, and what happened to whom.
pub(crate) fn event(event: &EventJson, status: &Status) -> (String, String) {
    (format!("{} ago", duration(status.uptime_s - event.at_s)), event.text.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_two_units() {
        let check = |seconds, expected: &str| assert_eq!(duration(seconds), expected);
        check(-0.5, "0 s");
        check(59.9, "59 s");
        check(61.0, "1 min 1 s");
        check(3_600.0 * 3.0 + 725.0, "3 h 12 min");
        check(86_400.0 * 2.0 + 3_600.0 * 5.5, "2 d 5 h");
    }

    #[test]
    fn energies_have_few_digits() {
        let check = |value, expected: &str| assert_eq!(joules(value), expected);
        check(0.4, "0 J");
        check(9_999.0, "9999 J");
        check(149_812.0, "149.8 kJ");
        check(12_345_678.0, "12.3 MJ");
    }

    #[test]
    fn an_energy_without_a_half_width_is_shown_alone() {
        let figure = |mj, half_width_mj| EnergyFigure { mj, half_width_mj, shared: None, not_measured: None };
        assert_eq!(millijoules(Some(&figure(Some(12.34), Some(0.41)))), "12.3 ± 0.4");
        assert_eq!(millijoules(Some(&figure(Some(12.34), None))), "12.3");
        assert_eq!(millijoules(Some(&figure(None, None))), "-");
        assert_eq!(millijoules(None), "-");
    }
}
