//! Choice of the rails by which energy is measured, and their timing and errors.

use std::sync::Arc;
use std::time::Duration;

use orinoco_board::readers::{Rail, RailKind, RailReading, Snapshot, Unknown};
use orinoco_core::{Amperes, ComputeUnit, Joules, Nanos, Volts, Watts};
use orinoco_telemetry::energy::{self, Averaging, Covers, MeterSettings, Sensor, TIME_MAX};

use super::super::board::BoardSensors;

/// Shortest mean time between two readings. Reading a rail takes some system calls, and a chip on I2C some of 0.1 ms.
const SAMPLE_PERIOD_MIN: Duration = Duration::from_millis(20);
/// Update period of a sensor whose driver gives none. Its averages are then over half as much to twice as much.
const PERIOD_UNKNOWN: Duration = Duration::from_millis(100);
/// Period in which a GPU's counter is updated: up to 100 ms, by Yang, Adamek and Armour, "Part-time Power Measurements:
/// nvidia-smi's Lack of Attention" (2023), table 2.
const NVML_PERIOD: Duration = Duration::from_millis(100);
/// Mean length of a burst, in times over which the sensor averages: shorter ones cannot be told from pauses.
const BURST_WIDTHS: u32 = 10;
/// Shortest mean length of a burst.
const BURST_MIN: Duration = Duration::from_millis(400);

/// Greatest relative error of shunt and amplifier of an INA sensor on a board: shunts are of 1 % where their board's profile
/// says nothing else (docs/energy.md).
const SHUNT_TOLERANCE: f64 = 0.01;
/// Greatest relative error of a power that a processor or a GPU reports itself. NVML's reference gives 5 % for the power
/// (nvmlDeviceGetPowerUsage); for RAPL there is no published bound, and the same is assumed.
const REPORTED_TOLERANCE: f64 = 0.05;
/// Greatest relative error of the clock of an INA sensor (datasheet SBOS576, section 6.5: 1.1 ms take at most 1.21 ms).
const INA_CLOCK_TOLERANCE: f64 = 0.1;
/// The same for a counter that is read by this machine's clock.
const COUNTER_CLOCK_TOLERANCE: f64 = 0.01;
/// The same for a sensor whose period is not known: the greatest that the meter accepts.
const UNKNOWN_CLOCK_TOLERANCE: f64 = 0.5;
/// Step of an energy counter of a processor: 2^-14 J, the largest in use (Intel 64 and IA-32 Architectures Software
/// Developer's Manual, volume 3B, section 15.10.1: 2^-16 J; 2^-14 J on servers and by AMD).
const RAPL_STEP: Joules = Joules::from_micro(61);
/// Step of the energy counter of a GPU (nvmlDeviceGetTotalEnergyConsumption gives millijoules).
const NVML_STEP: Joules = Joules::from_milli(1);
/// Time after which every batch is known. All are known before the first reading is attributed.
const LATENESS: Duration = Duration::from_secs(1);

/// Rails by which energy is measured.
#[derive(Clone, Debug)]
pub(in super::super) struct ChosenRails {
    /// Their indices in the list of the sensors.
    pub(super) indices: Vec<usize>,
    /// Settings of the meter, with the rails in the same order.
    pub(super) settings: MeterSettings,
    /// Whether they count energy.
    pub(super) is_counter: bool,
}

impl ChosenRails {
    /// Returns the mean length of a burst that the sensors can tell from a pause.
    pub(super) fn burst(&self) -> Duration {
        let Sensor { update_period, averaging, .. } = self.settings.sensor;
        let width = match averaging {
            Averaging::Window(window) => update_period + window,
            Averaging::Exponential { samples, .. } => update_period * u32::from(samples.max(1)),
        };
        (width * BURST_WIDTHS).max(BURST_MIN)
    }
}

