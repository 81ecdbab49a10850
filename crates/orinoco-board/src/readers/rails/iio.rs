use orinoco_core::Watts;

use super::chip::{limit, resolution};
use super::rail::{Files, I2cAddress, Inputs, Rail, RailKind, RailLimits, Sensor};
use crate::readers::probe::{Probe, number_after};

/// Folder of NVIDIA's driver of the INA3221 in L4T R32: Jetson Nano, TX2, Xavier NX and AGX Xavier with JetPack 4 (Jetson Linux
/// Developer Guide R32, "Software-Based Power Consumption Modeling").
const DRIVER: &str = "/sys/bus/i2c/drivers/ina3221x";

/// Channels of the chip, as this driver counts them.
const CHANNELS: std::ops::Range<u32> = 0..3;

/// Finds the rails of L4T R32.
pub(super) fn find(probe: &mut Probe<'_>) -> Vec<(Rail, Sensor)> {
    if probe.sysroot.entries(DRIVER).is_err() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for device in probe.names(DRIVER, "") {
        let Some(i2c) = I2cAddress::from_device_name(&device) else { continue };
        let folder = format!("{DRIVER}/{device}");
        for iio in probe.names(&folder, "iio:device") {
            let folder = format!("{folder}/{iio}");
            let files = probe.names(&folder, "rail_name_");
            let channels = files.iter().filter_map(|file| number_after(file, "rail_name_"));
            let channels: Vec<u32> = channels.filter(|channel| CHANNELS.contains(channel)).collect();
            found.extend(channels.into_iter().filter_map(|channel| rail(probe, &folder, i2c, channel)));
        }
    }
    found
}

/// Looks at a channel, which this driver counts from 0. It gives mV, mA and mW.
fn rail(probe: &mut Probe<'_>, folder: &str, i2c: I2cAddress, channel: u32) -> Option<(Rail, Sensor)> {
    let label = format!("{folder}/rail_name_{channel}");
    let name = probe.text(&label).filter(|name| !name.is_empty())?;
    if name == "NC" {
        probe.gap(&label, "the board says that the channel is not connected");
        return None;
    }
    let mut limit_of = |file: &str| {
        let milliamperes = probe.number(&format!("{folder}/{file}_{channel}"));
        milliamperes.and_then(|milliamperes| limit(milliamperes, None))
    };
    let limits =
        RailLimits { warning: limit_of("warn_current_limit"), critical: limit_of("crit_current_limit") };
    let rail = Rail {
        i2c: Some(i2c),
        channel: Some(channel + 1),
        limits,
        resolution: resolution("ina3221", None),
        ..Rail::new(name, folder.to_owned(), "ina3221x", RailKind::Power)
    };
    let files = Files {
        millivolts: probe.file(&format!("{folder}/in_voltage{channel}_input")).into(),
        milliamperes: probe.file(&format!("{folder}/in_current{channel}_input")).into(),
        power: probe.file(&format!("{folder}/in_power{channel}_input")).into(),
        power_unit: Watts::from_milli,
        ..Files::NONE
    };
    Some((rail, Sensor { inputs: Inputs::Files(files), earlier: None }))
}
