//! Card of one model on one engine, assembled from its measurements.

use std::time::Duration;

use orinoco_api::{
    Accuracy, CardMemory, CardVersions, Conditions, MODEL_CARD_SCHEMA, Measured, ModelCard, WarmUp,
};
use orinoco_core::{Diagnosis, WallTime};
use orinoco_model::{Precision, sha256_of};

use super::board::{BoardSensors, value};
use super::latency::{Samples, Throughput};
use super::power::PowerFigures;
use super::subject::Subject;

/// Measurements of a card.
pub(super) struct Parts<'a> {
    pub(super) measured_at: WallTime,
    pub(super) seconds: f64,
    pub(super) input: String,
    pub(super) accuracy: Measured<Accuracy>,
    pub(super) latency: &'a Samples,
    pub(super) throughput: &'a Throughput,
    pub(super) memory: CardMemory,
    pub(super) power: &'a PowerFigures,
    pub(super) warm_up: WarmUp,
    /// Before and after the measurements.
    pub(super) conditions: [Conditions; 2],
}

/// Assembles the card of `subject`.
pub(super) fn assemble(
    subject: &Subject,
    board: &BoardSensors,
    parts: Parts<'_>,
) -> Result<ModelCard, Diagnosis> {
    let loaded = &subject.loaded;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let [before, after] = parts.conditions;
    Ok(ModelCard {
        schema: MODEL_CARD_SCHEMA.to_owned(),
        model: loaded.name.clone(),
        sha256: loaded.model.sha256.clone().map_or_else(|| sha256_of(&loaded.model.file), Ok)?,
        engine: loaded.chosen.name.to_owned(),
        precision: Precision::of(&loaded.model.file).map(|precision| precision.name().to_owned()),
        threads: loaded.chosen.context.options().threads,
        board: board.card_board(cores),
        versions: CardVersions {
            orinoco: env!("CARGO_PKG_VERSION").to_owned(),
            engine: loaded.chosen.version.clone(),
            kernel: value(&board.detection.kernel),
            l4t: value(&board.detection.l4t),
            jetpack: value(&board.detection.jetpack),
        },
        measured_at: utc(parts.measured_at),
        seconds: parts.seconds,
        input: parts.input,
        accuracy: parts.accuracy,
        latency_us: Measured::Value(parts.latency.latency()),
        throughput: parts.throughput.batches.clone(),
        throughput_limit: parts.throughput.limit.clone(),
        memory_bytes: Measured::Value(parts.memory),
        power_w: parts.power.power.clone(),
        energy_mj: parts.power.energy.clone(),
        warm_up: parts.warm_up,
        before,
        after,
    })
}

/// Returns the warm-up for a card.
pub(super) fn warm_up(load: Duration, first: Duration, discarded: u64) -> WarmUp {
    WarmUp { load_us: 1e6 * load.as_secs_f64(), first_us: 1e6 * first.as_secs_f64(), discarded }
}

/// Returns the versions of everything except the engine.
pub(super) fn software(versions: &CardVersions) -> Vec<String> {
    let mut software = vec![format!("orinoco {}", versions.orinoco)];
    software.extend(versions.jetpack.as_ref().map(|jetpack| format!("JetPack {jetpack}")));
    software.extend(versions.l4t.as_ref().map(|l4t| format!("L4T {l4t}")));
    software.extend(versions.kernel.as_ref().map(|kernel| format!("kernel {kernel}")));
    software
}

/// Returns the time of day in UTC: `2026-11-23T02:10:00Z` (RFC 3339). The date is computed as by Howard Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms", section `civil_from_days`: years begin in March, so that leap days are at their ends.
fn utc(time: WallTime) -> String {
    const DAY: u64 = 86_400;
    let seconds = time.unix_nanos() / 1_000_000_000;
    // Days since 0000-03-01; 400 years, an era, have 146,097 days.
    let days = seconds / DAY + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = 400 * era + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds % DAY / 3600, seconds % 3600 / 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_dates_of_the_calendar() {
        let check = |seconds: u64, expected: &str| {
            assert_eq!(utc(WallTime::from_unix_nanos(seconds * 1_000_000_000)), expected);
        };
        check(0, "1970-01-01T00:00:00Z");
        check(951_782_399, "2000-02-28T23:59:59Z");
        check(951_782_400, "2000-02-29T00:00:00Z");
        check(1_795_399_800, "2026-11-23T02:10:00Z");
        check(4_107_542_400, "2100-03-01T00:00:00Z");
    }
}
