//! Choice of the rails by which energy is measured, with their timing and errors: one for a running board and for benchmarks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use orinoco_board::readers::{Rail, RailKind, RailReading, Sensors, Snapshot, Unknown};
use orinoco_board::{Detection, RailProfile, RailReport, SensorsSpec};
use orinoco_core::{Amperes, ComputeUnit, Joules, Nanos, Rng, Volts, Watts};
use orinoco_telemetry::energy::{
    self, Averaging, COLUMNS_MAX, Covers, MeterSettings, SampleSchedule, Sensor, TIME_MAX,
};

/// Shortest mean time between two readings.
const SAMPLE_PERIOD_MIN: Duration = SensorsSpec::POWER_INTERVAL_MIN;
const _: () = assert!(SensorsSpec::POWER_INTERVAL_MAX.as_nanos() <= TIME_MAX.as_nanos());
/// Update period of a sensor whose driver gives none. Its averages are then over half as much to twice as much.
const PERIOD_UNKNOWN: Duration = Duration::from_millis(100);
/// Period in which a GPU's counter is updated: up to 100 ms, by Yang, Adamek and Armour, "Part-time Power Measurements:
/// nvidia-smi's Lack of Attention" (2023), table 2.
const NVML_PERIOD: Duration = Duration::from_millis(100);

/// Greatest relative error of shunt and amplifier of an INA sensor on a board: no file gives it, and shunts are usually of 1 %
/// (docs/energy.md).
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
/// Resolution of a sensor of which nothing is known: the unit of hwmon's powers.
const STEP_UNKNOWN: Watts = Watts::from_micro(1);
/// Time for which the meter waits for batches at first; after a slower one it waits longer.
const LATENESS_MAX: Duration = Duration::from_secs(2);

/// Rails of a board by which its energy is measured. All rails are counted; those in the total are attributed to models.
#[derive(Clone, Debug)]
pub struct EnergyRails {
    settings: MeterSettings,
    is_counter: bool,
}

/// Reason why no rails can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnergyRailsError {
    /// The board has no power sensor.
    None {
        /// Files and libraries that could not be read while looking for one, with the reasons.
        gaps: Vec<String>,
    },
    /// A rail that is needed has no power reading.
    Unreadable {
        /// Name of the rail.
        rail: String,
        /// Folder of its files, or another description of its source.
        source: String,
        /// Reason why it gives none.
        reason: Unknown,
    },
    /// Neither a name nor a profile tells which rails measure the whole board.
    TotalUnknown {
        /// Names of the rails.
        rails: Vec<String>,
    },
}

impl fmt::Display for EnergyRailsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None { gaps } => {
                f.write_str(
                    "this machine has no power sensor under /sys/class/hwmon, /sys/class/powercap or /sys/bus/iio",
                )?;
                if gaps.is_empty() { Ok(()) } else { write!(f, " ({})", gaps.join("; ")) }
            }
            Self::Unreadable { rail, source, reason } => {
                write!(f, "rail {rail} of {source} has no power reading: {reason}")
            }
            Self::TotalUnknown { rails } => write!(
                f,
                "it is not known which of the rails {} measure the whole board, and adding them up could count power twice",
                rails.join(", ")
            ),
        }
    }
}

impl std::error::Error for EnergyRailsError {}

/// Times at which rails are read.
#[derive(Clone, Debug)]
pub enum ReadingTimes {
    /// A random time in each period: a sensor that samples sees only what happens while it converts.
    Random(SampleSchedule, Rng),
    /// Every period: a counter misses nothing, and its readings average over the time between them.
    Regular {
        /// Time of the next reading.
        next: Nanos,
        /// Time between two readings.
        period: Duration,
    },
}

impl ReadingTimes {
    /// Returns the time of the next reading, which is not before `now`.
    pub fn next(&mut self, now: Nanos) -> Nanos {
        match self {
            Self::Random(schedule, rng) => schedule.next_sample(now, rng),
            Self::Regular { next, period } => {
                let at = (*next).max(now);
                *next = at + *period;
                at
            }
        }
    }
}

