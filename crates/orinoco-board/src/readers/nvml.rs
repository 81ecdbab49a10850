use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml as Library};
use orinoco_core::{Celsius, Joules, Watts};

use super::gpu::{GpuDevices, GpuInfo, GpuPower, GpuReading};
use super::reading::{Hertz, Reading, Unknown, Utilization};

/// NVIDIA's GPUs, through NVML, which is part of the driver and is opened at run time.
#[derive(Debug)]
pub struct Nvml {
    library: Library,
    gpus: Vec<GpuInfo>,
}

impl Nvml {
    /// Opens NVML.
    ///
    /// # Errors
    /// Says in one sentence why there is none: the library is not installed, or its driver does not run.
    pub fn open() -> Result<Self, String> {
        let library = Library::init().map_err(|error| match error {
            NvmlError::LibloadingError(error) => format!("NVML is not installed: {error}"),
            error => format!("NVML does not start: {error}"),
        })?;
        let count = library.device_count().map_err(|error| format!("NVML lists no GPUs: {error}"))?;
        let gpus = (0..count).map(|index| library.device_by_index(index).map(|gpu| info(&gpu)));
        let gpus: Result<Vec<GpuInfo>, NvmlError> = gpus.collect();
        let gpus = gpus.map_err(|error| format!("NVML does not open a GPU: {error}"))?;
        Ok(Self { library, gpus })
    }
}

impl GpuDevices for Nvml {
    fn gpus(&self) -> &[GpuInfo] {
        &self.gpus
    }

    fn read_power(&mut self, index: usize) -> GpuPower {
        match self.library.device_by_index(index as u32) {
            Ok(gpu) => power(&gpu),
            Err(error) => GpuPower::unknown(&unknown(error)),
        }
    }

    fn read(&mut self, index: usize) -> GpuReading {
        match self.library.device_by_index(index as u32) {
            Ok(gpu) => read(&gpu),
            Err(error) => GpuReading::unknown(&unknown(error)),
        }
    }
}

fn info(gpu: &Device<'_>) -> GpuInfo {
    GpuInfo {
        name: gpu.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned()),
        address: gpu.pci_info().map(|pci| pci.bus_id).unwrap_or_default(),
        counts_energy: gpu.total_energy_consumption().is_ok(),
    }
}

/// Reads a GPU. NVML's units are in its reference, "Device Queries": milliwatts, millijoules, degrees, MHz, percent, bytes.
fn read(gpu: &Device<'_>) -> GpuReading {
    let memory = gpu.memory_info().map_err(unknown);
    GpuReading {
        power: power(gpu),
        temperature: known(gpu.temperature(TemperatureSensor::Gpu), |degrees| {
            Celsius::from_units(i64::from(degrees))
        }),
        clock: known(gpu.clock_info(Clock::SM), |mega| Hertz(u64::from(mega) * 1_000_000)),
        load: gpu
            .utilization_rates()
            .map_err(unknown)
            .and_then(|rates| Utilization::of(u64::from(rates.gpu), 100).ok_or(Unknown::Malformed)),
        memory_used: memory.as_ref().map(|memory| memory.used).map_err(Clone::clone),
        memory_total: memory.map(|memory| memory.total),
    }
}

fn power(gpu: &Device<'_>) -> GpuPower {
    GpuPower {
        watts: known(gpu.power_usage(), |milli| Watts::from_milli(i64::from(milli))),
        joules: known(gpu.total_energy_consumption(), |milli| Joules::from_milli(milli.cast_signed())),
    }
}

fn known<T, U>(value: Result<T, NvmlError>, unit: impl FnOnce(T) -> U) -> Reading<U> {
    value.map(unit).map_err(unknown)
}

fn unknown(error: NvmlError) -> Unknown {
    match error {
        NvmlError::NotSupported => Unknown::NotOffered,
        error => Unknown::Device(format!("NVML: {error}")),
    }
}
