//! Folders that drivers made for power sensors.

use orinoco_sysroot::ReadErrorKind;

use super::rail::I2cAddress;
use crate::readers::probe::Probe;

const HWMON: &str = "/sys/class/hwmon";
const IIO: &str = "/sys/bus/iio/devices";
const I2C_DEVICES: &str = "/sys/bus/i2c/devices";
const I2C_DRIVERS: &str = "/sys/bus/i2c/drivers";
/// Drivers of the power sensors of Jetsons: of the kernel from R34 on, and of R32 (`ina3221x`).
const DRIVERS: [&str; 4] = ["ina3221", "ina3221x", "ina238", "ina2xx"];

/// Folder with the values of a sensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SensorFolder {
    pub(super) path: String,
    pub(super) interface: Interface,
    /// Address of the sensor; `None` where it is not on an I2C bus.
    pub(super) i2c: Option<I2cAddress>,
}

/// Interface of the kernel by which a driver gives its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interface {
    Hwmon,
    Iio,
}

/// Finds the folder of every sensor once. A board has each under several paths, of which a copy of a board, or a container,
/// may have only some.
pub(super) fn find(probe: &mut Probe<'_>) -> Vec<SensorFolder> {
    // Jetsons of L4T R32, and hosts in a container, have no such class.
    let hwmon = probe.names(HWMON, "hwmon").into_iter();
    let mut found: Vec<SensorFolder> =
        hwmon.map(|name| folder(probe, format!("{HWMON}/{name}"), Interface::Hwmon)).collect();
    let mut others: Vec<(String, Interface)> = Vec::new();
    for name in names_if_any(probe, IIO, "iio:device") {
        others.push((format!("{IIO}/{name}"), Interface::Iio));
    }
    let drivers = DRIVERS.iter().map(|driver| format!("{I2C_DRIVERS}/{driver}"));
    for place in std::iter::once(I2C_DEVICES.to_owned()).chain(drivers) {
        for device in names_if_any(probe, &place, "") {
            if I2cAddress::from_device_name(&device).is_some() {
                others.extend(of_device(probe, &format!("{place}/{device}")));
            }
        }
    }
    for (path, interface) in others {
        let folder = folder(probe, path, interface);
        if !found.iter().any(|known| known.is_same_sensor(&folder)) {
            found.push(folder);
        }
    }
    found
}

/// Returns the folders with values of an I2C device.
fn of_device(probe: &mut Probe<'_>, device: &str) -> Vec<(String, Interface)> {
    let hwmon = names_if_any(probe, &format!("{device}/hwmon"), "hwmon").into_iter();
    let hwmon: Vec<_> = hwmon.map(|name| (format!("{device}/hwmon/{name}"), Interface::Hwmon)).collect();
    let iio = names_if_any(probe, device, "iio").into_iter();
    let iio = iio.filter(|name| name.starts_with("iio:device") || name == "iio_device");
    let iio = iio.map(|name| (format!("{device}/{name}"), Interface::Iio));
    hwmon.into_iter().chain(iio).collect()
}

/// Returns the names in a folder that a board may lack, as [`Probe::names`] does.
fn names_if_any(probe: &mut Probe<'_>, folder: &str, prefix: &str) -> Vec<String> {
    match probe.sysroot.entries(folder) {
        Err(error) if matches!(error.kind, ReadErrorKind::Absent | ReadErrorKind::NotRecorded) => Vec::new(),
        _ => probe.names(folder, prefix),
    }
}

fn folder(probe: &Probe<'_>, path: String, interface: Interface) -> SensorFolder {
    let link = |path: &str| probe.sysroot.link(path).ok();
    let i2c = link(&format!("{path}/device")).and_then(|target| I2cAddress::of_path(&target));
    let i2c = i2c.or_else(|| I2cAddress::of_path(&path));
    let i2c = i2c.or_else(|| I2cAddress::of_path(&link(&path)?));
    SensorFolder { path, interface, i2c }
}

impl SensorFolder {
    /// Returns whether two paths lead to the same sensor: by its address, or by the name that the kernel gave the folder.
    fn is_same_sensor(&self, other: &Self) -> bool {
        let is_same_address = self.i2c.is_some() && self.i2c == other.i2c;
        is_same_address || (self.interface == other.interface && self.name() == other.name())
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}
