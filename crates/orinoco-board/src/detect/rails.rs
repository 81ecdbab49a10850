//! Power rails with one reading each, from the readers of the board's sensors.

use orinoco_core::{Amperes, Nanos, Volts, Watts};
use orinoco_sysroot::{ReadErrorKind, Sysroot};

use super::files::shown;
use crate::readers::{I2cAddress, Rail, RailReading, Rails, Reading, Unknown};

/// Sensors of rails: the INA family of Texas Instruments, which all Jetsons have. Energy counters of processors and power
/// meters of hosts are not rails of a board.
const SENSORS: &str = "ina";
/// Energy counters of processors.
const COUNTERS: &str = "intel-rapl";
/// Greatest number of rails of a board; real ones have up to 12.
const RAILS_MAX: usize = 256;

/// Power rail with one reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailReport {
    /// Name by the driver's label, or by the profile where the driver has none.
    pub name: Option<String>,
    /// Sensor, such as `ina3221`.
    pub chip: String,
    /// Bus and address of the sensor.
    pub i2c: Option<I2cAddress>,
    /// Channel of the sensor, from 1.
    pub channel: u32,
    /// Voltage.
    pub voltage: Option<Volts>,
    /// Current.
    pub current: Option<Amperes>,
    /// Power, as the sensor gives it, or else voltage times current.
    pub power: Option<Watts>,
    /// Current above which the sensor warns. Absent where nobody set any.
    pub warning: Option<Amperes>,
    /// Current above which the sensor reports a critical state. Absent where nobody set any.
    pub critical: Option<Amperes>,
    /// Reason why voltage, current or power is missing.
    pub unavailable: Option<String>,
    /// Folder of the sensor's values on the board.
    pub source: String,
}

/// Energy counter of a host's processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterReport {
    /// Part of the processor that it counts, such as `package-0`.
    pub name: String,
    /// Reason why it cannot be read; `None` where it can.
    pub unavailable: Option<String>,
    /// Folder of the counter on the board.
    pub source: String,
}

impl RailReport {
    /// Returns whether the sensor is one that measures a whole input without a label: an INA238 or INA237.
    pub(super) fn is_unlabelled_input(&self) -> bool {
        self.name.is_none() && matches!(self.chip.as_str(), "ina237" | "ina238")
    }

    /// Returns the name, or the place of a rail that has none.
    pub(super) fn shown_name(&self) -> String {
        let place = || match self.i2c {
            Some(i2c) => format!("{} at {i2c}, channel {}", self.chip, self.channel),
            None => format!("{} in {}, channel {}", self.chip, self.source, self.channel),
        };
        self.name.clone().unwrap_or_else(place)
    }
}

/// Reads all rails, ordered by bus, address and channel, and the energy counters, those of a package before those of its parts.
pub(super) fn read(sysroot: &Sysroot) -> (Vec<RailReport>, Vec<CounterReport>) {
    let (mut found, _) = Rails::discover(sysroot);
    let mut readings = Vec::new();
    // A counter has no power at its first reading, so the time does not matter.
    found.read(Nanos(0), None, &mut readings);
    let with_chip = |is_wanted: fn(&str) -> bool| {
        found.rails().iter().zip(&readings).filter(move |(rail, _)| is_wanted(&rail.chip)).take(RAILS_MAX)
    };
    let rails = with_chip(|chip| chip.starts_with(SENSORS));
    let mut rails: Vec<RailReport> = rails.map(|(rail, reading)| report(rail, reading)).collect();
    rails.sort_by_key(|rail| (rail.i2c, rail.channel));
    let counters = with_chip(|chip| chip == COUNTERS).map(|(rail, reading)| CounterReport {
        name: shown(&rail.name),
        unavailable: cause(&reading.joules),
        source: rail.source.clone(),
    });
    (rails, counters.collect())
}

fn report(rail: &Rail, reading: &RailReading) -> RailReport {
    let voltage = reading.volts.as_ref().ok().copied();
    let current = reading.amperes.as_ref().ok().copied();
    // A sensor whose power register fails may still give the factors.
    let product = voltage.zip(current).map(|(voltage, current)| voltage * current);
    let missing = [("voltage", cause(&reading.volts)), ("current", cause(&reading.amperes))];
    let causes = missing.into_iter().filter_map(|(what, cause)| Some(format!("{what}: {}", cause?)));
    let causes: Vec<String> = causes.collect();
    RailReport {
        name: rail.label.as_deref().map(shown),
        chip: shown(&rail.chip),
        i2c: rail.i2c,
        channel: rail.channel.unwrap_or(1),
        voltage,
        current,
        power: reading.watts.as_ref().ok().copied().or(product),
        warning: rail.limits.warning,
        critical: rail.limits.critical,
        unavailable: (!causes.is_empty()).then(|| causes.join("; ")),
        source: rail.source.clone(),
    }
}

/// Returns the reason why there is no value.
fn cause<T>(reading: &Reading<T>) -> Option<String> {
    reading.as_ref().err().map(|unknown| match unknown {
        Unknown::File(kind) => shown(&kind.to_string()),
        Unknown::NotOffered => ReadErrorKind::Absent.to_string(),
        other => other.to_string(),
    })
}
