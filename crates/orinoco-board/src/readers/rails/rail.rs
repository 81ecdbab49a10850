use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use orinoco_core::{Amperes, Joules, Nanos, Ohms, Volts, Watts};

use crate::readers::probe::Source;
use crate::readers::reading::{Reading, Unknown};

/// Readings that are believed: up to a megavolt, megaampere and megawatt.
const VOLTS: RangeInclusive<Volts> = Volts::from_units(-1_000_000)..=Volts::from_units(1_000_000);
const AMPERES: RangeInclusive<Amperes> = Amperes::from_units(-1_000_000)..=Amperes::from_units(1_000_000);
const WATTS: RangeInclusive<Watts> = Watts::from_units(-1_000_000)..=Watts::from_units(1_000_000);

/// Address of a chip on an I2C bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct I2cAddress {
    /// Number of the bus, as in `/dev/i2c-1`.
    pub bus: u32,
    /// 7-bit address.
    pub address: u8,
}

impl I2cAddress {
    /// Reads the kernel's name of a chip, such as `1-0040`; `None` for the name of another device.
    pub fn from_device_name(name: &str) -> Option<Self> {
        let (bus, address) = name.split_once('-')?;
        let is_number = bus.bytes().all(|byte| byte.is_ascii_digit());
        let is_address = address.len() == 4 && address.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_number || !is_address {
            return None;
        }
        let address = u8::from_str_radix(address, 16).ok().filter(|address| *address < 0x80)?;
        Some(Self { bus: bus.parse().ok()?, address })
    }

    /// Returns the last device of a path such as `../../i2c-1/1-0040/hwmon/hwmon3`.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        path.rsplit('/').find_map(Self::from_device_name)
    }
}

impl fmt::Display for I2cAddress {
    /// Writes the address as the kernel does: `1-0040`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:04x}", self.bus, self.address)
    }
}

/// Power rail of a board, or another part whose power is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rail {
    /// Name, such as `VDD_IN`: the board's label, or chip and address where it has none. Unique on a board.
    pub name: String,
    /// The board's label; `None` where the driver has none.
    pub label: Option<String>,
    /// Folder of its files on the board, or another description of its source.
    pub source: String,
    /// Name of the chip or driver: `ina3221`, `ina238`, `intel-rapl`, `nvml`.
    pub chip: String,
    /// Address of the chip; `None` where it is not on an I2C bus.
    pub i2c: Option<I2cAddress>,
    /// Channel of the chip, from 1; `None` for a chip with only one.
    pub channel: Option<u32>,
    /// Shunt resistor; `None` where the driver does not give it.
    pub shunt: Option<Ohms>,
    /// Quantity that the chip measures.
    pub kind: RailKind,
    /// Currents at which the chip raises an alarm.
    pub limits: RailLimits,
    /// Time in which the chip makes a new value; `None` where the driver does not give it.
    pub period: Option<Duration>,
    /// Number of conversions over which the chip averages; `None` where the driver does not give it.
    pub samples: Option<u16>,
    /// Number of channels that the chip converts one after the other, with those that are not connected; `None` where that is not known.
    pub converted: Option<u32>,
    /// Steps of the values.
    pub resolution: Resolution,
    /// Name of the rail in whose power this one is contained; `None` if that is not known.
    pub part_of: Option<String>,
}

/// Quantity that a rail's chip measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailKind {
    /// Power at the time of the reading.
    Power,
    /// Energy since some time, which grows.
    EnergyCounter {
        /// Energy at which the counter starts again at 0; `None` if it does not, or if that is not known.
        wraps_at: Option<Joules>,
    },
}

/// Currents at which a chip raises an alarm; `None` where no limit is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailLimits {
    /// Limit of the average current.
    pub warning: Option<Amperes>,
    /// Limit of a single measurement.
    pub critical: Option<Amperes>,
}

/// Steps in which the values of a rail change, by the chip's datasheet and its driver's rounding; `None` where they are not
/// known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resolution {
    /// Step of the voltage.
    pub volts: Option<Volts>,
    /// Step of the current.
    pub amperes: Option<Amperes>,
    /// Step of the power, where the chip computes it.
    pub watts: Option<Watts>,
    /// Step of the energy.
    pub joules: Option<Joules>,
}

/// Values of a rail at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailReading {
    /// Voltage.
    pub volts: Reading<Volts>,
    /// Current. It can be negative where a part feeds power back.
    pub amperes: Reading<Amperes>,
    /// Power: measured, or voltage times current, or the average since the last reading of an energy counter.
    pub watts: Reading<Watts>,
    /// Energy counter.
    pub joules: Reading<Joules>,
}

impl Rail {
    pub(crate) fn new(name: String, source: String, chip: &str, kind: RailKind) -> Self {
        Self {
            name,
            label: None,
            source,
            chip: chip.to_owned(),
            i2c: None,
            channel: None,
            shunt: None,
            kind,
            limits: RailLimits::default(),
            period: None,
            samples: None,
            converted: None,
            resolution: Resolution::default(),
            part_of: None,
        }
    }

    /// Returns the energy between two readings of the counter. A counter that is smaller than before started again at 0 once;
    /// `None` if it is not known where.
    pub fn energy_between(&self, earlier: Joules, later: Joules) -> Option<Joules> {
        match self.kind {
            _ if later >= earlier => Some(later - earlier),
            RailKind::EnergyCounter { wraps_at: Some(end) } if earlier <= end => Some(later + end - earlier),
            _ => None,
        }
    }

