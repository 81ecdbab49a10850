//! Power rails: which sensor measures what, and one reading of each.

use std::collections::BTreeSet;

use orinoco_core::{Amperes, Volts, Watts};
use orinoco_sysroot::ReadErrorKind;

use super::files::{BoardFiles, shown};
use crate::readers::I2cAddress;

const HWMON: &str = "/sys/class/hwmon";
const IIO: &str = "/sys/bus/iio/devices";
const I2C_DEVICES: &str = "/sys/bus/i2c/devices";
const I2C_DRIVERS: &str = "/sys/bus/i2c/drivers";
/// Drivers of the power sensors of Jetsons: of the kernel from R34 on, and of R32 (`ina3221x`).
const DRIVERS: [&str; 4] = ["ina3221", "ina3221x", "ina238", "ina2xx"];
/// Channels of an INA3221 that are rails (datasheet SBOS576B, section 7.3). The driver's channels 4 to 7 are shunt voltages
/// and sums (Linux, Documentation/hwmon/ina3221.rst).
const INA3221_CHANNELS: std::ops::RangeInclusive<u32> = 1..=3;
/// Current limits that a register at its end means, in milliamperes: 163.8 mV (SBOS576B, section 7.6.2.8) over the
/// shunts of 5 and 2 milliohms of Jetson modules. Nobody set these.
const NO_LIMIT_MILLIAMPERES: [i64; 2] = [32_760, 81_900];
/// Readings that are believed: up to a megavolt, megaampere and megawatt, in thousandths.
const MILLI_MAX: i64 = 1_000_000_000;

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

/// Reads all rails, ordered by bus, address and channel.
pub(super) fn read(files: &BoardFiles<'_>) -> Vec<RailReport> {
    let mut rails: Vec<RailReport> = Vec::new();
    for sensor in sensors(files) {
        rails.extend(match sensor.interface {
            Interface::Hwmon => hwmon_rails(files, &sensor),
            Interface::Iio => iio_rails(files, &sensor),
        });
    }
    rails.sort_by_key(|rail| (rail.i2c, rail.channel));
    rails
}

