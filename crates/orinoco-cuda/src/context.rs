//! A device's context in the driver: our kernels loaded in it, and what is freed in it.
//!
//! The driver has one primary context of a device in each process, and to wait for it ends every capture under way in it. So all that
//! opens a device shares one [`Context`], which knows of all captures. It is in a static because the driver's own is.
#![expect(unsafe_code, reason = "the driver's functions take raw handles and pointers")]

use std::ffi::CString;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use cudarc::driver::sys;

use crate::block::Block;
use crate::driver::{check, leave_captures_alone};
use crate::frees::DeferredFrees;
use crate::kernels::SOURCES;
use crate::{CudaError, DeviceInfo, Kernel};

/// The open contexts, by device.
static OPEN: Mutex<Vec<(sys::CUdevice, Weak<Context>)>> = Mutex::new(Vec::new());
/// Notified when a context has left [`OPEN`].
static CLOSED: Condvar = Condvar::new();

fn open_contexts() -> MutexGuard<'static, Vec<(sys::CUdevice, Weak<Context>)>> {
    // Nothing between two changes of it panics.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device's primary context with our modules. The last stream, event or buffer that needs it releases it.
pub(crate) struct Context {
    raw: sys::CUcontext,
    device: sys::CUdevice,
    modules: Vec<sys::CUmodule>,
    functions: [sys::CUfunction; Kernel::ALL.len()],
    info: DeviceInfo,
    frees: DeferredFrees,
    /// It is in [`OPEN`].
    is_listed: bool,
}

// SAFETY: the handles are not bound to a thread: every use makes the context current first (`bind`), and the driver
// guards its own state. Nothing here changes after `new` but what waits to be freed, behind a lock.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The context of a device: the one that is open, or a new one.
    pub(crate) fn open(device: sys::CUdevice, info: DeviceInfo) -> Result<Arc<Self>, CudaError> {
        let mut open = open_contexts();
        while let Some((_, context)) = open.iter().find(|(of, _)| *of == device) {
            match context.upgrade() {
                Some(context) => return Ok(context),
                // It is being closed, and waits for the device meanwhile: a capture in a new one would not survive that.
                None => open = CLOSED.wait(open).unwrap_or_else(PoisonError::into_inner),
            }
        }
        let mut context = Self::new(device, info)?;
        context.is_listed = true;
        let context = Arc::new(context);
        open.push((device, Arc::downgrade(&context)));
        Ok(context)
    }

    fn new(device: sys::CUdevice, info: DeviceInfo) -> Result<Self, CudaError> {
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a place for the handle, `device` is from `cuDeviceGet`.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device) };
        check(result, "cuDevicePrimaryCtxRetain", || format!("opening {}", info.name))?;
        // From now on `drop` releases what was retained.
        let none = [ptr::null_mut(); Kernel::ALL.len()];
        let frees = DeferredFrees::default();
        let mut context =
            Self { raw, device, modules: Vec::new(), functions: none, info, frees, is_listed: false };
        context.bind()?;
        for source in &SOURCES {
            let image = source.image_for(context.info.sm).expect("`open` checked the GPU's generation");
            let mut module = ptr::null_mut();
            // SAFETY: `image` is a whole cubin, whose length is in its header, or PTX that ends with a zero byte (a
            // test holds both), and is static. The context was made current above.
            let result = unsafe { sys::cuModuleLoadData(&mut module, image.bytes.as_ptr().cast()) };
            let doing = || {
                format!(
                    "loading the kernels of {}.cu for {} on {}",
                    source.name, image.target, context.info.name
                )
            };
            check(result, "cuModuleLoadData", doing)?;
            context.modules.push(module);
        }
        for kernel in Kernel::ALL {
            let name = CString::new(kernel.name()).expect("a kernel's name has no zero byte");
            let module = context.modules[kernel.source()];
            // SAFETY: the module was loaded above, and the name ends with a zero byte.
            let result = unsafe {
                sys::cuModuleGetFunction(&mut context.functions[kernel as usize], module, name.as_ptr())
            };
            check(result, "cuModuleGetFunction", || format!("finding the kernel {}", kernel.name()))?;
        }
        Ok(context)
    }

    /// Makes the context current on this thread, as the driver's functions need.
    pub(crate) fn bind(&self) -> Result<(), CudaError> {
        leave_captures_alone()?;
        // SAFETY: the context lives until `drop`.
        let result = unsafe { sys::cuCtxSetCurrent(self.raw) };
        check(result, "cuCtxSetCurrent", || format!("selecting {}", self.info.name))
    }

    /// Waits for everything on the device.
    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        self.bind()?;
        // SAFETY: it takes no pointer.
        check(unsafe { sys::cuCtxSynchronize() }, "cuCtxSynchronize", || {
            format!("waiting for {}", self.info.name)
        })
    }

    pub(crate) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    pub(crate) fn function(&self, kernel: Kernel) -> sys::CUfunction {
        self.functions[kernel as usize]
    }

    /// Frees a block whose last owner has gone: now, or after the last capture.
    pub(crate) fn free(&self, block: Block) {
        self.frees.free(block, || self.finish_work());
    }

    /// Waits for everything on the device, unless a capture is under way; returns whether it waited.
    pub(crate) fn synchronize_unless_capturing(&self) -> bool {
        self.frees.unless_capturing(|| self.synchronize().is_ok())
    }

    /// Before memory is freed: work that was launched before may still use it.
    fn finish_work(&self) {
        let _ = self.synchronize();
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Failures have nobody to go to: what cannot be given back goes with the process.
        let _ = self.synchronize();
        for module in &self.modules {
            // SAFETY: it was loaded in `new`, and nothing that uses it is left: streams hold an `Arc` of this.
            let _ = unsafe { sys::cuModuleUnload(*module) };
        }
        // SAFETY: it was retained once in `new`.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        // A context that `new` could not finish is not in the list, and `open` holds its lock then.
        if self.is_listed {
            open_contexts().retain(|(of, _)| *of != self.device);
            CLOSED.notify_all();
        }
    }
}

/// While it is held, nothing on its device is freed, and nobody waits for the whole of it.
#[must_use = "what is freed meanwhile waits only as long as it is held"]
pub struct CaptureGuard {
    context: Arc<Context>,
}

impl CaptureGuard {
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        context.frees.begin_capture();
        Self { context: Arc::clone(context) }
    }
}

impl Drop for CaptureGuard {
    fn drop(&mut self) {
        self.context.frees.end_capture(|| self.context.finish_work());
    }
}

impl fmt::Debug for CaptureGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaptureGuard({})", self.context.info.name)
    }
}
