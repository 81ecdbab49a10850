use std::ops::RangeInclusive;

use orinoco_core::Celsius;
use orinoco_sysroot::Sysroot;

use super::probe::{Probe, Source, number_between};
use super::reading::{Reading, Unknown, put};

const CLASS: &str = "/sys/class/thermal";
const HWMON: &str = "/sys/class/hwmon";

/// Temperatures that a sensor can have.
const MEASURABLE: RangeInclusive<Celsius> = Celsius::from_units(-60)..=Celsius::from_units(200);

/// Start of the name of the PMIC's zone of TX2, Xavier and Nano, `PMIC-Die`, in lower case. Its chip only reports whether 120 °C or 140 °C are passed, and the driver gives
/// 100 °C for everything below (drivers/thermal/max77620_thermal.c, comment at max77620_thermal_read_temp).
const ALARM_ZONE: &str = "pmic";
const ALARM_ZONE_BELOW: Celsius = Celsius::from_units(100);

/// Temperature sensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Type of the zone, such as `gpu-thermal`, or chip and label of a sensor of hwmon.
    pub name: String,
    /// File of the temperature.
    pub path: String,
    /// Whether it measures.
    pub kind: ZoneKind,
    /// Temperatures at which the kernel acts, in the kernel's order.
    pub trips: Vec<Trip>,
}

/// Whether a temperature sensor measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneKind {
    /// It measures a temperature.
    Measured,
    /// It reports a constant until an alarm comes, as the PMIC of L4T R32 does with 100 °C. Its reading is unknown until then.
    Constant,
}

/// Temperature at which the kernel acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trip {
    /// Temperature of the trip point.
    pub temperature: Celsius,
    /// Action: `active` and `passive` cool, `hot` notifies, `critical` shuts down.
    pub kind: String,
}

/// Device that cools, by a fan or by slower clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoolingDevice {
    /// Type of the device, such as `pwm-fan` or `cpufreq-cpu0`.
    pub name: String,
    /// File of its state.
    pub path: String,
    /// Greatest state; 0 cools nothing.
    pub max: u32,
}

/// Reads the thermal zones of a board once, without the temperatures of hwmon.
pub fn read_zones(sysroot: &Sysroot) -> Vec<(Zone, Reading<Celsius>)> {
    let mut thermal = Thermal::find_zones(&mut Probe::new(sysroot));
    let mut readings = Vec::new();
    thermal.read(&mut readings, &mut Vec::new());
    thermal.zones.into_iter().zip(readings).collect()
}

/// Reads the cooling devices of a board once. Their states count from 0, which cools nothing.
pub(crate) fn read_cooling(sysroot: &Sysroot) -> Vec<(CoolingDevice, Reading<u32>)> {
    let mut thermal = Thermal::default();
    thermal.find_cooling(&mut Probe::new(sysroot));
    let mut states = Vec::new();
    thermal.read(&mut Vec::new(), &mut states);
    thermal.cooling.into_iter().zip(states).collect()
}

/// Thermal zones, temperatures of hwmon, and cooling devices.
#[derive(Debug, Default)]
pub(super) struct Thermal {
    pub(super) zones: Vec<Zone>,
    temperatures: Vec<Source>,
    pub(super) cooling: Vec<CoolingDevice>,
    states: Vec<Source>,
}

impl Thermal {
    pub(super) fn find(probe: &mut Probe<'_>) -> Self {
        let mut thermal = Self::find_zones(probe);
        thermal.find_cooling(probe);
        for name in probe.names(HWMON, "hwmon") {
            thermal.add_hwmon(probe, &format!("{HWMON}/{name}"));
        }
        thermal
    }

    /// Finds only the thermal zones.
    pub(super) fn find_zones(probe: &mut Probe<'_>) -> Self {
        let mut thermal = Self::default();
        for name in probe.names(CLASS, "thermal_zone") {
            thermal.add_zone(probe, &format!("{CLASS}/{name}"));
        }
        thermal
    }

    fn find_cooling(&mut self, probe: &mut Probe<'_>) {
        for name in probe.names(CLASS, "cooling_device") {
            self.add_cooling(probe, &format!("{CLASS}/{name}"));
        }
    }

