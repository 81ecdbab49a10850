//! Execution streams: the calling thread, or a CUDA stream.

use crate::device::{CudaError, Stream};

/// Stream that executes inferences: the calling thread, or a CUDA stream.
#[derive(Debug)]
pub enum ExecutionStream {
    /// The calling thread: an inference is done when the call that enqueues it returns.
    Host,
    /// CUDA stream: an inference runs after the work that is queued there, and before work that is queued later.
    Device(Stream),
}

impl ExecutionStream {
    /// Returns the CUDA stream; `None` for the calling thread.
    pub fn device(&self) -> Option<&Stream> {
        match self {
            Self::Host => None,
            Self::Device(stream) => Some(stream),
        }
    }

    /// Waits for all queued work.
    ///
    /// # Errors
    /// Those of the driver, including errors of work that was queued earlier.
    pub fn wait(&self) -> Result<(), CudaError> {
        match self {
            Self::Host => Ok(()),
            Self::Device(stream) => stream.synchronize(),
        }
    }
}
