//! Devices: opened, or refused with a reason. Everything else here begins with one.

use std::fmt;
use std::sync::Arc;

use crate::context::{CaptureGuard, Context};
use crate::info::{DeviceInfo, describe, device_count};
use crate::stream::{Event, Stream};
use crate::{CudaError, Sm, Unavailable, driver};

/// The oldest driver whose functions are called here (`cuGraphExecUpdate_v2`). JetPack 6 has 12.2 or newer.
const DRIVER_OLDEST: (u32, u32) = (12, 0);

/// A GPU with our kernels loaded. Clones are the same device.
#[derive(Clone)]
pub struct Device {
    context: Arc<Context>,
}

impl Device {
    /// Opens GPU `ordinal`, or says why it cannot be used.
    pub fn open(ordinal: u32) -> Result<Self, Unavailable> {
        if !driver::is_installed() {
            return Err(Unavailable::new(
                "no CUDA device: libcuda.so.1 is not here, so no NVIDIA driver is installed",
            ));
        }
        let speaks = driver::start().map_err(|error| unusable(&error))?;
        if speaks < DRIVER_OLDEST {
            let ((major, minor), (need_major, need_minor)) = (speaks, DRIVER_OLDEST);
            return Err(Unavailable::new(format!(
                "the NVIDIA driver supports CUDA {major}.{minor}, but {need_major}.{need_minor} is needed"
            )));
        }
        let found = device_count().map_err(|error| unusable(&error))?;
        if ordinal >= found {
            return Err(Unavailable::new(match found {
                0 => "no CUDA device: the NVIDIA driver reports none".to_owned(),
                _ => format!(
                    "there is no CUDA device {ordinal}: the NVIDIA driver reports {found}, counted from 0"
                ),
            }));
        }
        let (device, info) = describe(ordinal, speaks).map_err(|error| unusable(&error))?;
        if info.kernels.is_empty() {
            let DeviceInfo { name, sm, .. } = info;
            return Err(Unavailable::new(format!(
                "{name} is {sm}, but the kernels need {} or newer",
                Sm::OLDEST
            )));
        }
        let context = Context::open(device, info).map_err(|error| unusable(&error))?;
        Ok(Self { context })
    }

    /// Properties of the GPU.
    pub fn info(&self) -> &DeviceInfo {
        self.context.info()
    }

    /// A new stream, which waits for no other.
    pub fn stream(&self) -> Result<Stream, CudaError> {
        Stream::new(&self.context)
    }

    /// A new event.
    pub fn event(&self) -> Result<Event, CudaError> {
        Event::new(&self.context)
    }

    /// Lets this thread, on which an engine is going to call the driver, allocate and wait while another thread captures.
    /// Everything of this crate that needs the driver says so by itself.
    pub fn leave_captures_alone(&self) -> Result<(), CudaError> {
        driver::leave_captures_alone()
    }

    /// Says that an engine may capture until the guard is dropped. Captures of this crate say so by themselves.
    pub fn capture_guard(&self) -> CaptureGuard {
        CaptureGuard::new(&self.context)
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.info().fmt(f)
    }
}

fn unusable(error: &CudaError) -> Unavailable {
    Unavailable::new(format!("no CUDA device can be used: {error}: {}", error.source))
}
