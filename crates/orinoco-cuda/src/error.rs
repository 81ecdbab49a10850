use thiserror::Error;

/// Reason for which no GPU can be used on this machine, as a sentence for users.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{reason}")]
pub struct Unavailable {
    /// The sentence, without its full stop.
    pub reason: String,
}

impl Unavailable {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// A call of the driver that failed.
#[derive(Clone, Debug, Error)]
#[error("{doing} ({call})")]
pub struct CudaError {
    /// The driver's function.
    pub call: &'static str,
    /// Operation that failed, such as "loading the kernels".
    pub doing: String,
    /// Error that the driver returned.
    pub source: DriverFault,
}

/// Error code of the driver, with its name and meaning.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{name}: {meaning}")]
pub struct DriverFault {
    /// Its number (`CUresult`).
    pub code: u32,
    /// Its name, `CUDA_ERROR_OUT_OF_MEMORY` say.
    pub name: String,
    /// The driver's words for it.
    pub meaning: String,
}
