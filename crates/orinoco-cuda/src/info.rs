//! Properties of a GPU, as the driver reports them.
#![expect(unsafe_code, reason = "the driver's functions take raw handles and pointers")]

use std::ffi::{CStr, c_char, c_int};

use cudarc::driver::sys;

use crate::driver::check;
use crate::kernels::SOURCES;
use crate::{CudaError, Sm};

/// Maximum length of a device's name, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Location of a GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Shared with the host, as on a Jetson: pinned host memory needs no copy.
    Integrated,
    /// Memory of the GPU itself, behind PCIe.
    Discrete,
}

/// Properties of a GPU.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Index among the GPUs that the driver reports, from 0.
    pub ordinal: u32,
    /// Name that the driver reports.
    pub name: String,
    /// Compute capability.
    pub sm: Sm,
    /// Newest CUDA version that the driver supports, major and minor.
    pub driver: (u32, u32),
    /// Location of the memory.
    pub memory: MemoryKind,
    /// Size of the memory, in bytes.
    pub memory_bytes: u64,
    /// Compiled image of Orinoco's kernels for this GPU: a cubin such as `sm_87`, or `compute_72` for PTX.
    pub kernels: &'static str,
}

/// Returns the number of GPUs that the driver reports.
pub(crate) fn device_count() -> Result<u32, CudaError> {
    let mut count = 0;
    // SAFETY: `count` is a place for the number; the driver has been started.
    check(unsafe { sys::cuDeviceGetCount(&mut count) }, "cuDeviceGetCount", || "counting GPUs".to_owned())?;
    Ok(u32::try_from(count).unwrap_or(0))
}

/// Reads the properties of GPU `ordinal`; `driver` is the newest CUDA version that the driver supports.
pub(crate) fn describe(ordinal: u32, driver: (u32, u32)) -> Result<(sys::CUdevice, DeviceInfo), CudaError> {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR, CU_DEVICE_ATTRIBUTE_INTEGRATED as INTEGRATED,
    };
    let doing = || format!("reading the properties of GPU {ordinal}");
    let mut device = 0;
    // SAFETY: `device` is a place for the handle; the driver says that an ordinal does not exist.
    check(unsafe { sys::cuDeviceGet(&mut device, ordinal as c_int) }, "cuDeviceGet", doing)?;
    let mut name = [0 as c_char; NAME_BYTES_MAX];
    // SAFETY: the driver writes at most the length given, which is the array's, with a zero byte at the end.
    let result = unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), NAME_BYTES_MAX as c_int, device) };
    check(result, "cuDeviceGetName", doing)?;
    // SAFETY: the array was zero before, and the driver ends the name with a zero byte.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    let mut memory_bytes = 0;
    // SAFETY: `memory_bytes` is a place for the number, `device` is from `cuDeviceGet`.
    check(unsafe { sys::cuDeviceTotalMem_v2(&mut memory_bytes, device) }, "cuDeviceTotalMem", doing)?;
    let attribute = |which| {
        let mut value = 0;
        // SAFETY: `value` is a place for the number, `device` is from `cuDeviceGet`.
        let result = unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) };
        check(result, "cuDeviceGetAttribute", doing).map(|()| u32::try_from(value).unwrap_or(0))
    };
    let sm = Sm { major: attribute(MAJOR)?, minor: attribute(MINOR)? };
    let memory = if attribute(INTEGRATED)? == 0 { MemoryKind::Discrete } else { MemoryKind::Integrated };
    let kernels = SOURCES[0].image_for(sm).map_or("", |image| image.target);
    let memory_bytes = memory_bytes as u64;
    Ok((device, DeviceInfo { ordinal, name, sm, driver, memory, memory_bytes, kernels }))
}