/// Chooses the rails for a model that computes on `unit`: the GPU's own on a discrete GPU, else the one that measures the
/// whole input of the board, else the parts that its profile names, else the processor's counters, else the GPU's. The
/// error is the reason why there is none, as a sentence.
pub(in super::super) fn choose(
    board: &mut BoardSensors,
    unit: ComputeUnit,
    now: Nanos,
) -> Result<ChosenRails, String> {
    let mut snapshot = Snapshot::default();
    board.sensors.read_rails(now, &mut snapshot);
    let rails = board.sensors.rails();
    if rails.is_empty() {
        return Err(no_rails(board));
    }
    let total = total_rail(board, rails);
    let parts = parts(board, rails);
    let with_chip = |chip: &str| indices(rails, |rail| rail.chip == chip && rail.part_of.is_none());
    let (gpus, counters) = (with_chip("nvml"), processor(rails));
    let candidates = [
        (if unit == ComputeUnit::Gpu { gpus.clone() } else { Vec::new() }, Covers::NamedRails),
        (total.into_iter().collect(), Covers::Input),
        (parts, Covers::NamedRails),
        (counters, Covers::NamedRails),
        (gpus, Covers::NamedRails),
    ];
    let known = candidates.into_iter().filter(|(indices, _)| !indices.is_empty());
    let mut unreadable = None;
    for (indices, covers) in known {
        match indices.iter().find_map(|index| failure(&rails[*index], &snapshot.rails[*index])) {
            None => return Ok(chosen(board, &snapshot, indices, covers)),
            Some(reason) => unreadable = unreadable.or(Some(reason)),
        }
    }
    let names: Vec<&str> = rails.iter().map(|rail| rail.name.as_str()).collect();
    Err(unreadable.unwrap_or_else(|| {
        format!(
            "it is not known which of the rails {} measure the whole board, and adding them up could count power twice",
            names.join(", ")
        )
    }))
}

/// Returns why there is no rail: what could not be read of the places where rails are found.
fn no_rails(board: &BoardSensors) -> String {
    const PLACES: [&str; 4] = ["hwmon", "powercap", "iio", "NVML"];
    let gaps = board.sensors.gaps().iter();
    let gaps = gaps.filter(|gap| PLACES.iter().any(|place| gap.path.contains(place)));
    let mut reasons: Vec<String> = gaps.map(|gap| format!("{}: {}", gap.path, gap.reason)).collect();
    reasons.dedup();
    let none = "this machine has no power sensor under /sys/class/hwmon, /sys/class/powercap or /sys/bus/iio";
    match reasons.is_empty() {
        true => none.to_owned(),
        false => format!("{none} ({})", reasons.join("; ")),
    }
}

fn indices(rails: &[Rail], is_wanted: impl Fn(&Rail) -> bool) -> Vec<usize> {
    (0..rails.len()).filter(|index| is_wanted(&rails[*index])).collect()
}

/// Returns the rail that measures the whole input, as the board's detection names it.
fn total_rail(board: &BoardSensors, rails: &[Rail]) -> Option<usize> {
    let total = board.detection.total_rail.as_ref()?;
    let by_name = rails.iter().position(|rail| rail.name == total.value);
    by_name.or_else(|| {
        // Where the driver has no label, the detection names the rail by the profile or by its place.
        let is_total = |report: &&orinoco_board::RailReport| {
            report.name.as_ref().is_none_or(|name| *name == total.value) && report.source == total.source
        };
        let report = board.detection.rails.iter().find(is_total)?;
        let is_same = |rail: &Rail| {
            rail.i2c.is_some() && rail.i2c == report.i2c && rail.channel.unwrap_or(1) == report.channel
        };
        rails.iter().position(is_same)
    })
}

/// Returns the rails that the profile of the board lists as parts of its consumption, where none measures the whole.
fn parts(board: &BoardSensors, rails: &[Rail]) -> Vec<usize> {
    let profile = board.detection.profile.as_ref().map(|profile| profile.value);
    let Some(profile) =
        profile.filter(|profile| profile.total.as_ref().is_some_and(|total| total.rail.is_none()))
    else {
        return Vec::new();
    };
    indices(rails, |rail| profile.rails.iter().any(|known| known.name == rail.name))
}

/// Returns the counters of the processor: that of the whole platform, else those of its packages.
fn processor(rails: &[Rail]) -> Vec<usize> {
    let of_rapl = |rail: &Rail| rail.chip == "intel-rapl" && rail.part_of.is_none();
    let platform = indices(rails, |rail| of_rapl(rail) && rail.name.starts_with("psys"));
    if platform.is_empty() { indices(rails, of_rapl) } else { platform }
}