impl EnergyRails {
    /// Chooses the rails of the total for models that compute on `unit`: the GPU's own on a discrete GPU, else the one that
    /// measures the whole input of the board, else the parts that its profile names, else the processor's counters, else the
    /// GPU's. `period` is the mean time between two readings, which is longer where a sensor is slower; `None` reads as often
    /// as the sensor makes new values.
    ///
    /// # Errors
    /// Returns the reason why there are none.
    pub fn choose(
        sensors: &mut Sensors,
        detection: &Detection,
        unit: ComputeUnit,
        period: Option<Duration>,
        now: Nanos,
    ) -> Result<Self, EnergyRailsError> {
        let mut snapshot = Snapshot::default();
        sensors.read_rails(now, &mut snapshot);
        let sensors = &*sensors;
        let rails = sensors.rails();
        if rails.is_empty() {
            return Err(EnergyRailsError::None { gaps: power_gaps(sensors) });
        }
        let mut unreadable = None;
        for (total, covers) in candidates(rails, detection, unit) {
            match total.iter().find_map(|index| failure(&rails[*index], &snapshot.rails[*index])) {
                None => return Ok(Self::new(rails, &snapshot.rails, &total, covers, period)),
                Some(reason) => unreadable = unreadable.or(Some(reason)),
            }
        }
        let names = || rails.iter().map(|rail| rail.name.clone()).collect();
        Err(unreadable.unwrap_or_else(|| EnergyRailsError::TotalUnknown { rails: names() }))
    }

    fn new(
        rails: &[Rail],
        readings: &[RailReading],
        total: &[usize],
        covers: Covers,
        period: Option<Duration>,
    ) -> Self {
        let first = &rails[total[0]];
        let is_counter = matches!(first.kind, RailKind::EnergyCounter { .. });
        let update_period = match first.chip.as_str() {
            "nvml" => NVML_PERIOD,
            _ => first.period.unwrap_or(PERIOD_UNKNOWN).min(TIME_MAX / 2),
        };
        // A GPU's counter that is read more often gives the same value twice.
        let period_min = if first.chip == "nvml" { 2 * NVML_PERIOD } else { SAMPLE_PERIOD_MIN };
        let sample_period = period.unwrap_or(update_period).max(period_min);
        let sensor = match is_counter {
            true => Sensor {
                update_period,
                averaging: Averaging::Window(sample_period),
                clock_tolerance: COUNTER_CLOCK_TOLERANCE,
            },
            false => sampling_sensor(rails, first, update_period),
        };
        let meter_rail = |(index, (rail, reading)): (usize, (&Rail, &RailReading))| energy::Rail {
            name: Arc::from(rail.name.as_str()),
            resolution: resolution(rail, reading, sample_period),
            gain_tolerance: gain_tolerance(rail),
            is_in_total: total.contains(&index),
            is_mean: matches!(rail.kind, RailKind::EnergyCounter { .. }),
        };
        let settings = MeterSettings {
            rails: rails.iter().zip(readings).enumerate().map(meter_rail).collect(),
            covers,
            sensor,
            sample_period,
            idle: None,
            lateness_max: LATENESS_MAX,
            columns_max: COLUMNS_MAX,
        };
        Self { settings, is_counter }
    }

    /// Returns the settings of the meter. Its rails are those of the sensors, in the same order.
    pub fn settings(&self) -> &MeterSettings {
        &self.settings
    }

    /// Returns the times at which the rails are to be read, from `start` on.
    pub fn reading_times(&self, start: Nanos, rng: Rng) -> ReadingTimes {
        let period = self.settings.sample_period;
        match self.is_counter {
            true => ReadingTimes::Regular { next: start, period },
            false => ReadingTimes::Random(SampleSchedule::new(start, period), rng),
        }
    }
}

/// Returns the sets of rails that can be the total, best first, as indices. None of them is empty.
fn candidates(rails: &[Rail], detection: &Detection, unit: ComputeUnit) -> Vec<(Vec<usize>, Covers)> {
    let gpus = indices(rails, |rail| rail.chip == "nvml" && rail.part_of.is_none());
    let own = if unit == ComputeUnit::Gpu { gpus.clone() } else { Vec::new() };
    let mut sets = vec![
        (own, Covers::NamedRails),
        (input(rails, detection).into_iter().collect(), Covers::Input),
        (parts(rails, detection), Covers::NamedRails),
        (processor(rails), Covers::NamedRails),
        (gpus, Covers::NamedRails),
    ];
    sets.retain(|(indices, _)| !indices.is_empty());
    sets
}

fn indices(rails: &[Rail], is_wanted: impl Fn(&Rail) -> bool) -> Vec<usize> {
    (0..rails.len()).filter(|index| is_wanted(&rails[*index])).collect()
}

