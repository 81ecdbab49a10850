use orinoco_core::{Celsius, Nanos};
use orinoco_sysroot::Sysroot;

use super::cgroup::{Group, GroupReading};
use super::counters::{ThrottleCounter, Throttling};
use super::cpu::{Cpu, CpuReading, Policy};
use super::devfreq::{Devfreq, DeviceReading, FrequencyDevice};
use super::fan::{Fan, FanReading, Fans};
use super::gpu::{GpuDevices, GpuInfo, GpuReading};
use super::memory::{Memory, MemoryReading};
use super::pressure::{PressureFiles, PressureReading};
use super::probe::{Gap, Probe};
use super::rails::{Rail, RailReading, Rails};
use super::reading::{Reading, put};
use super::thermal::{CoolingDevice, Thermal, Zone};

/// Sensors of a board. Their files stay open, up to 256 of them.
///
/// A device that appears later is found by another discovery; one that goes away and comes back under the same path is read
/// again by itself.
#[derive(Debug)]
pub struct Sensors {
    rails: Rails,
    thermal: Thermal,
    devfreq: Devfreq,
    cpu: Cpu,
    memory: Memory,
    pressure: PressureFiles,
    group: Group,
    throttling: Throttling,
    fans: Fans,
    gpus: Option<Box<dyn GpuDevices>>,
    gaps: Vec<Gap>,
}

/// Values of all sensors at one time. Lists are in the order of the lists of [`Sensors`]. Reading into the same snapshot again
/// allocates nothing, unless a value fails with a message of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Time at which the reading started.
    pub at: Nanos,
    /// Power rails.
    pub rails: Vec<RailReading>,
    /// Temperatures.
    pub zones: Vec<Reading<Celsius>>,
    /// States of the cooling devices; 0 cools nothing.
    pub cooling: Vec<Reading<u32>>,
    /// Devices with clocks, such as the GPU.
    pub devices: Vec<DeviceReading>,
    /// Load and clocks of the processor.
    pub cpu: CpuReading,
    /// Memory of the machine.
    pub memory: MemoryReading,
    /// Time that tasks wait for the machine.
    pub pressure: PressureReading,
    /// The process's own control group.
    pub group: GroupReading,
    /// Number of times that hardware slowed itself down, since it started.
    pub throttling: Vec<Reading<u64>>,
    /// Fans.
    pub fans: Vec<FanReading>,
    /// GPUs of a driver that is asked by function calls.
    pub gpus: Vec<GpuReading>,
}

impl Sensors {
    /// Finds the sensors of a board, and its driver's GPUs if `sysroot` is this machine. It never fails: what cannot be read is
    /// in [`gaps`](Self::gaps), with the reason.
    pub fn discover(sysroot: &Sysroot) -> Self {
        let mut probe = Probe::new(sysroot);
        // The rails first: their files are the ones that are read most often, and must stay open.
        let rails = Rails::find(&mut probe);
        let sensors = Self {
            rails,
            thermal: Thermal::find(&mut probe),
            devfreq: Devfreq::find(&mut probe),
            cpu: Cpu::find(&mut probe),
            memory: Memory::find(&mut probe),
            pressure: PressureFiles::find(&mut probe),
            group: Group::find(&mut probe),
            throttling: Throttling::find(&mut probe),
            fans: Fans::find(&mut probe),
            gpus: None,
            gaps: Vec::new(),
        };
        let mut gaps = probe.gaps;
        gaps.sort_by(|one, other| one.path.cmp(&other.path));
        gaps.dedup();
        let sensors = Self { gaps, ..sensors };
        #[cfg(feature = "nvml")]
        if sysroot.is_host() {
            let gpus = super::Nvml::open();
            return sensors.with_gpus(gpus.map(|gpus| Box::new(gpus) as Box<dyn GpuDevices>));
        }
        sensors
    }

    /// Adds the GPUs of a driver such as NVML, or the reason why there are none. They are rails, too.
    #[must_use]
    pub fn with_gpus(mut self, gpus: Result<Box<dyn GpuDevices>, String>) -> Self {
        match gpus {
            Ok(gpus) => {
                self.rails.add_gpus(gpus.gpus());
                self.gpus = Some(gpus);
            }
            Err(reason) => self.gaps.push(Gap { path: "NVML".to_owned(), reason }),
        }
        self
    }

    /// Reads all sensors into `into`, at the time `now`.
    pub fn read(&mut self, now: Nanos, into: &mut Snapshot) {
        into.at = now;
        self.read_rails(now, into);
        self.thermal.read(&mut into.zones, &mut into.cooling);
        self.devfreq.read(&mut into.devices);
        self.cpu.read(&mut into.cpu);
        into.memory = self.memory.read();
        into.pressure = self.pressure.read();
        into.group = self.group.read();
        self.throttling.read(&mut into.throttling);
        self.fans.read(&mut into.fans);
        into.gpus.truncate(self.gpus().len());
        if let Some(gpus) = &mut self.gpus {
            for index in 0..gpus.gpus().len() {
                put(&mut into.gpus, index, gpus.read(index));
            }
        }
    }

    /// Reads only the power rails into `into`, at the time `now`. The other values stay as they are.
    pub fn read_rails(&mut self, now: Nanos, into: &mut Snapshot) {
        self.rails.read(now, self.gpus.as_deref_mut(), &mut into.rails);
    }

    /// Returns the power rails.
    pub fn rails(&self) -> &[Rail] {
        self.rails.rails()
    }

    /// Returns the temperature sensors.
    pub fn zones(&self) -> &[Zone] {
        &self.thermal.zones
    }

    /// Returns the devices that cool.
    pub fn cooling(&self) -> &[CoolingDevice] {
        &self.thermal.cooling
    }

    /// Returns the devices with clocks.
    pub fn devices(&self) -> &[FrequencyDevice] {
        &self.devfreq.devices
    }

    /// Returns the groups of cores with one clock.
    pub fn policies(&self) -> &[Policy] {
        &self.cpu.policies
    }

    /// Returns the counters of throttling.
    pub fn throttling(&self) -> &[ThrottleCounter] {
        &self.throttling.counters
    }

    /// Returns the fans.
    pub fn fans(&self) -> &[Fan] {
        &self.fans.fans
    }

    /// Returns the GPUs of a driver that is asked by function calls.
    pub fn gpus(&self) -> &[GpuInfo] {
        self.gpus.as_ref().map_or(&[], |gpus| gpus.gpus())
    }

    /// Returns what cannot be read, with the reasons, in order of the paths.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }
}
