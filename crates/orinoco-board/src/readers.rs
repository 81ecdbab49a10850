//! Readers of a board's sensors: power rails, temperatures, clocks, load, memory, pressure, fans.
//!
//! [`Sensors::discover`] looks once which sensors a board has, and [`Sensors::read`] reads all of them into a [`Snapshot`]. A value
//! that cannot be read is [`Unknown`] with its reason, and never 0. Nothing here reads a clock or writes a file.

mod cgroup;
mod counters;
mod cpu;
mod devfreq;
mod fan;
mod gpu;
mod memory;
#[cfg(feature = "nvml")]
mod nvml;
mod pressure;
mod probe;
mod rails;
mod reading;
mod selection;
mod sensors;
mod thermal;

pub use cgroup::GroupReading;
pub use counters::ThrottleCounter;
pub use cpu::{CpuReading, Policy, PolicyReading};
pub(crate) use devfreq::is_gpu_name;
pub use devfreq::{DeviceKind, DeviceReading, FrequencyDevice};
pub use fan::{Fan, FanReading};
pub use gpu::{GpuDevices, GpuInfo, GpuPower, GpuReading};
pub use memory::MemoryReading;
#[cfg(feature = "nvml")]
pub use nvml::Nvml;
pub use pressure::{Pressure, PressureReading, Stall};
pub use probe::Gap;
pub use rails::{I2cAddress, Rail, RailKind, RailLimits, RailReading, Rails, Resolution};
pub use reading::{Governor, Hertz, Reading, Unknown, Utilization};
pub use selection::recorded_files;
pub use sensors::{Sensors, Snapshot};
pub(crate) use thermal::read_cooling;
pub use thermal::{CoolingDevice, Trip, Zone, ZoneKind, read_zones};
