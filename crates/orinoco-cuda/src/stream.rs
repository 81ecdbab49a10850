//! Streams of a device: copies, launches, and the events between them.
#![expect(unsafe_code, reason = "the driver's functions take raw handles and pointers")]

use std::cell::RefCell;
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys;
use orinoco_core::text::mebibytes;

use crate::context::Context;
use crate::driver::check;
use crate::launch::{Arguments, Grid, Launch};
use crate::span::{Owner, Span};
use crate::{CudaError, Kernel};

/// A queue of work on a GPU.
pub struct Stream {
    context: Arc<Context>,
    raw: sys::CUstream,
    /// Owners of the memory that the launches under capture use; `None` outside a capture.
    kept: RefCell<Option<Vec<Owner>>>,
}

// SAFETY: a stream's handle may be used from any thread; `RefCell` keeps it to one at a time.
unsafe impl Send for Stream {}

impl Stream {
    /// A new stream, which waits for no other.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, CudaError> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a place for the handle, and the context was made current above.
        let result =
            unsafe { sys::cuStreamCreate(&mut raw, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32) };
        check(result, "cuStreamCreate", || format!("making a stream on {}", context.info().name))?;
        Ok(Self { context: Arc::clone(context), raw, kept: RefCell::new(None) })
    }

    /// Waits until everything so far is done.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the stream lives as long as `self`.
        let result = unsafe { sys::cuStreamSynchronize(self.raw) };
        check(result, "cuStreamSynchronize", || {
            format!("waiting for a stream of {}", self.context.info().name)
        })
    }

    /// Marks this place in the stream.
    pub fn record(&self, event: &Event) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: both handles live as long as their borrows.
        let result = unsafe { sys::cuEventRecord(event.raw, self.raw) };
        check(result, "cuEventRecord", || "recording an event".to_owned())
    }

    /// Holds what follows until `event`, as it was last recorded, has passed.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: both handles live as long as their borrows; no flag is defined.
        let result = unsafe { sys::cuStreamWaitEvent(self.raw, event.raw, 0) };
        check(result, "cuStreamWaitEvent", || "making a stream wait for an event".to_owned())
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

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Collects the owners of all memory that launches use, until [`Stream::kept`].
    pub(crate) fn start_keeping(&self) {
        *self.kept.borrow_mut() = Some(Vec::new());
    }

    /// Owners collected during the capture.
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
        let function = self.context.function(kernel);
        // The driver does not write through these, but its signature does not say so.
        let parameters = arguments.pointers().as_ptr().cast_mut().cast::<*mut c_void>();
        // SAFETY: `parameters` has one pointer for each parameter of the kernel, to a value of its type: `Arguments` are
        // made in launch.rs and below it only, next to the kernel's name. The driver copies the values before it returns.
        // Memory that the kernel uses lies in spans whose lengths were checked there, and freeing one waits for the device.
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
        // SAFETY: it was made in `new`; work that is left goes on, and its memory waits for it.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.context.info().name)
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
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, CudaError> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a place for the handle, and the context was made current above.
        let result = unsafe { sys::cuEventCreate(&mut raw, sys::CUevent_flags::CU_EVENT_DEFAULT as u32) };
        check(result, "cuEventCreate", || format!("making an event on {}", context.info().name))?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// Waits until it has passed.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the event lives as long as `self`.
        let result = unsafe { sys::cuEventSynchronize(self.raw) };
        check(result, "cuEventSynchronize", || "waiting for an event".to_owned())
    }

    /// The GPU's time from this event to a later one. Both must have passed.
    pub fn until(&self, later: &Event) -> Result<Duration, CudaError> {
        self.context.bind()?;
        let mut milliseconds = 0.0;
        // SAFETY: `milliseconds` is a place for the number; both handles live as long as their borrows.
        let result = unsafe { sys::cuEventElapsedTime(&mut milliseconds, self.raw, later.raw) };
        check(result, "cuEventElapsedTime", || "measuring the time between two events".to_owned())?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: it was made in `new`; the driver frees it once it has passed.
        let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({})", self.context.info().name)
    }
}
