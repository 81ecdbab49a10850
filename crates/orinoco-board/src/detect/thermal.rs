//! Thermal zones with one reading each.

use orinoco_core::Celsius;
use orinoco_sysroot::ReadErrorKind;

use super::files::{BoardFiles, shown};

const ZONES: &str = "/sys/class/thermal";
/// Reading of the PMIC's zone on R32, in thousandths of a degree: the driver has no sensor there (public reports of Nano, TX2
/// and Xavier all show 100).
const PMIC_MILLI: i64 = 100_000;
/// Readings that a zone can have, in thousandths of a degree.
const PLAUSIBLE_MILLI: std::ops::RangeInclusive<i64> = -60_000..=200_000;

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
pub(super) fn read(files: &BoardFiles<'_>) -> Vec<ThermalZone> {
    let mut zones: Vec<(u32, ThermalZone)> = Vec::new();
    for entry in files.optional_entries(ZONES) {
        let Some(number) = entry.strip_prefix("thermal_zone").and_then(|number| number.parse().ok()) else {
            continue;
        };
        let Some(name) = files.optional_text(&format!("{ZONES}/{entry}/type")) else { continue };
        let source = format!("{ZONES}/{entry}/temp");
        let (temperature, unavailable) = match reading(&name, files.number(&source)) {
            Ok(temperature) => (Some(temperature), None),
            Err(cause) => (None, Some(cause)),
        };
        zones.push((number, ThermalZone { name, temperature, unavailable, source }));
    }
    zones.sort_by_key(|(number, _)| *number);
    zones.into_iter().map(|(_, zone)| zone).collect()
}

fn reading(name: &str, milli: Result<i64, ReadErrorKind>) -> Result<Celsius, String> {
    match milli {
        Ok(PMIC_MILLI) if name.to_lowercase().starts_with("pmic") => {
            Err("it always reads 100 degrees: nothing is measured".to_owned())
        }
        Ok(milli) if PLAUSIBLE_MILLI.contains(&milli) => Ok(Celsius::from_milli(milli)),
        Ok(milli) => Err(format!("{milli} is no temperature in thousandths of a degree")),
        Err(kind) => Err(shown(&kind.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_without_a_value_is_unknown_and_not_zero() {
        let cause = |name, milli| reading(name, milli).expect_err("no temperature");
        assert_eq!(reading("CPU-therm", Ok(45_500)), Ok(Celsius::from_milli(45_500)));
        assert_eq!(reading("CPU-therm", Ok(PMIC_MILLI)), Ok(Celsius::from_units(100)));
        assert!(cause("PMIC-Die", Ok(PMIC_MILLI)).contains("nothing is measured"));
        // EAGAIN and ENODATA of a part that is off; a directory cannot answer so.
        assert_eq!(cause("gpu-thermal", Err(ReadErrorKind::Unavailable)), "has no value at present");
        assert!(cause("x", Ok(i64::MIN)).contains("no temperature"));
    }
}
