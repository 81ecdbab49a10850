//! What a run is executed on.

use crate::device::{CudaError, Stream};

/// What a run is executed on: the thread that asks for it, or a stream of a GPU.
#[derive(Debug)]
pub enum ExecutionStream {
    /// The calling thread: a run is done when it has been enqueued.
    Host,
    /// A stream of a GPU: a run comes after what is queued there, and before what is queued next.
    Device(Stream),
}

impl ExecutionStream {
    /// The stream of a GPU, if it is one.
    pub fn device(&self) -> Option<&Stream> {
        match self {
            Self::Host => None,
            Self::Device(stream) => Some(stream),
        }
    }

    /// Waits for everything that is queued.
    ///
    /// # Errors
    /// Those of the driver, also for what was queued before.
    pub fn wait(&self) -> Result<(), CudaError> {
        match self {
            Self::Host => Ok(()),
            Self::Device(stream) => stream.synchronize(),
        }
    }
}