/// Sensor of which a driver made a folder.
struct Sensor {
    chip: String,
    i2c: Option<I2cAddress>,
    folder: String,
    interface: Interface,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Interface {
    Hwmon,
    Iio,
}

/// Finds every power sensor once. A board has each under several paths; a copy of one may have only some.
fn sensors(files: &BoardFiles<'_>) -> Vec<Sensor> {
    let classes = [(HWMON, "hwmon", Interface::Hwmon), (IIO, "iio:device", Interface::Iio)];
    let mut found: Vec<Sensor> = Vec::new();
    let mut folders: Vec<(String, Interface)> = Vec::new();
    for (class, prefix, interface) in classes {
        let entries = files.optional_entries(class).into_iter().filter(|entry| entry.starts_with(prefix));
        folders.extend(entries.map(|entry| (format!("{class}/{entry}"), interface)));
    }
    let drivers = DRIVERS.iter().map(|driver| format!("{I2C_DRIVERS}/{driver}"));
    for place in std::iter::once(I2C_DEVICES.to_owned()).chain(drivers) {
        let devices = files.optional_entries(&place).into_iter();
        let devices = devices.filter(|device| I2cAddress::from_device_name(device).is_some());
        folders.extend(devices.flat_map(|device| device_folders(files, &format!("{place}/{device}"))));
    }
    let (mut addresses, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (folder, interface) in folders {
        let Some(sensor) = sensor(files, folder, interface) else { continue };
        // The same sensor again: by its address, or by the name that the kernel gave the folder.
        let name = sensor.folder.rsplit('/').next().unwrap_or_default().to_owned();
        let is_new_address = sensor.i2c.is_none_or(|i2c| addresses.insert(i2c));
        if names.insert(name) && is_new_address {
            found.push(sensor);
        }
    }
    found
}

/// Returns the folders with values of an I2C device.
fn device_folders(files: &BoardFiles<'_>, device: &str) -> Vec<(String, Interface)> {
    let hwmon = files.optional_entries(&format!("{device}/hwmon")).into_iter();
    let hwmon = hwmon.map(|entry| (format!("{device}/hwmon/{entry}"), Interface::Hwmon));
    let iio = files.optional_entries(device).into_iter();
    let iio = iio.filter(|entry| entry.starts_with("iio:device") || entry == "iio_device");
    hwmon.chain(iio.map(|entry| (format!("{device}/{entry}"), Interface::Iio))).collect()
}

/// Returns the sensor of a folder, if it is one of power.
fn sensor(files: &BoardFiles<'_>, folder: String, interface: Interface) -> Option<Sensor> {
    let chip = files.optional_text(&format!("{folder}/name"))?;
    if !chip.starts_with("ina") {
        return None;
    }
    let i2c = files.link(&format!("{folder}/device")).and_then(|target| I2cAddress::of_path(&target));
    let i2c = i2c.or_else(|| I2cAddress::of_path(&folder));
    let i2c = i2c.or_else(|| I2cAddress::of_path(&files.link(&folder)?));
    Some(Sensor { chip, i2c, folder, interface })
}

/// Reads the channels of a sensor under hwmon (Linux, Documentation/hwmon/sysfs-interface.rst): millivolts, milliamperes and
/// microwatts.
fn hwmon_rails(files: &BoardFiles<'_>, sensor: &Sensor) -> Vec<RailReport> {
    let folder = &sensor.folder;
    let channels = if sensor.chip.starts_with("ina3221") { INA3221_CHANNELS } else { 1..=1 };
    let rail = |channel| {
        let path = |name: String| format!("{folder}/{name}");
        if files.number(&path(format!("in{channel}_enable"))) == Ok(0) {
            return None;
        }
        let name = files.optional_text(&path(format!("in{channel}_label")));
        let name = name
            .or_else(|| (sensor.chip != "ina3221").then(|| files.optional_text(&path("label".into())))?);
        let voltage = milli(files, &path(format!("in{channel}_input")));
        let current = milli(files, &path(format!("curr{channel}_input")));
        let power =
            files.number(&path(format!("power{channel}_input"))).and_then(|micro| plausible(micro / 1000));
        let limit = |kind: &str| limit(files, &path(format!("curr{channel}_{kind}")));
        let (warning, critical) = (limit("max"), limit("crit"));
        report(sensor, channel, name, Reading { voltage, current, power, warning, critical })
    };
    channels.filter_map(rail).collect()
}

/// Reads the channels of the driver `ina3221x` of R32 under iio, which counts from 0: millivolts, milliamperes, milliwatts.
fn iio_rails(files: &BoardFiles<'_>, sensor: &Sensor) -> Vec<RailReport> {
    let folder = &sensor.folder;
    let rail = |index: u32| {
        let path = |name: &str| format!("{folder}/{name}");
        let name = files.optional_text(&path(&format!("rail_name_{index}")));
        let reading = Reading {
            voltage: milli(files, &path(&format!("in_voltage{index}_input"))),
            current: milli(files, &path(&format!("in_current{index}_input"))),
            power: milli(files, &path(&format!("in_power{index}_input"))),
            warning: limit(files, &path(&format!("warn_current_limit_{index}"))),
            critical: limit(files, &path(&format!("crit_current_limit_{index}"))),
        };
        report(sensor, index + 1, name, reading)
    };
    (0..3).filter_map(rail).collect()
}

type Milli = Result<i64, ReadErrorKind>;

/// Values of one channel, in thousandths.
struct Reading {
    voltage: Milli,
    current: Milli,
    power: Milli,
    warning: Option<Amperes>,
    critical: Option<Amperes>,
}

/// Makes the report of a channel. A channel without any value, or one that is not connected (`NC`), is no rail.
fn report(sensor: &Sensor, channel: u32, name: Option<String>, reading: Reading) -> Option<RailReport> {
    let absent = |value: &Milli| *value == Err(ReadErrorKind::Absent);
    let is_empty = absent(&reading.voltage) && absent(&reading.current) && absent(&reading.power);
    if is_empty || name.as_deref() == Some("NC") {
        return None;
    }
    let voltage = reading.voltage.as_ref().ok().map(|milli| Volts::from_milli(*milli));
    let current = reading.current.as_ref().ok().map(|milli| Amperes::from_milli(*milli));
    let product = voltage.zip(current).map(|(voltage, current)| voltage * current);
    let power = reading.power.as_ref().ok().map(|milli| Watts::from_milli(*milli)).or(product);
    let missing = [("voltage", &reading.voltage), ("current", &reading.current)];
    let causes = missing.iter().filter_map(|(what, value)| {
        value.as_ref().err().map(|kind| format!("{what}: {}", shown(&kind.to_string())))
    });
    let causes: Vec<String> = causes.collect();
    Some(RailReport {
        name,
        chip: sensor.chip.clone(),
        i2c: sensor.i2c,
        channel,
        voltage,
        current,
        power,
        warning: reading.warning,
        critical: reading.critical,
        unavailable: (!causes.is_empty()).then(|| causes.join("; ")),
        source: sensor.folder.clone(),
    })
}

fn milli(files: &BoardFiles<'_>, path: &str) -> Milli {
    files.number(path).and_then(plausible)
}

fn plausible(milli: i64) -> Milli {
    match (-MILLI_MAX..=MILLI_MAX).contains(&milli) {
        true => Ok(milli),
        false => Err(ReadErrorKind::Other(format!("{milli} is out of range"))),
    }
}

fn limit(files: &BoardFiles<'_>, path: &str) -> Option<Amperes> {
    let milliamperes = milli(files, path).ok()?;
    (!NO_LIMIT_MILLIAMPERES.contains(&milliamperes)).then(|| Amperes::from_milli(milliamperes))
}
