use orinoco_api::{
    ClockStatus, Conditions, FanStatus, RailStatus, SensorsStatus, TemperatureStatus, ThrottleStatus,
    UnknownValue,
};
use orinoco_board::readers::{
    Hertz, Policy, Reading, Sensors, Snapshot, ThrottleCounter, Unknown, Utilization, Zone,
};
use orinoco_core::{Celsius, Joules};

/// Returns the values of a snapshot in the form in which the control socket gives them. `joules` has the energy of each rail since
/// the start of the run, in the order of [`Sensors::rails`]; a rail without an entry has none.
///
/// A value that is not known is absent, and its reason stands in `unknown`, after the files that cannot be read. Sensors of one
/// kind and name are numbered, so that a name means one sensor. A snapshot into which nothing was read has no sensors.
pub fn sensors_status(sensors: &Sensors, snapshot: &Snapshot, joules: &[Option<Joules>]) -> SensorsStatus {
    let gaps = sensors.gaps().iter();
    let gaps = gaps.map(|gap| UnknownValue { value: gap.path.clone(), why: gap.reason.clone() });
    let mut unknown = Unknowns(gaps.collect());
    SensorsStatus {
        rails: rails(sensors, snapshot, joules, &mut unknown),
        temperatures: temperatures(sensors, snapshot, &mut unknown),
        clocks: with_loads(clocks(sensors, snapshot, &mut unknown), sensors, snapshot, &mut unknown),
        cpu_load: unknown.unless(&snapshot.cpu.usage, share, || "load of the processor".to_owned()),
        fans: fans(sensors, snapshot, &mut unknown),
        unknown: unknown.0,
    }
}

/// Returns temperatures, clocks without their loads, and counters of throttling, with the names of [`sensors_status`]. A value that
/// is not known is absent, and its reason stands in `unknown`; files that cannot be read are not listed.
pub fn conditions(sensors: &Sensors, snapshot: &Snapshot) -> Conditions {
    let mut unknown = Unknowns(Vec::new());
    Conditions {
        temperatures: temperatures(sensors, snapshot, &mut unknown),
        clocks: clocks(sensors, snapshot, &mut unknown),
        throttling: throttling(sensors, snapshot, &mut unknown),
        unknown: unknown.0,
    }
}

/// Values that are not known, so far.
struct Unknowns(Vec<UnknownValue>);

impl Unknowns {
    /// Returns a reading as a number, or notes the reason why it is not known.
    fn unless<T: Copy>(
        &mut self,
        reading: &Reading<T>,
        number: fn(T) -> f64,
        name: impl FnOnce() -> String,
    ) -> Option<f64> {
        self.known(reading, name).map(number)
    }

    /// Returns the value of a reading, or notes the reason why it is not known.
    fn known<T: Copy>(&mut self, reading: &Reading<T>, name: impl FnOnce() -> String) -> Option<T> {
        let noted = |why: &Unknown| self.0.push(UnknownValue { value: name(), why: why.to_string() });
        reading.as_ref().map_err(noted).ok().copied()
    }
}

fn rails(
    sensors: &Sensors,
    snapshot: &Snapshot,
    joules: &[Option<Joules>],
    unknown: &mut Unknowns,
) -> Vec<RailStatus> {
    let rails = sensors.rails().iter().zip(&snapshot.rails).enumerate();
    rails
        .map(|(index, (rail, reading))| {
            let named = |quantity: &str| format!("{quantity} of rail {}", rail.name);
            RailStatus {
                name: rail.name.clone(),
                volts: unknown.unless(&reading.volts, |volts| volts.to_f64(), || named("voltage")),
                amperes: unknown.unless(&reading.amperes, |amperes| amperes.to_f64(), || named("current")),
                watts: unknown.unless(&reading.watts, |watts| watts.to_f64(), || named("power")),
                joules: joules.get(index).copied().flatten().map(Joules::to_f64),
            }
        })
        .collect()
}

/// Returns the temperatures of zones, then of GPUs.
fn temperatures(sensors: &Sensors, snapshot: &Snapshot, unknown: &mut Unknowns) -> Vec<TemperatureStatus> {
    let mut names = Names::default();
    let mut temperature = |name: &str, reading: &Reading<Celsius>, limit: Option<Celsius>| {
        let name = names.unique(name);
        let celsius = unknown.unless(reading, Celsius::to_f64, || format!("temperature of {name}"));
        TemperatureStatus { name, celsius, limit_celsius: limit.map(Celsius::to_f64) }
    };
    let zones = sensors.zones().iter().zip(&snapshot.zones);
    let mut all: Vec<TemperatureStatus> =
        zones.map(|(zone, reading)| temperature(&zone.name, reading, limit(zone))).collect();
    for (index, gpu) in snapshot.gpus.iter().enumerate() {
        all.push(temperature(&gpu_name(index, snapshot), &gpu.temperature, None));
    }
    all
}

/// Returns the lowest temperature at which the kernel slows the board down or shuts it down. Other trip points start fans or only
/// notify (Documentation/driver-api/thermal/sysfs-api.rst). Drivers that have no value for a trip point give 0 °C or less.
fn limit(zone: &Zone) -> Option<Celsius> {
    let acts = zone.trips.iter().filter(|trip| matches!(trip.kind.as_str(), "passive" | "critical"));
    acts.map(|trip| trip.temperature).filter(|temperature| *temperature > Celsius::ZERO).min()
}

