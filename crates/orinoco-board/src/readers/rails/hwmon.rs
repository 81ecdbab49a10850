use std::time::Duration;

use orinoco_core::Ohms;

use super::chip::{limit, resolution};
use super::folder::SensorFolder;
use super::rail::{Files, I2cAddress, Inputs, Rail, RailKind, RailLimits, Sensor};
use crate::readers::probe::{Probe, Source, number_between};

/// Channels of an INA3221 that measure a rail. Its driver also has 4 to 6, the voltages over the shunts, and 7, their sum
/// (Documentation/hwmon/ina3221.rst).
const INA3221_CHANNELS: std::ops::RangeInclusive<u32> = 1..=3;

/// Chips with one current sensor, whose driver numbers the bus voltage 1 and the shunt's 0 (Documentation/hwmon/ina2xx.rst,
/// ina238.rst).
const SINGLE_CHIPS: &str = "ina2";

/// Chip of hwmon's class.
struct Chip {
    /// Folder with its values.
    folder: String,
    files: Vec<String>,
    name: String,
    /// Folder of its device.
    device: String,
    i2c: Option<I2cAddress>,
    period: Option<Duration>,
    samples: Option<u16>,
}

/// Finds the rails of a chip of hwmon.
pub(super) fn rails(probe: &mut Probe<'_>, folder: &SensorFolder) -> Vec<(Rail, Sensor)> {
    let Some(chip) = open(probe, folder) else { return Vec::new() };
    if chip.name.starts_with("ina3221") {
        let on: Vec<u32> = INA3221_CHANNELS.filter(|channel| is_on(probe, &chip, *channel)).collect();
        // It converts also those that are not connected.
        let converted = u32::try_from(on.len()).expect("a chip has three channels");
        let rails = on.into_iter().filter_map(|channel| ina3221(probe, &chip, channel));
        return rails.map(|(rail, sensor)| (Rail { converted: Some(converted), ..rail }, sensor)).collect();
    }
    power_sensors(probe, &chip)
}

/// Looks at a chip. Drivers that register in the old way have their files in the folder of the device.
fn open(probe: &mut Probe<'_>, SensorFolder { path, i2c, .. }: &SensorFolder) -> Option<Chip> {
    let device = format!("{path}/device");
    let (name, folder) = match probe.text(&format!("{path}/name")) {
        Some(name) => (name, path.clone()),
        None => (probe.text(&format!("{device}/name"))?, device.clone()),
    };
    let files = probe.names(&folder, "");
    let mut number = |name: &str| {
        let is_there = files.iter().any(|file| file == name);
        is_there.then(|| probe.number(&format!("{folder}/{name}"))).flatten()
    };
    let (milliseconds, samples) = (number("update_interval"), number("samples"));
    // The driver rounds to ms: 0 is a period that is not known, and not one without end.
    let period = milliseconds.filter(|period| *period > 0).map(|ms| Duration::from_millis(ms.unsigned_abs()));
    let samples = samples.and_then(|samples| u16::try_from(samples).ok()).filter(|samples| *samples > 0);
    Some(Chip { folder, files, name, device, i2c: *i2c, period, samples })
}

/// Whether an INA3221 has a channel and converts it. One that does not say whether it is switched on counts as such.
fn is_on(probe: &mut Probe<'_>, chip: &Chip, channel: u32) -> bool {
    let has = |name: &str| chip.files.iter().any(|file| file == name);
    if !has(&format!("in{channel}_input")) && !has(&format!("curr{channel}_input")) {
        return false;
    }
    let enable_file = format!("in{channel}_enable");
    let is_off = has(&enable_file) && probe.number(&format!("{}/{enable_file}", chip.folder)) == Some(0);
    if is_off {
        probe.gap(&format!("{}/{enable_file}", chip.folder), "the channel is switched off");
    }
    !is_off
}

/// Looks at a channel of an INA3221, whose power is voltage times current.
fn ina3221(probe: &mut Probe<'_>, chip: &Chip, channel: u32) -> Option<(Rail, Sensor)> {
    let has = |name: &str| chip.files.iter().any(|file| file == name);
    let (voltage, current) = (format!("in{channel}_input"), format!("curr{channel}_input"));
    let label_file = format!("{}/in{channel}_label", chip.folder);
    let label = probe.text(&label_file);
    if label.as_deref().is_some_and(is_unconnected) {
        probe.gap(&label_file, "the board says that the channel is not connected");
        return None;
    }
    let label = label.filter(|label| !label.is_empty());
    let name = label.clone().unwrap_or_else(|| format!("{} channel {channel}", chip.own_name()));
    let shunt = shunt(probe, chip, &format!("shunt{channel}_resistor"));
    let mut limit_of = |file: String| {
        let milliamperes = has(&file).then(|| probe.number(&format!("{}/{file}", chip.folder))).flatten();
        milliamperes.and_then(|milliamperes| limit(milliamperes, shunt))
    };
    let limits = RailLimits {
        warning: limit_of(format!("curr{channel}_max")),
        critical: limit_of(format!("curr{channel}_crit")),
    };
    let rail = Rail {
        label,
        i2c: chip.i2c,
        channel: Some(channel),
        shunt,
        limits,
        period: chip.period,
        samples: chip.samples,
        resolution: resolution(&chip.name, shunt),
        ..Rail::new(name, chip.folder.clone(), &chip.name, RailKind::Power)
    };
    let files = Files {
        millivolts: probe.attribute(&chip.folder, &chip.files, &voltage),
        milliamperes: probe.attribute(&chip.folder, &chip.files, &current),
        ..Files::NONE
    };
    Some((rail, Sensor { inputs: Inputs::Files(files), earlier: None }))
}

