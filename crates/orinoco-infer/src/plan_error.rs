//! Failures of a model that is bound to an engine's session: of binding it, and of executing it.

use std::path::Path;

use orinoco_core::{Diagnosis, codes};
#[cfg(feature = "cuda")]
use orinoco_cuda::{CudaError, TableFault, Unavailable};

use crate::engine_error::EngineError;
use crate::head::too_many;

/// Failure to bind a model to a session.
#[derive(Debug)]
pub(crate) enum PlanError {
    /// The model takes audio, but is to be bound for a video stream (`E0204`).
    TakesAudio,
    /// The model takes images, but is to be bound for audio (`E0204`).
    TakesImages,
    /// The model has this number of outputs, more than a head reads (`E0206`).
    Outputs(usize),
    /// The outputs do not fit the head, for this reason (`E0204`).
    Head(String),
    /// The session's tensors are on a GPU, which can no longer be opened (`E0302`).
    #[cfg(feature = "cuda")]
    Gpu(Unavailable),
    /// The engine or the GPU failed.
    Engine(EngineError),
}

/// Failure to execute a bound model.
#[derive(Debug)]
pub(crate) enum ExecuteError {
    /// A frame does not fit into the table that the kernels read (`E0304`).
    #[cfg(feature = "cuda")]
    Frame(TableFault),
    /// The engine or the GPU failed.
    Engine(EngineError),
}

impl PlanError {
    /// Returns the fault of the model in `file` that a user sees.
    pub(crate) fn diagnosis(&self, file: &Path) -> Diagnosis {
        let disagrees =
            |cause: &str, next: &str| Diagnosis::new(&codes::MODEL_DISAGREES, file.display(), cause, next);
        match self {
            Self::TakesAudio => disagrees(
                "it takes audio, but this is a video stream",
                "use a model whose input is an image, or `orinoco infer` with WAV files",
            ),
            Self::TakesImages => {
                disagrees("it takes images, but this is audio", "use an audio model, or give images")
            }
            Self::Outputs(outputs) => {
                let next = "remove unused outputs from the model";
                Diagnosis::new(&codes::MODEL_UNSUPPORTED, file.display(), too_many(*outputs), next)
            }
            Self::Head(why) => disagrees(why, "correct model.toml (`orinoco models show` prints the graph)"),
            #[cfg(feature = "cuda")]
            Self::Gpu(why) => {
                let next = "see `orinoco doctor`, or use an engine on the CPU";
                Diagnosis::new(&codes::ENGINE_UNAVAILABLE, file.display(), why, next)
            }
            Self::Engine(error) => error.diagnosis(file),
        }
    }
}

impl From<EngineError> for PlanError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

#[cfg(feature = "cuda")]
impl From<CudaError> for PlanError {
    fn from(error: CudaError) -> Self {
        Self::Engine(error.into())
    }
}

impl ExecuteError {
    /// Returns the fault of the model in `file` that a user sees.
    pub(crate) fn diagnosis(&self, file: &Path) -> Diagnosis {
        match self {
            #[cfg(feature = "cuda")]
            Self::Frame(why) => {
                let next = "make the source's frames smaller, or use an engine on the CPU";
                Diagnosis::new(&codes::ENGINE_RUN, file.display(), why, next)
            }
            Self::Engine(error) => error.diagnosis(file),
        }
    }
}

impl From<EngineError> for ExecuteError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

#[cfg(feature = "cuda")]
impl From<CudaError> for ExecuteError {
    fn from(error: CudaError) -> Self {
        Self::Engine(error.into())
    }
}
