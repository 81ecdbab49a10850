//! Settings of the energy meter for the rails of a board.

use std::time::Duration;

use orinoco_board::readers::{Rail, RailKind, RailReading};
use orinoco_core::Watts;
use orinoco_telemetry::energy::{Averaging, Covers, MeterSettings, Rail as MeterRail, Sensor};

/// Tolerance of a shunt resistor. No file of a board gives it; 1 % is usual, also on NVIDIA's carriers.
const SHUNT_TOLERANCE: f64 = 0.01;
/// Tolerance that is assumed for counters and powers of processors and GPUs, whose makers state none. NVIDIA states 5 % for the
/// power of its boards (NVML reference, nvmlDeviceGetPowerUsage).
const ASSUMED_TOLERANCE: f64 = 0.05;
/// Tolerance of the clock of a power monitor (INA3221 data sheet SBOS576, section 6.5: 1.1 ms is at most 1.21 ms).
const CLOCK_TOLERANCE: f64 = 0.1;
/// Time between two updates of a processor's energy counter (Intel Software Developer's Manual, volume 3, "RAPL Interfaces").
const COUNTER_PERIOD: Duration = Duration::from_millis(1);
/// Resolution that is assumed where the driver gives none: the unit in which hwmon's drivers round currents, at 5 V.
const ASSUMED_RESOLUTION: Watts = Watts::from_milli(5);
/// Greatest delay with which lanes report a batch: one that takes longer is attributed as far as it is known.
const LATENESS_MAX: Duration = Duration::from_secs(2);
/// Number of pairs of a model's stage and a unit that are told apart: ten models on the processor.
const COLUMNS_MAX: usize = 32;

/// Returns the settings with which the energy of a board is measured from readings about every `sample_period`. The total is
/// the rail named `total`, which measures the whole input; without one, it is every rail that is not part of another and has
/// the kind of chip of the first.
///
/// # Errors
/// Says why the energy cannot be measured.
pub fn meter_settings(
    rails: &[Rail],
    readings: &[RailReading],
    total: Option<&str>,
    sample_period: Duration,
) -> Result<MeterSettings, String> {
    let is_top = |rail: &&Rail| rail.part_of.is_none();
    let first = rails.iter().find(|rail| Some(rail.name.as_str()) == total).or(rails.iter().find(is_top));
    let first = first.ok_or("the board has no power sensor that can be read")?;
    let is_in_total = |rail: &Rail| match total {
        Some(total) if first.name == total => rail.name == total,
        _ => is_top(&rail) && rail.chip == first.chip,
    };
    let settings = |(rail, reading): (&Rail, &RailReading)| MeterRail {
        name: rail.name.as_str().into(),
        resolution: rail.watts_step(reading).unwrap_or(ASSUMED_RESOLUTION),
        gain_tolerance: if rail.i2c.is_some() { SHUNT_TOLERANCE } else { ASSUMED_TOLERANCE },
        is_in_total: is_in_total(rail),
    };
    Ok(MeterSettings {
        rails: rails.iter().zip(readings).map(settings).collect(),
        covers: if Some(first.name.as_str()) == total { Covers::Input } else { Covers::NamedRails },
        sensor: sensor(first, sample_period),
        sample_period,
        idle: None,
        lateness_max: LATENESS_MAX,
        columns_max: COLUMNS_MAX,
    })
}

/// Returns the timing of a rail's sensor. A counter gives the average since the last reading.
fn sensor(rail: &Rail, sample_period: Duration) -> Sensor {
    match rail.kind {
        RailKind::EnergyCounter { .. } => Sensor {
            update_period: COUNTER_PERIOD,
            averaging: Averaging::Window(sample_period),
            clock_tolerance: 0.0,
        },
        RailKind::Power => {
            let period = rail.period.unwrap_or(sample_period);
            Sensor {
                update_period: period,
                averaging: Averaging::Window(period),
                clock_tolerance: CLOCK_TOLERANCE,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_board::readers::Sensors;
    use orinoco_board::readers::Snapshot;
    use orinoco_core::Nanos;
    use orinoco_sysroot::Sysroot;
    use std::fs;

    /// Writes an INA3221 with three labelled rails, and reads them.
    fn settings(labels: [&str; 3], total: Option<&str>) -> Result<MeterSettings, String> {
        let dir = tempfile::tempdir().expect("temporary folder");
        let chip = dir.path().join("sys/class/hwmon/hwmon3");
        fs::create_dir_all(&chip).expect("made");
        let put = |name: &str, text: &str| fs::write(chip.join(name), text).expect("written");
        put("name", "ina3221\n");
        for (number, label) in (1..).zip(labels) {
            put(&format!("in{number}_label"), label);
            put(&format!("in{number}_input"), "5000\n");
            put(&format!("curr{number}_input"), "400\n");
            put(&format!("shunt{number}_resistor"), "5000\n");
        }
        let mut sensors = Sensors::discover(&Sysroot::at(dir.path()));
        let mut snapshot = Snapshot::default();
        sensors.read(Nanos(0), &mut snapshot);
        meter_settings(sensors.rails(), &snapshot.rails, total, Duration::from_millis(100))
    }

    #[test]
    fn the_rail_of_the_input_is_the_total() {
        let settings = settings(["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"], Some("VDD_IN")).expect("rails");
        let in_total: Vec<bool> = settings.rails.iter().map(|rail| rail.is_in_total).collect();
        assert_eq!((in_total, settings.covers), (vec![true, false, false], Covers::Input));
    }

    #[test]
    fn without_an_input_rail_the_rails_are_added_up() {
        let settings = settings(["GPU", "CPU", "SOC"], None).expect("rails");
        assert!(settings.rails.iter().all(|rail| rail.is_in_total));
        assert_eq!(settings.covers, Covers::NamedRails);
    }

    #[test]
    fn a_board_without_rails_says_why_nothing_is_measured() {
        let why = meter_settings(&[], &[], None, Duration::from_millis(100)).expect_err("no rail");
        assert_eq!(why, "the board has no power sensor that can be read");
    }
}
