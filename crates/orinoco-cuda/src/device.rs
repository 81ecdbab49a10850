//! The driver: devices, streams, events, and launches. What is unsafe of them is here, and everything public is safe.
#![expect(unsafe_code, reason = "the driver's functions take raw handles and pointers")]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys;
use orinoco_core::text::mebibytes;

use crate::frees::{CaptureGuard, Frees};
use crate::kernels::SOURCES;
use crate::launch::{Arguments, Grid, Launch};
use crate::span::{Owner, Span};
use crate::{CudaError, DriverFault, Kernel, Sm, Unavailable};

/// The oldest driver whose functions are called here (`cuGraphExecUpdate_v2`). JetPack 6 has 12.2 or newer.
const DRIVER_OLDEST: (u32, u32) = (12, 0);
/// The most bytes of a device's name.
const NAME_BYTES_MAX: usize = 256;

/// Where a GPU's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// The host's own DRAM, as on Jetson: pinned host memory needs no copy.
    Integrated,
    /// Its own, behind PCIe.
    Discrete,
}

/// What a GPU is.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its number among the GPUs that the driver shows.
    pub ordinal: u32,
    /// The driver's name for it.
    pub name: String,
    /// Its generation.
    pub sm: Sm,
    /// The newest CUDA that the driver speaks, major and minor.
    pub driver: (u32, u32),
    /// Where its memory is.
    pub memory: MemoryKind,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Which image of our kernels it runs: `sm_87`, or `compute_72` for PTX.
    pub kernels: &'static str,
}

/// A GPU with our kernels loaded. Clones are the same device.
#[derive(Clone)]
pub struct Device {
    context: Arc<Context>,
}

impl Device {
    /// Opens GPU `ordinal`, or says why it cannot be used.
    pub fn open(ordinal: u32) -> Result<Self, Unavailable> {
        // SAFETY: it only tries to open the library by its well-known names.
        if !unsafe { sys::is_culib_present() } {
            return Err(Unavailable::new(
                "no CUDA device: libcuda.so.1 is not here, so no NVIDIA driver is installed",
            ));
        }
        let driver = start_driver().map_err(|error| unusable(&error))?;
        if driver < DRIVER_OLDEST {
            let ((major, minor), (need_major, need_minor)) = (driver, DRIVER_OLDEST);
            return Err(Unavailable::new(format!(
                "the NVIDIA driver speaks CUDA {major}.{minor}, and {need_major}.{need_minor} is needed"
            )));
        }
        let found = device_count().map_err(|error| unusable(&error))?;
        if ordinal >= found {
            return Err(Unavailable::new(match found {
                0 => "no CUDA device: the NVIDIA driver shows none".to_owned(),
                _ => format!("there is no CUDA device {ordinal}: the NVIDIA driver shows {found}, from 0"),
            }));
        }
        let (device, info) = describe(ordinal, driver).map_err(|error| unusable(&error))?;
        if info.kernels.is_empty() {
            let DeviceInfo { name, sm, .. } = info;
            return Err(Unavailable::new(format!(
                "{name} is {sm}, and the kernels need {} or newer",
                Sm::OLDEST
            )));
        }
        let context = Context::new(device, info).map_err(|error| unusable(&error))?;
        Ok(Self { context: Arc::new(context) })
    }

    /// What it is.
    pub fn info(&self) -> &DeviceInfo {
        &self.context.info
    }

    /// A new stream, which waits for no other.
    pub fn stream(&self) -> Result<Stream, CudaError> {
        self.context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a place for the handle, and the context was made current above.
        let result =
            unsafe { sys::cuStreamCreate(&mut raw, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32) };
        check(result, "cuStreamCreate", || format!("making a stream on {}", self.info().name))?;
        Ok(Stream { context: Arc::clone(&self.context), raw, kept: RefCell::new(None) })
    }

    /// A new event.
    pub fn event(&self) -> Result<Event, CudaError> {
        self.context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a place for the handle, and the context was made current above.
        let result = unsafe { sys::cuEventCreate(&mut raw, sys::CUevent_flags::CU_EVENT_DEFAULT as u32) };
        check(result, "cuEventCreate", || format!("making an event on {}", self.info().name))?;
        Ok(Event { context: Arc::clone(&self.context), raw })
    }

