//! Thermal zones with one reading each, from the readers of the board's sensors.

use orinoco_core::Celsius;
use orinoco_sysroot::Sysroot;

use super::files::shown;
use crate::readers::{Reading, Unknown, Zone, read_zones};

/// Thermal zone of a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThermalZone {
    /// Type of the zone, such as `cpu-thermal`.
    pub name: String,
    /// Temperature.
    pub temperature: Option<Celsius>,
    /// Reason why there is no temperature.
    pub unavailable: Option<String>,
    /// Path of the zone's temperature on the board.
    pub source: String,
}

/// Reads all thermal zones.
pub(super) fn read(sysroot: &Sysroot) -> Vec<ThermalZone> {
    read_zones(sysroot).into_iter().map(|(zone, reading)| report(zone, reading)).collect()
}

fn report(zone: Zone, reading: Reading<Celsius>) -> ThermalZone {
    let (temperature, unavailable) = match reading {
        Ok(temperature) => (Some(temperature), None),
        Err(unknown) => (None, Some(cause(&unknown))),
    };
    ThermalZone { name: shown(&zone.name), temperature, unavailable, source: zone.path }
}

/// Returns the reason why there is no temperature.
fn cause(unknown: &Unknown) -> String {
    match unknown {
        Unknown::AlarmOnly => "it always reads 100 degrees: nothing is measured".to_owned(),
        Unknown::OutOfRange(milli) => format!("{milli} is not a temperature in thousandths of a degree"),
        Unknown::File(kind) => shown(&kind.to_string()),
        other => other.to_string(),
    }
}
