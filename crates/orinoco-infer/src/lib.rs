//! Inference engines: selection of the engines that can run a model on this machine, and the bound models that a lane
//! executes.
//!
//! No engine is trusted before it has run the model once on this machine, and none is replaced in silence. Read first:
//! [`EngineContext`], [`Engine`] (with [`Prepared`] and [`Session`]), and [`ImagePlan`].

mod audio;
mod bound;
mod cache;
mod cepstra;
mod context;
#[cfg(feature = "cuda")]
mod cuda;
mod device;
mod engine;
mod engine_error;
mod engines;
mod head;
mod host;
mod image_plan;
mod marks;
mod panics;
mod plan_error;
mod request;
mod scratch;
mod select;
mod states;
mod stream;
mod tensor;

pub use audio::{AudioPlan, WindowResult};
pub use cache::{Cache, CacheUnavailable};
pub use context::{EngineContext, Options};
pub use device::{CudaError, Device, Span, Stream, Unavailable};
pub use engine::{Engine, EngineInfo, Prepared, Session, SessionSpec, SuiteException, check_binding};
pub use engine_error::{EngineError, ShapeError};
pub use engines::{ENGINES, by_name, default_engines, engines, stray_requests};
pub use image_plan::ImagePlan;
#[cfg(feature = "cuda")]
pub use orinoco_cuda::{AllocatedBytes, allocated, device_peak_bytes};
pub use scratch::Scratch;
pub use select::{ChosenEngine, EngineOrder, InputsFor, RefusedEngine, choose};
pub use states::ProbeInputs;
pub use stream::ExecutionStream;
pub use tensor::{
    DeviceTensor, Elements, ElementsMut, TensorMemory, TensorMut, TensorRef, TensorView, TensorViewMut,
};