    /// Lets this thread, on which an engine is going to call the driver, allocate and wait while another thread captures.
    /// Everything of this crate that needs the driver says so by itself.
    pub fn leave_captures_alone(&self) -> Result<(), CudaError> {
        leave_captures_alone()
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

/// Starts the driver, and tells the newest CUDA that it speaks.
fn start_driver() -> Result<(u32, u32), CudaError> {
    let doing = || "starting the NVIDIA driver".to_owned();
    // SAFETY: `open` found the library; `cuInit` takes no pointer.
    check(unsafe { sys::cuInit(0) }, "cuInit", doing)?;
    let mut version = 0;
    // SAFETY: `version` is a place for the number.
    check(unsafe { sys::cuDriverGetVersion(&mut version) }, "cuDriverGetVersion", doing)?;
    let version = u32::try_from(version).unwrap_or(0);
    // 12060 is CUDA 12.6.
    Ok((version / 1000, version % 1000 / 10))
}

fn device_count() -> Result<u32, CudaError> {
    let mut count = 0;
    // SAFETY: `count` is a place for the number; the driver has been started.
    check(unsafe { sys::cuDeviceGetCount(&mut count) }, "cuDeviceGetCount", || "counting GPUs".to_owned())?;
    Ok(u32::try_from(count).unwrap_or(0))
}

fn describe(ordinal: u32, driver: (u32, u32)) -> Result<(sys::CUdevice, DeviceInfo), CudaError> {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR, CU_DEVICE_ATTRIBUTE_INTEGRATED as INTEGRATED,
    };
    let doing = || format!("reading what GPU {ordinal} is");
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

/// A device's primary context with our modules. The last stream, event or buffer that needs it releases it.
pub(crate) struct Context {
    raw: sys::CUcontext,
    device: sys::CUdevice,
    modules: Vec<sys::CUmodule>,
    functions: [sys::CUfunction; Kernel::ALL.len()],
    info: DeviceInfo,
    frees: Frees,
}

// SAFETY: the handles are not bound to a thread: every use makes the context current first (`bind`), and the driver
// guards its own state. Nothing here changes after `new` but what waits to be freed, behind a lock.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    fn new(device: sys::CUdevice, info: DeviceInfo) -> Result<Self, CudaError> {
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a place for the handle, `device` is from `cuDeviceGet`.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device) };
        check(result, "cuDevicePrimaryCtxRetain", || format!("taking hold of {}", info.name))?;
        // From here on `drop` gives back what was taken.
        let none = [ptr::null_mut(); Kernel::ALL.len()];
        let mut context =
            Self { raw, device, modules: Vec::new(), functions: none, info, frees: Frees::default() };
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
        check(result, "cuCtxSetCurrent", || format!("turning to {}", self.info.name))
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

    pub(crate) fn frees(&self) -> &Frees {
        &self.frees
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
    }
}

/// Lets this thread allocate and wait while another one captures. ONNX Runtime captures in the driver's global mode, in
/// which such a call of any thread fails, and ends the capture, unless that thread has said that it does not mind.
fn leave_captures_alone() -> Result<(), CudaError> {
    thread_local! {
        static SAID: Cell<bool> = const { Cell::new(false) };
    }
    if SAID.get() {
        return Ok(());
    }
    let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: `mode` holds a mode, and is a place for the one before.
    let result = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    check(result, "cuThreadExchangeStreamCaptureMode", || "keeping out of others' captures".to_owned())?;
    SAID.set(true);
    Ok(())
}

/// A queue of work on a GPU.
pub struct Stream {
    context: Arc<Context>,
    raw: sys::CUstream,
    /// What the launches that are being captured use, while they are.
    kept: RefCell<Option<Vec<Owner>>>,
}

// SAFETY: a stream's handle may be used from any thread; `RefCell` keeps it to one at a time.
unsafe impl Send for Stream {}

