use orinoco_core::{Amperes, Ohms, Volts, Watts};

use super::rail::Resolution;

/// hwmon gives currents in whole mA and voltages in whole mV (Documentation/hwmon/sysfs-interface.rst).
const DRIVER_AMPERES: Amperes = Amperes::from_milli(1);
const DRIVER_VOLTS: Volts = Volts::from_milli(1);

/// Value of the INA3221's limit registers after a reset, as a voltage over the shunt: the greatest, so no limit (INA3221
/// datasheet SBOS576B, section 8.6.2.8, default 7FF8h with 40 µV a step of 8). Over 5 mΩ it is 32760 mA, over 2 mΩ 81900 mA.
const INA3221_NO_LIMIT: Volts = Volts::from_micro(163_800);

/// Currents that the limit registers of an INA3221 have after a reset over the shunts that Jetsons use, where the shunt is
/// not known.
const NO_LIMIT_MILLIAMPERES: [i64; 2] = [32_760, 81_900];

/// Steps of a chip whose registers the kernel's driver scales by a shunt.
struct Steps {
    names: &'static [&'static str],
    volts: Volts,
    /// Step of the voltage over the shunt by which the driver computes the current, in nV: a quantity holds whole µV.
    shunt_nanovolts: i64,
    /// Step of the power register for a step of 1 A of the current register, in W; `None` where the chip has none.
    watts_of_ampere: Option<f64>,
}

const STEPS: &[Steps] = &[
    // INA3221 datasheet SBOS576B, sections 8.6.2.2 and 8.6.2.3: 40 µV and 8 mV.
    Steps {
        names: &["ina3221"],
        volts: Volts::from_milli(8),
        shunt_nanovolts: 40_000,
        watts_of_ampere: None,
    },
    // INA226 datasheet SBOS547B, sections 7.6.2 to 7.6.4 and 7.5.1: 2.5 µV, 1.25 mV, 25 times the step of the current.
    Steps {
        names: &["ina226", "ina230", "ina231", "ina234"],
        volts: Volts::from_micro(1_250),
        shunt_nanovolts: 2_500,
        watts_of_ampere: Some(25.0),
    },
    // INA219 datasheet SBOS448G, sections 8.6.3 and 8.5.1: 10 µV, 4 mV, 20 times the step of the current.
    Steps {
        names: &["ina219", "ina220"],
        volts: Volts::from_milli(4),
        shunt_nanovolts: 10_000,
        watts_of_ampere: Some(20.0),
    },
    // drivers/hwmon/ina238.c of Linux 6.6, comment at INA238_CALIBRATION_VALUE: the driver's calibration gives 1 mA a step over
    // 20 mΩ with the range of 163.84 mV, and 0.2 mW for each mA. INA238 datasheet SBOSA20C, section 7.6.1.6: 3.125 mV.
    Steps {
        names: &["ina238", "ina237"],
        volts: Volts::from_micro(3_125),
        shunt_nanovolts: 20_000,
        watts_of_ampere: Some(0.2),
    },
];

/// Returns the steps of a chip's values; unknown ones for a chip that is not in the table.
pub(super) fn resolution(chip: &str, shunt: Option<Ohms>) -> Resolution {
    let Some(steps) = STEPS.iter().find(|steps| steps.names.contains(&chip)) else {
        return Resolution::default();
    };
    let shunt = shunt.filter(|shunt| *shunt > Ohms::ZERO);
    let current = shunt.map(|shunt| Amperes::from_micro(steps.shunt_nanovolts * 1_000 / shunt.micro()));
    let watts = |factor: f64| current.map(|current| Watts::from_f64(current.to_f64() * factor));
    Resolution {
        volts: Some(steps.volts.max(DRIVER_VOLTS)),
        amperes: current.map(|current| current.max(DRIVER_AMPERES)),
        watts: steps.watts_of_ampere.and_then(watts),
        joules: None,
    }
}

/// Returns a limit of an INA3221 that somebody set; `None` for the register's value after a reset.
pub(super) fn limit(milliamperes: i64, shunt: Option<Ohms>) -> Option<Amperes> {
    let limit = Amperes::from_milli(milliamperes);
    let is_reset_value = match shunt.filter(|shunt| *shunt > Ohms::ZERO) {
        // The driver rounds to mA.
        Some(shunt) => limit + DRIVER_AMPERES >= INA3221_NO_LIMIT / shunt,
        None => NO_LIMIT_MILLIAMPERES.contains(&milliamperes),
    };
    (!is_reset_value && milliamperes > 0).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_the_datasheets() {
        let milliohms = |milli| Some(Ohms::from_milli(milli));
        let orin = resolution("ina3221", milliohms(5));
        assert_eq!((orin.volts, orin.amperes), (Some(Volts::from_milli(8)), Some(Amperes::from_milli(8))));
        assert_eq!(orin.watts, None, "the chip has no power register");
        let high = resolution("ina3221", milliohms(100));
        assert_eq!(high.amperes, Some(Amperes::from_milli(1)), "the driver rounds to mA");
        let input = resolution("ina238", milliohms(5));
        assert_eq!(
            (input.amperes, input.watts),
            (Some(Amperes::from_milli(4)), Some(Watts::from_micro(800)))
        );
        let carrier = resolution("ina226", milliohms(2));
        assert_eq!(carrier.volts, Some(Volts::from_micro(1_250)));
        assert_eq!(carrier.watts, Some(Watts::from_micro(31_250)));
        assert_eq!(resolution("ina3221", None).amperes, None);
        assert_eq!(resolution("ina3221", Some(Ohms::ZERO)).amperes, None);
        assert_eq!(resolution("power_meter", milliohms(5)), Resolution::default());
    }

    #[test]
    fn a_limit_after_a_reset_is_none() {
        let over = |milliohms: i64, milliamperes| limit(milliamperes, Some(Ohms::from_milli(milliohms)));
        assert_eq!(over(5, 32_760), None);
        assert_eq!(over(2, 81_900), None);
        assert_eq!(over(10, 16_380), None);
        assert_eq!(over(5, 5_000), Some(Amperes::from_units(5)));
        assert_eq!(over(2, 32_760), Some(Amperes::from_milli(32_760)), "a real limit over 2 mΩ");
        assert_eq!(limit(32_760, None), None);
        assert_eq!(limit(81_900, None), None);
        assert_eq!(limit(3_000, None), Some(Amperes::from_units(3)));
        assert_eq!(limit(0, None), None);
    }
}
