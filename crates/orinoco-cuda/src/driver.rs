//! The driver: whether it is here, how it is started, and what it answers.
#![expect(unsafe_code, reason = "the driver's functions take raw pointers")]

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::ptr;

use cudarc::driver::sys;

use crate::{CudaError, DriverFault};

/// Whether the driver's library can be opened.
pub(crate) fn is_installed() -> bool {
    // SAFETY: it only tries to open the library by its well-known names.
    unsafe { sys::is_culib_present() }
}

/// Starts the driver, and tells the newest CUDA that it speaks.
pub(crate) fn start() -> Result<(u32, u32), CudaError> {
    let doing = || "starting the NVIDIA driver".to_owned();
    // SAFETY: the caller found the library (`is_installed`); `cuInit` takes no pointer.
    check(unsafe { sys::cuInit(0) }, "cuInit", doing)?;
    let mut version = 0;
    // SAFETY: `version` is a place for the number.
    check(unsafe { sys::cuDriverGetVersion(&mut version) }, "cuDriverGetVersion", doing)?;
    let version = u32::try_from(version).unwrap_or(0);
    // 12060 is CUDA 12.6.
    Ok((version / 1000, version % 1000 / 10))
}

/// Lets this thread allocate and wait while another one captures. ONNX Runtime captures in the driver's global mode, in
/// which such a call of any thread fails, and ends the capture, unless that thread has said that it does not mind.
pub(crate) fn leave_captures_alone() -> Result<(), CudaError> {
    thread_local! {
        static SAID: Cell<bool> = const { Cell::new(false) };
    }
    if SAID.get() {
        return Ok(());
    }
    let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: `mode` holds a mode, and is a place for the one before.
    let result = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    check(result, "cuThreadExchangeStreamCaptureMode", || "switching the thread's capture mode".to_owned())?;
    SAID.set(true);
    Ok(())
}

/// Makes an error of the driver's answer, if it is one.
pub(crate) fn check(
    result: sys::CUresult,
    call: &'static str,
    doing: impl FnOnce() -> String,
) -> Result<(), CudaError> {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        fault => Err(CudaError { call, doing: doing(), source: fault_of(fault) }),
    }
}

fn fault_of(result: sys::CUresult) -> DriverFault {
    type Describe = unsafe fn(sys::CUresult, *mut *const c_char) -> sys::CUresult;
    let text = |describe: Describe| {
        let mut text = ptr::null();
        // SAFETY: `text` is a place for a pointer to a static string of the driver.
        let known = unsafe { describe(result, &mut text) } == sys::CUresult::CUDA_SUCCESS && !text.is_null();
        // SAFETY: the driver just set it to a static string that ends with a zero byte.
        known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    let code = result as u32;
    DriverFault {
        code,
        name: text(sys::cuGetErrorName).unwrap_or_else(|| format!("CUDA error {code}")),
        meaning: text(sys::cuGetErrorString)
            .unwrap_or_else(|| "the driver has no description of it".to_owned()),
    }
}