/// Whether a label says that nothing is connected: `NC` on AGX Orin.
fn is_unconnected(label: &str) -> bool {
    label.split(|c: char| !c.is_ascii_alphanumeric()).next() == Some("NC")
}

/// Looks at every power and energy value of another chip: INA226, INA238 and their relatives, and drivers of power meters,
/// processors and graphics cards.
fn power_sensors(probe: &mut Probe<'_>, chip: &Chip) -> Vec<(Rail, Sensor)> {
    let number = |file: &String| {
        number_between(file, "power", "_input")
            .or_else(|| number_between(file, "power", "_average"))
            .or_else(|| number_between(file, "energy", "_input"))
    };
    let mut channels: Vec<u32> = chip.files.iter().filter_map(number).collect();
    let has = |name: &str| chip.files.iter().any(|file| file == name);
    if chip.name.starts_with(SINGLE_CHIPS) && (has("in1_input") || has("curr1_input")) {
        channels.push(1);
    }
    channels.sort_unstable();
    channels.dedup();
    channels.into_iter().map(|channel| power_sensor(probe, chip, channel)).collect()
}

fn power_sensor(probe: &mut Probe<'_>, chip: &Chip, channel: u32) -> (Rail, Sensor) {
    let is_single = chip.name.starts_with(SINGLE_CHIPS);
    let mut file = |name: String| probe.attribute(&chip.folder, &chip.files, &name);
    let mut power = file(format!("power{channel}_input"));
    if !power.is_some() {
        power = file(format!("power{channel}_average"));
    }
    let files = Files {
        millivolts: if is_single { file("in1_input".to_owned()) } else { Source::NONE },
        milliamperes: if is_single { file("curr1_input".to_owned()) } else { Source::NONE },
        power,
        microjoules: file(format!("energy{channel}_input")),
        ..Files::NONE
    };
    let kind = match files.microjoules.is_some() {
        true => RailKind::EnergyCounter { wraps_at: None },
        false => RailKind::Power,
    };
    let shunt = if is_single { shunt(probe, chip, "shunt_resistor") } else { None };
    let label = label(probe, chip, channel);
    let name = label.clone().unwrap_or_else(|| match channel {
        1 => chip.own_name(),
        channel => format!("{} power{channel}", chip.own_name()),
    });
    let rail = Rail {
        label,
        i2c: chip.i2c,
        channel: (!is_single).then_some(channel),
        shunt,
        period: chip.period,
        samples: chip.samples,
        resolution: resolution(&chip.name, shunt),
        ..Rail::new(name, chip.folder.clone(), &chip.name, kind)
    };
    (rail, Sensor { inputs: Inputs::Files(files), earlier: None })
}

/// Returns the label of a value, else of the chip. Newer Jetsons have an INA238 without a label.
fn label(probe: &mut Probe<'_>, chip: &Chip, channel: u32) -> Option<String> {
    let labels = [
        format!("power{channel}_label"),
        format!("energy{channel}_label"),
        "label".to_owned(),
        "in1_label".to_owned(),
    ];
    let known = labels.into_iter().filter(|label| chip.files.contains(label));
    let mut labels = known.filter_map(|label| probe.text(&format!("{}/{label}", chip.folder)));
    labels.find(|label| !label.is_empty())
}

/// Returns the shunt, from the driver or from the device tree, where it is a big-endian number of µΩ (Documentation/devicetree/
/// bindings/hwmon/ti,ina2xx.yaml).
fn shunt(probe: &mut Probe<'_>, chip: &Chip, file: &str) -> Option<Ohms> {
    if chip.files.iter().any(|known| known == file) {
        let microohms = probe.number(&format!("{}/{file}", chip.folder))?;
        return Some(Ohms::from_micro(microohms)).filter(|shunt| *shunt > Ohms::ZERO);
    }
    let property = probe.sysroot.bytes(&format!("{}/of_node/shunt-resistor", chip.device)).ok()?;
    let microohms = u32::from_be_bytes(property.try_into().ok()?);
    Some(Ohms::from_micro(i64::from(microohms))).filter(|shunt| *shunt > Ohms::ZERO)
}

impl Chip {
    /// Returns the name of the chip with its address, or with its number.
    fn own_name(&self) -> String {
        match self.i2c {
            Some(i2c) => format!("{} {i2c}", self.name),
            None => self.name.clone(),
        }
    }
}
