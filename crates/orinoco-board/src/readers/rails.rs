//! Power rails: current sensors on I2C, energy counters of processors, and GPUs.

mod chip;
mod folder;
mod hwmon;
mod iio;
mod powercap;
mod rail;

use orinoco_core::{Joules, Nanos};
use orinoco_sysroot::Sysroot;

use super::gpu::{GpuDevices, GpuInfo, GpuPower};
use super::probe::{Gap, Probe};
use super::reading::{Reading, Unknown, put};
use folder::Interface;
use rail::{Inputs, Sensor};

pub use rail::{I2cAddress, Rail, RailKind, RailLimits, RailReading, Resolution};

/// Power rails of a board. They can be read more often than its other sensors, which [`Sensors`](super::Sensors) reads.
#[derive(Debug, Default)]
pub struct Rails {
    rails: Vec<Rail>,
    sensors: Vec<Sensor>,
}

impl Rails {
    /// Finds the rails of a board, and the reasons why others cannot be read.
    pub fn discover(sysroot: &Sysroot) -> (Self, Vec<Gap>) {
        let mut probe = Probe::new(sysroot);
        (Self::find(&mut probe), probe.gaps)
    }

    pub(super) fn find(probe: &mut Probe<'_>) -> Self {
        let mut found = Vec::new();
        for folder in folder::find(probe) {
            found.extend(match folder.interface {
                Interface::Hwmon => hwmon::rails(probe, &folder),
                Interface::Iio => iio::rails(probe, &folder),
            });
        }
        found.extend(powercap::find(probe));
        let (mut rails, sensors): (Vec<Rail>, Vec<Sensor>) = found.into_iter().unzip();
        make_names_unique(&mut rails);
        Self { rails, sensors }
    }

    /// Adds the GPUs of a driver, in the order of its [`gpus`](GpuDevices::gpus).
    pub(super) fn add_gpus(&mut self, gpus: &[GpuInfo]) {
        for (index, gpu) in gpus.iter().enumerate() {
            let kind = match gpu.counts_energy {
                true => RailKind::EnergyCounter { wraps_at: None },
                false => RailKind::Power,
            };
            let source = format!("NVML GPU {index} {}", gpu.address);
            let name = if gpus.len() == 1 { "GPU".to_owned() } else { format!("GPU {index}") };
            self.rails.push(Rail::new(name, source.trim_end().to_owned(), "nvml", kind));
            self.sensors.push(Sensor { inputs: Inputs::Gpu(index), earlier: None });
        }
        make_names_unique(&mut self.rails);
    }

    /// Returns the rails. Readings are in the same order.
    pub fn rails(&self) -> &[Rail] {
        &self.rails
    }

    /// Reads all rails at the time `now` into `into`, in the order of [`rails`](Self::rails). Where a rail counts energy, its power is
    /// the average since the last reading, also if its driver gives a power: that is often averaged over another time (a second on
    /// NVIDIA's data center GPUs: NVML API Reference, `nvmlDeviceGetPowerUsage`), and a counter misses nothing.
    pub fn read(
        &mut self,
        now: Nanos,
        gpus: Option<&mut (dyn GpuDevices + 'static)>,
        into: &mut Vec<RailReading>,
    ) {
        into.truncate(self.sensors.len());
        let mut gpus = gpus;
        for (index, (rail, sensor)) in self.rails.iter().zip(&mut self.sensors).enumerate() {
            let mut reading = match &mut sensor.inputs {
                Inputs::Files(files) => files.read(),
                Inputs::Gpu(gpu) => of_gpu(match &mut gpus {
                    Some(gpus) => gpus.read_power(*gpu),
                    None => GpuPower::unknown(&Unknown::NotOffered),
                }),
            };
            if matches!(rail.kind, RailKind::EnergyCounter { .. })
                || reading.watts == Err(Unknown::NotOffered)
            {
                reading.watts = average_power(rail, &mut sensor.earlier, now, &reading.joules);
            }
            put(into, index, reading);
        }
    }
}

fn of_gpu(GpuPower { watts, joules }: GpuPower) -> RailReading {
    RailReading { volts: Err(Unknown::NotOffered), amperes: Err(Unknown::NotOffered), watts, joules }
}

/// Returns the average power since the last reading of a counter, which is replaced.
fn average_power(
    rail: &Rail,
    earlier: &mut Option<(Nanos, Joules)>,
    now: Nanos,
    joules: &Reading<Joules>,
) -> Reading<orinoco_core::Watts> {
    let later = joules.clone()?;
    let Some((since, before)) = earlier.replace((now, later)) else {
        return Err(Unknown::NeedsSecondReading);
    };
    let time = now.since(since);
    if time.is_zero() {
        return Err(Unknown::NeedsSecondReading);
    }
    rail.energy_between(before, later).map(|energy| energy / time).ok_or(Unknown::NeedsSecondReading)
}

/// Numbers rails of the same name, so that a name means one rail.
fn make_names_unique(rails: &mut [Rail]) {
    for index in 1..rails.len() {
        let (before, rest) = rails.split_at_mut(index);
        let name = rest[0].name.clone();
        let mut number = 2;
        while before.iter().any(|rail| rail.name == rest[0].name) {
            rest[0].name = format!("{name} #{number}");
            number += 1;
        }
    }
}