    /// Returns the step of the power in a reading: that of the chip, or what one step of voltage and one of current change in
    /// their product. `None` where a step or a value is not known.
    pub fn watts_step(&self, reading: &RailReading) -> Option<Watts> {
        if let Some(step) = self.resolution.watts {
            return Some(step);
        }
        let (volts, amperes) = (reading.volts.as_ref().ok()?.abs(), reading.amperes.as_ref().ok()?.abs());
        Some(volts * self.resolution.amperes? + self.resolution.volts? * amperes)
    }
}

/// Sensor of a rail, with what it needs to be read.
#[derive(Debug)]
pub(super) struct Sensor {
    pub(super) inputs: Inputs,
    /// Time and value of the last reading of an energy counter.
    pub(super) earlier: Option<(Nanos, Joules)>,
}

#[derive(Debug)]
pub(super) enum Inputs {
    Files(Files),
    /// GPU of the driver, by its index.
    Gpu(usize),
}

/// Files of a rail. hwmon gives mV, mA, µW and µJ (Documentation/hwmon/sysfs-interface.rst); `watts` may be in another unit.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) millivolts: Source,
    pub(super) milliamperes: Source,
    pub(super) power: Source,
    pub(super) microjoules: Source,
    /// Unit of `power`.
    pub(super) power_unit: fn(i64) -> Watts,
}

impl Files {
    pub(super) const NONE: Self = Self {
        millivolts: Source::NONE,
        milliamperes: Source::NONE,
        power: Source::NONE,
        microjoules: Source::NONE,
        power_unit: Watts::from_micro,
    };

    /// Returns whether there is any file.
    pub(super) fn is_any(&self) -> bool {
        [&self.millivolts, &self.milliamperes, &self.power, &self.microjoules]
            .iter()
            .any(|file| file.is_some())
    }

    pub(super) fn read(&mut self) -> RailReading {
        let volts = self.millivolts.quantity_within(Volts::from_milli, &VOLTS);
        let amperes = self.milliamperes.quantity_within(Amperes::from_milli, &AMPERES);
        let watts = match self.power.quantity_within(self.power_unit, &WATTS) {
            Err(Unknown::NotOffered) => product(&volts, &amperes),
            watts => watts,
        };
        RailReading { volts, amperes, watts, joules: self.microjoules.quantity(Joules::from_micro) }
    }
}

/// Returns the power, or the reason why a factor of it is not known.
fn product(volts: &Reading<Volts>, amperes: &Reading<Amperes>) -> Reading<Watts> {
    match (volts, amperes) {
        (Ok(volts), Ok(amperes)) => Ok(*volts * *amperes),
        // One that fails is a better reason than one that does not exist.
        (Err(Unknown::NotOffered), Err(reason)) | (Err(reason), _) | (_, Err(reason)) => Err(reason.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chip_is_named_by_bus_and_address() {
        let address = I2cAddress { bus: 7, address: 0x40 };
        assert_eq!(I2cAddress::from_device_name("7-0040"), Some(address));
        assert_eq!(address.to_string(), "7-0040");
        for other in ["thermal_zone0", "7-40", "7-00zz", "i2c-7", "", "7-0100", "-0040", "7-+040"] {
            assert_eq!(I2cAddress::from_device_name(other), None, "{other}");
        }
    }

    #[test]
    fn chips_are_found_in_paths() {
        for (path, expected) in [
            ("../../../1-0040", Some("1-0040")),
            ("../../devices/platform/bus@0/c240000.i2c/i2c-1/1-0041/hwmon/hwmon3", Some("1-0041")),
            ("/sys/bus/i2c/drivers/ina3221x/7-0040/iio:device0", Some("7-0040")),
            ("../../devices/pci0000:00/0000:00:18.3", None),
            ("-0040", None),
            ("1-00400", None),
            ("1-01ff", None),
            ("99999999999-0040", None),
        ] {
            let found = I2cAddress::of_path(path).map(|i2c| i2c.to_string());
            assert_eq!(found.as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn a_counter_that_starts_again_counts_on() {
        let counter = RailKind::EnergyCounter { wraps_at: Some(Joules::from_units(262_143)) };
        let rail = Rail::new("package-0".into(), "/".into(), "intel-rapl", counter);
        let between =
            |earlier, later| rail.energy_between(Joules::from_units(earlier), Joules::from_units(later));
        assert_eq!(between(10, 25), Some(Joules::from_units(15)));
        assert_eq!(between(262_140, 7), Some(Joules::from_units(10)));
        assert_eq!(between(262_200, 7), None, "a counter beyond its end is not understood");
        let endless = RailKind::EnergyCounter { wraps_at: None };
        let rail = Rail { kind: endless, ..rail };
        assert_eq!(rail.energy_between(Joules::from_units(2), Joules::from_units(1)), None);
    }

    #[test]
    fn the_step_of_a_product_comes_from_both_factors() {
        let resolution = Resolution {
            volts: Some(Volts::from_milli(8)),
            amperes: Some(Amperes::from_milli(8)),
            ..Resolution::default()
        };
        let rail = Rail::new("VDD_IN".into(), "/".into(), "ina3221", RailKind::Power);
        let rail = Rail { resolution, ..rail };
        let reading = RailReading {
            volts: Ok(Volts::from_units(19)),
            amperes: Ok(Amperes::from_units(-2)),
            watts: Err(Unknown::NotOffered),
            joules: Err(Unknown::NotOffered),
        };
        assert_eq!(rail.watts_step(&reading), Some(Watts::from_milli(19 * 8 + 2 * 8)));
        let unknown = RailReading { volts: Err(Unknown::NotOffered), ..reading };
        assert_eq!(rail.watts_step(&unknown), None);
    }
}