/// Returns the reason why a rail cannot be read, as a sentence.
fn failure(rail: &Rail, reading: &RailReading) -> Option<String> {
    match &reading.watts {
        Ok(_) | Err(Unknown::NeedsSecondReading) => None,
        Err(reason) => Some(format!("rail {} of {} gives no power: {reason}", rail.name, rail.source)),
    }
}

fn chosen(board: &BoardSensors, snapshot: &Snapshot, indices: Vec<usize>, covers: Covers) -> ChosenRails {
    let rails = board.sensors.rails();
    let first = &rails[indices[0]];
    let is_counter = matches!(first.kind, RailKind::EnergyCounter { .. });
    let update_period = match first.chip.as_str() {
        "nvml" => NVML_PERIOD,
        _ => first.period.unwrap_or(PERIOD_UNKNOWN).min(TIME_MAX / 2),
    };
    let sample_period =
        if first.chip == "nvml" { 2 * NVML_PERIOD } else { update_period }.max(SAMPLE_PERIOD_MIN);
    let sensor = match is_counter {
        true => Sensor {
            update_period,
            averaging: Averaging::Window(sample_period),
            clock_tolerance: COUNTER_CLOCK_TOLERANCE,
        },
        false => sensor(board, first, update_period),
    };
    let rail = |index: &usize| energy::Rail {
        name: Arc::from(rails[*index].name.as_str()),
        resolution: resolution(&rails[*index], &snapshot.rails[*index], sample_period),
        gain_tolerance: gain_tolerance(&rails[*index]),
        is_in_total: true,
    };
    let settings = MeterSettings {
        rails: indices.iter().map(rail).collect(),
        covers,
        sensor,
        sample_period,
        idle: None,
        lateness_max: LATENESS,
        columns_max: energy::COLUMNS_MAX,
    };
    ChosenRails { indices, settings, is_counter }
}

/// Returns the timing of a sensor that samples. The period of an INA3221 is that of all its averages (drivers/hwmon/ina3221.c,
/// `ina3221_reg_to_interval_us`), and its register takes each conversion in at once.
fn sensor(board: &BoardSensors, rail: &Rail, period: Duration) -> Sensor {
    let clock_tolerance = if rail.period.is_some() { INA_CLOCK_TOLERANCE } else { UNKNOWN_CLOCK_TOLERANCE };
    let plain = Sensor { update_period: period, averaging: Averaging::Window(period), clock_tolerance };
    if rail.chip != "ina3221" {
        return plain;
    }
    let samples: u16 = board.sysroot.number(&format!("{}/samples", rail.source)).unwrap_or(1).max(1);
    let channels = board.sensors.rails().iter().filter(|other| other.source == rail.source).count() as u32;
    let update_period = (period / u32::from(samples)).max(Duration::from_micros(1));
    // A channel has a conversion of the shunt's voltage and one of the bus voltage.
    let conversion = (update_period / (2 * channels.max(1))).max(Duration::from_nanos(1));
    let averaging = match samples {
        1 => Averaging::Window(conversion),
        samples => Averaging::Exponential { samples, conversion },
    };
    Sensor { update_period, averaging, clock_tolerance }
}

/// Returns the smallest difference of two readings of a rail's power.
fn resolution(rail: &Rail, reading: &RailReading, sample_period: Duration) -> Watts {
    let step = match (rail.kind, rail.chip.as_str()) {
        (RailKind::EnergyCounter { .. }, "nvml") => Some(NVML_STEP / sample_period),
        (RailKind::EnergyCounter { .. }, _) => {
            Some(rail.resolution.joules.unwrap_or(RAPL_STEP) / sample_period)
        }
        (RailKind::Power, "nvml") => Some(Watts::from_milli(1)),
        (RailKind::Power, _) => rail.watts_step(reading).or_else(|| driver_step(reading)),
    };
    step.unwrap_or(Watts::from_micro(1))
}

/// Returns the step of a product of a voltage in whole mV and a current in whole mA, as hwmon gives them.
fn driver_step(reading: &RailReading) -> Option<Watts> {
    let (volts, amperes) = (reading.volts.as_ref().ok()?.abs(), reading.amperes.as_ref().ok()?.abs());
    Some(volts * Amperes::from_milli(1) + Volts::from_milli(1) * amperes)
}

fn gain_tolerance(rail: &Rail) -> f64 {
    if rail.chip.starts_with("ina") { SHUNT_TOLERANCE } else { REPORTED_TOLERANCE }
}