/// Returns the rail that measures the whole input, as the board's detection names it.
fn input(rails: &[Rail], detection: &Detection) -> Option<usize> {
    let total = detection.total_rail.as_ref()?;
    let by_name = rails.iter().position(|rail| rail.name == total.value);
    by_name.or_else(|| {
        // Where the driver has no label, the detection names the rail by the profile or by its place.
        let is_total = |report: &&RailReport| {
            report.name.as_ref().is_none_or(|name| *name == total.value) && report.source == total.source
        };
        let report = detection.rails.iter().find(is_total)?;
        let is_same = |rail: &Rail| {
            rail.i2c.is_some() && rail.i2c == report.i2c && rail.channel.unwrap_or(1) == report.channel
        };
        rails.iter().position(is_same)
    })
}

/// Returns the rails that the profile of the board lists as parts of its consumption, where none measures the whole: without those that
/// are included in another.
fn parts(rails: &[Rail], detection: &Detection) -> Vec<usize> {
    let profile = detection.profile.as_ref().map(|profile| profile.value);
    let Some(profile) =
        profile.filter(|profile| profile.total.as_ref().is_some_and(|total| total.rail.is_none()))
    else {
        return Vec::new();
    };
    let is_part = |known: &RailProfile| known.included_in.is_none();
    indices(rails, |rail| profile.rails.iter().any(|known| known.name == rail.name && is_part(known)))
}

/// Returns the counters of the processor: that of the whole platform, else those of its packages.
fn processor(rails: &[Rail]) -> Vec<usize> {
    let of_rapl = |rail: &Rail| rail.chip == "intel-rapl" && rail.part_of.is_none();
    let platform = indices(rails, |rail| of_rapl(rail) && rail.name.starts_with("psys"));
    if platform.is_empty() { indices(rails, of_rapl) } else { platform }
}

/// Returns what could not be read of the places where rails are found.
fn power_gaps(sensors: &Sensors) -> Vec<String> {
    const PLACES: [&str; 4] = ["hwmon", "powercap", "iio", "NVML"];
    let gaps = sensors.gaps().iter();
    let gaps = gaps.filter(|gap| PLACES.iter().any(|place| gap.path.contains(place)));
    let mut reasons: Vec<String> = gaps.map(|gap| format!("{}: {}", gap.path, gap.reason)).collect();
    reasons.dedup();
    reasons
}

/// Returns the reason why a rail cannot be read.
fn failure(rail: &Rail, reading: &RailReading) -> Option<EnergyRailsError> {
    match &reading.watts {
        Ok(_) | Err(Unknown::NeedsSecondReading) => None,
        Err(reason) => Some(EnergyRailsError::Unreadable {
            rail: rail.name.clone(),
            source: rail.source.clone(),
            reason: reason.clone(),
        }),
    }
}

/// Returns the timing of a sensor that samples. The period of an INA3221 is that of all its averages (drivers/hwmon/ina3221.c,
/// `ina3221_reg_to_interval_us`), and its register takes each conversion in at once.
fn sampling_sensor(rails: &[Rail], rail: &Rail, period: Duration) -> Sensor {
    let clock_tolerance = if rail.period.is_some() { INA_CLOCK_TOLERANCE } else { UNKNOWN_CLOCK_TOLERANCE };
    let plain = Sensor { update_period: period, averaging: Averaging::Window(period), clock_tolerance };
    if rail.chip != "ina3221" {
        return plain;
    }
    let samples = rail.samples.unwrap_or(1).max(1);
    let listed = || rails.iter().filter(|other| other.source == rail.source).count() as u32;
    let channels = rail.converted.unwrap_or_else(listed);
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
    step.unwrap_or(STEP_UNKNOWN)
}

/// Returns the step of a product of a voltage in whole mV and a current in whole mA, as hwmon gives them.
fn driver_step(reading: &RailReading) -> Option<Watts> {
    let (volts, amperes) = (reading.volts.as_ref().ok()?.abs(), reading.amperes.as_ref().ok()?.abs());
    Some(volts * Amperes::from_milli(1) + Volts::from_milli(1) * amperes)
}

fn gain_tolerance(rail: &Rail) -> f64 {
    if rail.chip.starts_with("ina") { SHUNT_TOLERANCE } else { REPORTED_TOLERANCE }
}

#[cfg(test)]
mod tests;
