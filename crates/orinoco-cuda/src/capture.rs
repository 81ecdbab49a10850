//! Captured launches: what the driver's graphs need, behind types that free them.
#![expect(unsafe_code, reason = "the driver's functions take raw handles")]

use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;

use crate::context::{CaptureGuard, Context};
use crate::driver::check;
use crate::span::Owner;
use crate::{CudaError, Stream};

/// A sequence of launches, not yet runnable, and what it uses.
pub(crate) struct Captured {
    context: Arc<Context>,
    raw: sys::CUgraph,
    kept: Vec<Owner>,
}

impl Captured {
    /// Captures what `record` launches on `stream`.
    pub(crate) fn new(
        stream: &Stream,
        record: &mut dyn FnMut(&Stream) -> Result<(), CudaError>,
    ) -> Result<Self, CudaError> {
        stream.context().bind()?;
        let guard = CaptureGuard::new(stream.context());
        // Of this thread only: what other lanes allocate meanwhile is their affair.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as its borrow, and is not capturing: only this function starts, and it ends
        // what it starts.
        let result = unsafe { sys::cuStreamBeginCapture_v2(stream.raw(), mode) };
        check(result, "cuStreamBeginCapture", || "starting a stream capture".to_owned())?;
        stream.start_keeping();
        let recorded = record(stream);
        let kept = stream.kept();
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a place for the handle; the capture was started above.
        let result = unsafe { sys::cuStreamEndCapture(stream.raw(), &mut raw) };
        drop(guard);
        // The graph, if there is one, is freed by `drop`.
        let captured = Self { context: Arc::clone(stream.context()), raw, kept };
        recorded?;
        check(result, "cuStreamEndCapture", || "ending a stream capture".to_owned())?;
        Ok(captured)
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        if !self.raw.is_null() && self.context.bind().is_ok() {
            // SAFETY: `cuStreamEndCapture` made it, and this is its only owner.
            let _ = unsafe { sys::cuGraphDestroy(self.raw) };
        }
    }
}

/// A graph that can be launched, and what it uses.
pub(crate) struct ExecutableGraph {
    context: Arc<Context>,
    raw: sys::CUgraphExec,
    kept: Vec<Owner>,
}

// SAFETY: a graph's handle is bound to no thread, and `&mut self` or ownership guards every change of it.
unsafe impl Send for ExecutableGraph {}

impl ExecutableGraph {
    pub(crate) fn new(mut captured: Captured) -> Result<Self, CudaError> {
        let context = Arc::clone(&captured.context);
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a place for the handle, and `captured` has the graph that its capture made. No flag is set.
        let result = unsafe { sys::cuGraphInstantiateWithFlags(&mut raw, captured.raw, 0) };
        check(result, "cuGraphInstantiateWithFlags", || "instantiating a CUDA graph".to_owned())?;
        Ok(Self { context, raw, kept: std::mem::take(&mut captured.kept) })
    }

    /// Changes the graph in place, which the driver allows where only arguments differ. It must not be running: the
    /// device is waited for, which it cannot be while another thread captures.
    pub(crate) fn update(&mut self, mut captured: Captured) -> Result<(), Captured> {
        let mut info = sys::CUgraphExecUpdateResultInfo {
            result: sys::CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR,
            errorNode: ptr::null_mut(),
            errorFromNode: ptr::null_mut(),
        };
        // Memory that earlier launches use is released below.
        if !self.context.synchronize_unless_capturing() {
            return Err(captured);
        }
        // SAFETY: both graphs live as long as their borrows, and `info` is a place for the answer.
        let result = unsafe { sys::cuGraphExecUpdate_v2(self.raw, captured.raw, &mut info) };
        if result != sys::CUresult::CUDA_SUCCESS {
            return Err(captured);
        }
        self.kept = std::mem::take(&mut captured.kept);
        Ok(())
    }

    pub(crate) fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        assert!(Arc::ptr_eq(&self.context, stream.context()), "a plan stays on its device");
        self.context.bind()?;
        // SAFETY: both handles live as long as their borrows, and `kept` holds all memory that the launches use.
        let result = unsafe { sys::cuGraphLaunch(self.raw, stream.raw()) };
        check(result, "cuGraphLaunch", || "launching a CUDA graph".to_owned())
    }
}

impl Drop for ExecutableGraph {
    fn drop(&mut self) {
        // Memory in `kept` waits for the device when it is freed; the graph itself may be running still, which the
        // driver allows.
        if self.context.bind().is_ok() {
            // SAFETY: it was made in `new`, and this is its only owner.
            let _ = unsafe { sys::cuGraphExecDestroy(self.raw) };
        }
    }
}

impl fmt::Debug for ExecutableGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exec({} owners kept)", self.kept.len())
    }
}