    fn add_zone(&mut self, probe: &mut Probe<'_>, folder: &str) {
        let Some(name) = probe.text(&format!("{folder}/type")).filter(|name| !name.is_empty()) else {
            return;
        };
        let is_alarm = name.to_lowercase().starts_with(ALARM_ZONE);
        let kind = if is_alarm { ZoneKind::Constant } else { ZoneKind::Measured };
        let path = format!("{folder}/temp");
        self.temperatures.push(probe.file(&path).into());
        self.zones.push(Zone { name, path, kind, trips: trips(probe, folder) });
    }

    fn add_cooling(&mut self, probe: &mut Probe<'_>, folder: &str) {
        let Some(name) = probe.text(&format!("{folder}/type")) else { return };
        let max = probe.number(&format!("{folder}/max_state"));
        let Some(max) = max.and_then(|max| u32::try_from(max).ok()) else {
            probe.gap(folder, "the cooling device has no number of states");
            return;
        };
        let path = format!("{folder}/cur_state");
        self.states.push(probe.file(&path).into());
        self.cooling.push(CoolingDevice { name, path, max });
    }

    /// Adds the temperatures of a chip, unless it only repeats a thermal zone.
    fn add_hwmon(&mut self, probe: &mut Probe<'_>, folder: &str) {
        let device = probe.sysroot.link(&format!("{folder}/device")).unwrap_or_default();
        if device.rsplit('/').next().is_some_and(|name| name.starts_with("thermal_zone")) {
            return;
        }
        let files = probe.sysroot.entries(folder).unwrap_or_default();
        let mut numbers: Vec<u32> =
            files.iter().filter_map(|file| number_between(file, "temp", "_input")).collect();
        if numbers.is_empty() {
            return;
        }
        numbers.sort_unstable();
        let chip = probe.text(&format!("{folder}/name")).unwrap_or_default();
        for number in numbers {
            let label = format!("temp{number}_label");
            let label = files.contains(&label).then(|| probe.text(&format!("{folder}/{label}"))).flatten();
            let name = format!("{chip} {}", label.unwrap_or_else(|| format!("temp{number}")));
            let path = format!("{folder}/temp{number}_input");
            self.temperatures.push(probe.file(&path).into());
            self.zones.push(Zone { name, path, kind: ZoneKind::Measured, trips: Vec::new() });
        }
    }

    /// Reads all zones. Files are in thousandths of a degree (Documentation/ABI/testing/sysfs-class-thermal).
    pub(super) fn read(&mut self, zones: &mut Vec<Reading<Celsius>>, cooling: &mut Vec<Reading<u32>>) {
        zones.truncate(self.zones.len());
        for (index, (zone, file)) in self.zones.iter().zip(&mut self.temperatures).enumerate() {
            let reading = match (zone.kind, file.quantity_within(Celsius::from_milli, &MEASURABLE)) {
                (ZoneKind::Constant, Ok(ALARM_ZONE_BELOW)) => Err(Unknown::AlarmOnly),
                (_, reading) => reading,
            };
            put(zones, index, reading);
        }
        cooling.truncate(self.cooling.len());
        for (index, file) in self.states.iter_mut().enumerate() {
            let state = file.number().and_then(|state| u32::try_from(state).map_err(|_| Unknown::Malformed));
            put(cooling, index, state);
        }
    }
}

/// Returns the trip points of a zone. One that is not set is at the lowest temperature (`THERMAL_TEMP_INVALID`) and left out.
fn trips(probe: &mut Probe<'_>, folder: &str) -> Vec<Trip> {
    let files = probe.sysroot.entries(folder).unwrap_or_default();
    let mut numbers: Vec<u32> =
        files.iter().filter_map(|file| number_between(file, "trip_point_", "_temp")).collect();
    numbers.sort_unstable();
    let mut trip = |number: u32| {
        let temperature = Celsius::from_milli(probe.number(&format!("{folder}/trip_point_{number}_temp"))?);
        let kind = probe.text(&format!("{folder}/trip_point_{number}_type"))?;
        (temperature > Celsius::from_units(-273)).then_some(Trip { temperature, kind })
    };
    numbers.into_iter().filter_map(&mut trip).collect()
}