impl Stream {
    /// Waits until everything so far is done.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the stream lives as long as `self`.
        let result = unsafe { sys::cuStreamSynchronize(self.raw) };
        check(result, "cuStreamSynchronize", || format!("waiting for a stream of {}", self.context.info.name))
    }

    /// Marks this place in the stream.
    pub fn record(&self, event: &Event) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: both handles live as long as their borrows.
        let result = unsafe { sys::cuEventRecord(event.raw, self.raw) };
        check(result, "cuEventRecord", || "marking a place in a stream".to_owned())
    }

    /// Holds what follows until `event`, as it was last recorded, has passed.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: both handles live as long as their borrows; no flag is defined.
        let result = unsafe { sys::cuStreamWaitEvent(self.raw, event.raw, 0) };
        check(result, "cuStreamWaitEvent", || "making a stream wait for another".to_owned())
    }

    /// Copies between device buffers and pinned buffers. It is done when the stream has passed it.
    pub fn copy(&self, from: &Span, to: &Span) -> Result<(), CudaError> {
        assert_eq!(from.bytes(), to.bytes(), "the lengths of a copy");
        if to.bytes() == 0 {
            return Ok(());
        }
        self.context.bind()?;
        self.keep(&[from, to]);
        // SAFETY: both spans lie inside allocations that the driver maps (`Span` is made of nothing else), and freeing
        // one waits for the device first.
        let result = unsafe { sys::cuMemcpyAsync(to.address(), from.address(), to.bytes(), self.raw) };
        check(result, "cuMemcpyAsync", || format!("copying {}", mebibytes(to.bytes() as u64)))
    }

    /// Copies `bytes` to the device, and waits until they are there.
    pub fn write(&self, to: &Span, bytes: &[u8]) -> Result<(), CudaError> {
        assert_eq!(to.bytes(), bytes.len(), "the lengths of a copy");
        if bytes.is_empty() {
            return self.synchronize();
        }
        self.context.bind()?;
        // SAFETY: `to` lies inside an allocation of the driver; `bytes` outlive the copy, which is waited for below.
        let result =
            unsafe { sys::cuMemcpyHtoDAsync_v2(to.address(), bytes.as_ptr().cast(), bytes.len(), self.raw) };
        let copied = check(result, "cuMemcpyHtoDAsync", || {
            format!("writing {} to the GPU", mebibytes(bytes.len() as u64))
        });
        // Also where the copy failed: part of it may be under way.
        copied.and(self.synchronize())
    }

    /// Copies `from` off the device once everything before it in the stream is done, and waits for it.
    pub fn read(&self, from: &Span, bytes: &mut [u8]) -> Result<(), CudaError> {
        assert_eq!(from.bytes(), bytes.len(), "the lengths of a copy");
        if bytes.is_empty() {
            return self.synchronize();
        }
        self.context.bind()?;
        // SAFETY: as in `write`, the other way.
        let result = unsafe {
            sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), from.address(), bytes.len(), self.raw)
        };
        let copied = check(result, "cuMemcpyDtoHAsync", || {
            format!("reading {} off the GPU", mebibytes(bytes.len() as u64))
        });
        copied.and(self.synchronize())
    }

    /// The device it is on.
    pub fn device(&self) -> Device {
        Device { context: Arc::clone(&self.context) }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Collects the owners of all memory that launches use, until [`Stream::kept`].
    pub(crate) fn start_keeping(&self) {
        *self.kept.borrow_mut() = Some(Vec::new());
    }

    /// What was collected.
    pub(crate) fn kept(&self) -> Vec<Owner> {
        self.kept.borrow_mut().take().unwrap_or_default()
    }

    fn keep(&self, spans: &[&Span]) {
        if let Some(kept) = self.kept.borrow_mut().as_mut() {
            kept.extend(spans.iter().filter_map(|span| span.owner().cloned()));
        }
    }
}

impl Launch for Stream {
    fn launch(&self, kernel: Kernel, grid: Grid, arguments: &Arguments<'_>) -> Result<(), CudaError> {
        self.context.bind()?;
        self.keep(arguments.spans());
        let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (grid.blocks, grid.threads);
        let function = self.context.functions[kernel as usize];
        // The driver does not write through these, but its signature does not say so.
        let parameters = arguments.pointers().as_ptr().cast_mut().cast::<*mut c_void>();
        // SAFETY: `parameters` has one pointer for each parameter of the kernel, to a value of its type: `Arguments` are
        // made in launch.rs and below it only, beside the kernel's name. The driver copies the values before it returns. Memory
        // that the kernel uses lies in spans whose lengths were checked there, and freeing one waits for the device.
        let result = unsafe {
            sys::cuLaunchKernel(
                function,
                grid_x,
                grid_y,
                grid_z,
                block_x,
                block_y,
                block_z,
                0,
                self.raw,
                parameters,
                ptr::null_mut(),
            )
        };
        let doing = || {
            format!("launching {} on {:?} blocks of {:?} threads", kernel.name(), grid.blocks, grid.threads)
        };
        check(result, "cuLaunchKernel", doing)
    }

    fn zero(&self, span: &Span) -> Result<(), CudaError> {
        if span.bytes() == 0 {
            return Ok(());
        }
        self.context.bind()?;
        self.keep(&[span]);
        // SAFETY: the span lies inside an allocation of the driver, and freeing that waits for the device.
        let result = unsafe { sys::cuMemsetD8Async(span.address(), 0, span.bytes(), self.raw) };
        check(result, "cuMemsetD8Async", || format!("zeroing {}", mebibytes(span.bytes() as u64)))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: it was made in `Device::stream`; work that is left goes on, and its memory waits for it.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.context.info.name)
    }
}

/// A place in a stream. One that was never recorded has passed.
pub struct Event {
    context: Arc<Context>,
    raw: sys::CUevent,
}

// SAFETY: an event's handle may be used from any thread, and the driver guards its state.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Waits until it has passed.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the event lives as long as `self`.
        let result = unsafe { sys::cuEventSynchronize(self.raw) };
        check(result, "cuEventSynchronize", || "waiting for a place in a stream".to_owned())
    }

    /// The GPU's time from this event to a later one. Both must have passed.
    pub fn until(&self, later: &Event) -> Result<Duration, CudaError> {
        self.context.bind()?;
        let mut milliseconds = 0.0;
        // SAFETY: `milliseconds` is a place for the number; both handles live as long as their borrows.
        let result = unsafe { sys::cuEventElapsedTime(&mut milliseconds, self.raw, later.raw) };
        check(result, "cuEventElapsedTime", || "measuring between two places in a stream".to_owned())?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: it was made in `Device::event`; the driver frees it once it has passed.
        let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({})", self.context.info.name)
    }
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
        meaning: text(sys::cuGetErrorString).unwrap_or_else(|| "the driver has no words for it".to_owned()),
    }
}
