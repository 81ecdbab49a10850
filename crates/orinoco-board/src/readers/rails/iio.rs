use orinoco_core::Watts;

use super::chip::{limit, resolution};
use super::folder::SensorFolder;
use super::rail::{Files, Inputs, Rail, RailKind, RailLimits, Sensor};
use crate::readers::probe::Probe;

/// Channels of the chip, as the driver counts them.
const CHANNELS: std::ops::Range<u32> = 0..3;

/// Finds the rails of a folder of `ina3221x`, NVIDIA's driver of the INA3221 in L4T R32: Jetson Nano, TX2, Xavier NX and AGX
/// Xavier with JetPack 4 (Jetson Linux Developer Guide R32, "Software-Based Power Consumption Modeling").
pub(super) fn rails(probe: &mut Probe<'_>, folder: &SensorFolder) -> Vec<(Rail, Sensor)> {
    let chip = probe.text(&format!("{}/name", folder.path)).unwrap_or_default();
    if !chip.starts_with("ina") {
        return Vec::new();
    }
    let files = probe.names(&folder.path, "");
    CHANNELS.filter_map(|channel| rail(probe, folder, &chip, &files, channel)).collect()
}

/// Looks at a channel, which this driver counts from 0. It gives mV, mA and mW.
fn rail(
    probe: &mut Probe<'_>,
    folder: &SensorFolder,
    chip: &str,
    files: &[String],
    channel: u32,
) -> Option<(Rail, Sensor)> {
    let label_file = format!("{}/rail_name_{channel}", folder.path);
    let label = probe.text(&label_file).filter(|name| !name.is_empty());
    if label.as_deref() == Some("NC") {
        probe.gap(&label_file, "the board says that the channel is not connected");
        return None;
    }
    let mut value =
        |quantity: &str| probe.attribute(&folder.path, files, &format!("in_{quantity}{channel}_input"));
    let inputs = Files {
        millivolts: value("voltage"),
        milliamperes: value("current"),
        power: value("power"),
        power_unit: Watts::from_milli,
        ..Files::NONE
    };
    if !inputs.is_any() {
        return None;
    }
    let mut limit_of = |file: &str| {
        let milliamperes = probe.number(&format!("{}/{file}_{channel}", folder.path));
        milliamperes.and_then(|milliamperes| limit(milliamperes, None))
    };
    let limits =
        RailLimits { warning: limit_of("warn_current_limit"), critical: limit_of("crit_current_limit") };
    let address = folder.i2c.map_or_else(String::new, |i2c| format!(" {i2c}"));
    let name = label.clone().unwrap_or_else(|| format!("{chip}{address} channel {}", channel + 1));
    let rail = Rail {
        label,
        i2c: folder.i2c,
        channel: Some(channel + 1),
        limits,
        resolution: resolution("ina3221", None),
        ..Rail::new(name, folder.path.clone(), chip, RailKind::Power)
    };
    Some((rail, Sensor { inputs: Inputs::Files(inputs), earlier: None }))
}
