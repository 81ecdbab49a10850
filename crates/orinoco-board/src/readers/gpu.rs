use std::fmt;

use orinoco_core::{Celsius, Joules, Watts};

use super::reading::{Hertz, Reading, Unknown, Utilization};

/// GPUs whose driver is asked by function calls and not by files. Tests stand in for it.
pub trait GpuDevices: fmt::Debug + Send {
    /// Returns the GPUs, in the driver's order.
    fn gpus(&self) -> &[GpuInfo];

    /// Reads the power of the GPU `index` of [`gpus`](Self::gpus).
    fn read_power(&mut self, index: usize) -> GpuPower;

    /// Reads all values of the GPU `index` of [`gpus`](Self::gpus).
    fn read(&mut self, index: usize) -> GpuReading;
}

/// Identity of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Product name, such as `NVIDIA RTX A2000`.
    pub name: String,
    /// PCI address, such as `00000000:01:00.0`; empty if the driver does not report it.
    pub address: String,
    /// Whether the driver counts energy, and not only reports power.
    pub counts_energy: bool,
}

/// Power and energy of a GPU at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuPower {
    /// Power of the whole card.
    pub watts: Reading<Watts>,
    /// Energy of the whole card since its driver was loaded.
    pub joules: Reading<Joules>,
}

/// Values of a GPU at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuReading {
    /// Power and energy.
    pub power: GpuPower,
    /// Temperature of the die.
    pub temperature: Reading<Celsius>,
    /// Clock of the multiprocessors.
    pub clock: Reading<Hertz>,
    /// Share of the last sampling period in which a kernel ran.
    pub load: Reading<Utilization>,
    /// Memory in use, in bytes.
    pub memory_used: Reading<u64>,
    /// Memory in all, in bytes.
    pub memory_total: Reading<u64>,
}

impl GpuPower {
    /// Creates a reading in which nothing is known, for one reason.
    pub fn unknown(reason: &Unknown) -> Self {
        Self { watts: Err(reason.clone()), joules: Err(reason.clone()) }
    }
}

impl GpuReading {
    /// Creates a reading in which nothing is known, for one reason.
    pub fn unknown(reason: &Unknown) -> Self {
        Self {
            power: GpuPower::unknown(reason),
            temperature: Err(reason.clone()),
            clock: Err(reason.clone()),
            load: Err(reason.clone()),
            memory_used: Err(reason.clone()),
            memory_total: Err(reason.clone()),
        }
    }
}