/// Returns the clocks of devices, then of groups of cores, then of GPUs, without loads.
fn clocks(sensors: &Sensors, snapshot: &Snapshot, unknown: &mut Unknowns) -> Vec<ClockStatus> {
    let mut names = Names::default();
    let mut all = Vec::new();
    for (device, reading) in sensors.devices().iter().zip(&snapshot.devices) {
        let name = names.unique(&device.name);
        all.push(ClockStatus {
            mhz: unknown.unless(&reading.clock, megahertz, || format!("clock of {name}")),
            max_mhz: unknown.unless(&reading.max, megahertz, || format!("maximum clock of {name}")),
            load: None,
            name,
        });
    }
    for (policy, reading) in sensors.policies().iter().zip(&snapshot.cpu.policies) {
        let name = names.unique(&policy_name(policy));
        all.push(ClockStatus {
            mhz: unknown.unless(&reading.clock, megahertz, || format!("clock of {name}")),
            max_mhz: unknown.unless(&reading.max, megahertz, || format!("maximum clock of {name}")),
            load: None,
            name,
        });
    }
    for (index, gpu) in snapshot.gpus.iter().enumerate() {
        let name = names.unique(&gpu_name(index, snapshot));
        all.push(ClockStatus {
            mhz: unknown.unless(&gpu.clock, megahertz, || format!("clock of {name}")),
            max_mhz: None,
            load: None,
            name,
        });
    }
    all
}

/// Adds the loads to [`clocks`].
fn with_loads(
    mut clocks: Vec<ClockStatus>,
    sensors: &Sensors,
    snapshot: &Snapshot,
    unknown: &mut Unknowns,
) -> Vec<ClockStatus> {
    let devices = sensors.devices().iter().zip(&snapshot.devices).map(|(_, reading)| reading.load.clone());
    let policies = sensors.policies().iter().zip(&snapshot.cpu.policies);
    let policies = policies.map(|(policy, _)| load_of(policy, &snapshot.cpu.cores));
    let gpus = snapshot.gpus.iter().map(|gpu| gpu.load.clone());
    for (clock, load) in clocks.iter_mut().zip(devices.chain(policies).chain(gpus)) {
        clock.load = unknown.unless(&load, share, || format!("load of {}", clock.name));
    }
    clocks
}

/// Returns the mean load of the cores of a group that are online.
fn load_of(policy: &Policy, cores: &[Reading<Utilization>]) -> Reading<Utilization> {
    let loads =
        policy.cores.iter().map(|core| cores.get(*core as usize).unwrap_or(&Err(Unknown::NotOffered)));
    let online: Vec<&Reading<Utilization>> = loads.filter(|load| **load != Err(Unknown::Offline)).collect();
    if online.is_empty() {
        return Err(if policy.cores.is_empty() { Unknown::NotOffered } else { Unknown::Offline });
    }
    let mut sum = 0;
    for load in &online {
        sum += u64::from((*load).clone()?.millionths());
    }
    Utilization::of(sum, online.len() as u64 * 1_000_000).ok_or(Unknown::NotOffered)
}

/// Returns the name of a group of cores, such as `cpu 0-3` or `cpu 0,2`.
fn policy_name(policy: &Policy) -> String {
    let (Some(first), Some(last)) = (policy.cores.first(), policy.cores.last()) else {
        return policy.path.rsplit('/').next().unwrap_or("cpu").to_owned();
    };
    let is_range = policy.cores.windows(2).all(|pair| pair[1] == pair[0] + 1);
    match policy.cores.len() {
        1 => format!("cpu {first}"),
        _ if is_range => format!("cpu {first}-{last}"),
        _ => {
            let cores: Vec<String> = policy.cores.iter().map(u32::to_string).collect();
            format!("cpu {}", cores.join(","))
        }
    }
}

/// Returns the name of a GPU, which its rail has, too.
fn gpu_name(index: usize, snapshot: &Snapshot) -> String {
    if snapshot.gpus.len() == 1 { "GPU".to_owned() } else { format!("GPU {index}") }
}

fn throttling(sensors: &Sensors, snapshot: &Snapshot, unknown: &mut Unknowns) -> Vec<ThrottleStatus> {
    let counters = sensors.throttling().iter().zip(&snapshot.throttling);
    let status = |(counter, reading): (&ThrottleCounter, &Reading<u64>)| ThrottleStatus {
        name: counter.name.clone(),
        count: unknown.known(reading, || format!("counter {}", counter.name)),
    };
    counters.map(status).collect()
}

fn fans(sensors: &Sensors, snapshot: &Snapshot, unknown: &mut Unknowns) -> Vec<FanStatus> {
    let mut names = Names::default();
    let fans = sensors.fans().iter().zip(&snapshot.fans);
    fans.map(|(fan, reading)| {
        let name = names.unique(&fan.name);
        FanStatus {
            rpm: unknown.unless(&reading.rpm, f64::from, || format!("speed of fan {name}")),
            duty: unknown.unless(&reading.duty, share, || format!("duty cycle of fan {name}")),
            name,
        }
    })
    .collect()
}

/// Names that were given, so that a second sensor of a name is numbered.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    /// Returns the name, with ` #2` and so on if another sensor has it.
    fn unique(&mut self, name: &str) -> String {
        let mut unique = name.to_owned();
        let mut number = 2;
        while self.0.contains(&unique) {
            unique = format!("{name} #{number}");
            number += 1;
        }
        self.0.push(unique.clone());
        unique
    }
}

fn share(share: Utilization) -> f64 {
    f64::from(share.millionths()) / 1e6
}

fn megahertz(Hertz(hertz): Hertz) -> f64 {
    hertz as f64 / 1e6
}

#[cfg(test)]
mod tests;
