//! Board of a card: its name, its versions, and its clocks and temperatures.

use orinoco_api::{CardBoard, ClockStatus, Conditions, TemperatureStatus, ThrottleStatus, UnknownValue};
use orinoco_board::readers::{Hertz, Policy, Reading, Sensors, Snapshot, Zone};
use orinoco_board::{Detection, Fact};
use orinoco_core::Nanos;
use orinoco_sysroot::Sysroot;

/// Longest `/proc/cpuinfo` that is read, in bytes: servers list some hundred cores.
const CPUINFO_BYTES_MAX: u64 = 4 << 20;
/// Kinds of trip points at which the kernel slows a board down or switches it off.
const LIMITING_TRIPS: [&str; 3] = ["passive", "hot", "critical"];

/// Detection and sensors of a board.
pub(super) struct BoardSensors {
    pub(super) sysroot: Sysroot,
    pub(super) detection: Detection,
    pub(super) sensors: Sensors,
}

impl BoardSensors {
    /// Detects the board of `sysroot`, and finds its sensors.
    pub(super) fn find(sysroot: Sysroot) -> Self {
        let (detection, sensors) = (orinoco_board::detect(&sysroot), Sensors::discover(&sysroot));
        Self { sysroot, detection, sensors }
    }

    /// Returns the board for a card.
    pub(super) fn card_board(&self, cores: usize) -> CardBoard {
        let found = &self.detection;
        let profile = found.profile.as_ref().map(|profile| profile.value.name.clone());
        let named = [&found.module, &found.model].into_iter().find_map(value);
        CardBoard {
            name: named.or_else(|| profile.clone()).unwrap_or_else(|| "unknown board".to_owned()),
            profile,
            power_mode: found.power_mode.as_ref().map(|mode| mode.value.name.clone()),
            processor: self.processor(),
            cores,
        }
    }

    /// Returns the name of the processor, which the kernel gives on x86 (`/proc/cpuinfo`), or else its profile.
    fn processor(&self) -> Option<String> {
        let text = self.sysroot.bytes_within("/proc/cpuinfo", CPUINFO_BYTES_MAX).ok();
        let text = text.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        let of_kernel = text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == "model name").then(|| value.trim().to_owned())
        });
        let profile = self.detection.profile.as_ref().and_then(|profile| profile.value.soc.as_ref());
        of_kernel.or_else(|| profile.and_then(|soc| soc.cpu.clone()))
    }

    /// Reads clocks, temperatures and counters of throttling.
    pub(super) fn conditions(&mut self, now: Nanos) -> Conditions {
        let mut snapshot = Snapshot::default();
        self.sensors.read(now, &mut snapshot);
        let mut unknown = Vec::new();
        let clocks = self.clocks(&snapshot, &mut unknown);
        let zones = self.sensors.zones().iter().zip(&snapshot.zones);
        let temperatures = zones.map(|(zone, reading)| temperature(zone, reading, &mut unknown)).collect();
        let counters = self.sensors.throttling().iter().zip(&snapshot.throttling);
        let throttling = counters.map(|(counter, reading)| ThrottleStatus {
            name: counter.name.clone(),
            count: known(&counter.name, reading, &mut unknown).copied(),
        });
        let throttling = throttling.collect();
        unknown.extend(self.missing());
        Conditions { clocks, temperatures, throttling, unknown }
    }

    fn clocks(&self, snapshot: &Snapshot, unknown: &mut Vec<UnknownValue>) -> Vec<ClockStatus> {
        let mut clock = |name: String, present: &Reading<Hertz>, max: &Reading<Hertz>| ClockStatus {
            mhz: known(&name, present, unknown).map(|hertz| megahertz(*hertz)),
            max_mhz: max.as_ref().ok().map(|hertz| megahertz(*hertz)),
            load: None,
            name,
        };
        let policies = self.sensors.policies().iter().zip(&snapshot.cpu.policies);
        let mut clocks: Vec<ClockStatus> =
            policies.map(|(policy, reading)| clock(cores(policy), &reading.clock, &reading.max)).collect();
        let devices = self.sensors.devices().iter().zip(&snapshot.devices);
        clocks.extend(
            devices.map(|(device, reading)| clock(device.name.clone(), &reading.clock, &reading.max)),
        );
        let gpus = self.sensors.gpus().iter().zip(&snapshot.gpus);
        clocks.extend(gpus.map(|(gpu, reading)| clock(gpu.name.clone(), &reading.clock, &reading.clock)));
        clocks
    }

    /// Returns the reasons why a board has no clocks or no temperatures.
    fn missing(&self) -> Vec<UnknownValue> {
        let about = |part: &str| {
            let gaps = self.sensors.gaps().iter().filter(move |gap| gap.path.contains(part));
            gaps.map(|gap| UnknownValue { value: gap.path.clone(), why: gap.reason.clone() })
                .collect::<Vec<_>>()
        };
        let mut missing = about("cpufreq");
        missing.extend(about("thermal"));
        let mut none = |is_empty: bool, value: &str, why: &str| {
            if is_empty {
                missing.push(UnknownValue { value: value.to_owned(), why: why.to_owned() });
            }
        };
        none(
            self.sensors.policies().is_empty(),
            "clocks",
            "the kernel of this machine reports no clock of the processor",
        );
        none(self.sensors.zones().is_empty(), "temperatures", "this machine has no temperature sensor");
        none(self.sensors.throttling().is_empty(), "throttling", "this machine has no counter of throttling");
        missing
    }
}

/// Returns the value of a fact.
pub(super) fn value<T: Clone>(fact: &Option<Fact<T>>) -> Option<T> {
    fact.as_ref().map(|fact| fact.value.clone())
}

/// Returns the value of a reading; its reason goes to `unknown` if there is none.
fn known<'a, T>(name: &str, reading: &'a Reading<T>, unknown: &mut Vec<UnknownValue>) -> Option<&'a T> {
    match reading {
        Ok(value) => Some(value),
        Err(why) => {
            unknown.push(UnknownValue { value: name.to_owned(), why: why.to_string() });
            None
        }
    }
}

fn temperature(
    zone: &Zone,
    reading: &Reading<orinoco_core::Celsius>,
    unknown: &mut Vec<UnknownValue>,
) -> TemperatureStatus {
    let limits = zone.trips.iter().filter(|trip| LIMITING_TRIPS.contains(&trip.kind.as_str()));
    let limit = limits.map(|trip| trip.temperature).min();
    TemperatureStatus {
        name: zone.name.clone(),
        celsius: known(&zone.name, reading, unknown).map(|celsius| celsius.to_f64()),
        limit_celsius: limit.map(|celsius| celsius.to_f64()),
    }
}

/// Returns the name of a group of cores: `cpu 0-3`.
fn cores(policy: &Policy) -> String {
    match (policy.cores.first(), policy.cores.last()) {
        (Some(first), Some(last)) if first != last => format!("cpu {first}-{last}"),
        (Some(first), _) => format!("cpu {first}"),
        _ => policy.path.rsplit('/').next().unwrap_or_default().to_owned(),
    }
}

fn megahertz(hertz: Hertz) -> f64 {
    hertz.0 as f64 / 1e6
}
