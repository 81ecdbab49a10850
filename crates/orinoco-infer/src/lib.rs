//! Models on engines: which engines can run it here, and the plan that a lane replays.
//!
//! No engine is trusted before it has run the model once on this machine, and none is replaced in silence. Read first:
//! [`Engine`] (with [`Prepared`] and [`Session`]), [`CpuPlan`] and, on a GPU, [`CudaPlan`].

mod audio;
#[cfg(all(test, feature = "cuda"))]
#[path = "../../orinoco-cuda/tests/machine/build.rs"]
mod build;
mod cache;
mod context;
#[cfg(feature = "cuda")]
mod cuda;
mod device;
#[cfg(all(test, feature = "cuda"))]
#[path = "../../orinoco-cuda/tests/machine/driver.rs"]
mod driver;
mod engine;
mod engines;
mod executor;
mod faults;
mod inference;
mod panics;
mod scratch;
mod select;
mod stream;
mod tensor;

pub use audio::{AudioPlan, Heard};
pub use cache::{Cache, NoCache};
pub use context::{EngineContext, Options};
#[cfg(feature = "cuda")]
pub use cuda::CudaPlan;
pub use device::{CudaError, Device, Span, Stream, Unavailable};
pub use engine::{Engine, EngineInfo, Prepared, Session, SessionSpec, check_binding};
pub use engines::{ENGINES, by_name, engines, stray_requests};
pub use executor::CpuPlan;
pub use inference::ProbeInputs;
#[cfg(feature = "cuda")]
pub use orinoco_cuda::{Allocated, allocated};
pub use scratch::Scratch;
pub use select::{Chosen, EngineOrder, InputsFor, Refusal, choose};
pub use stream::ExecutionStream;
pub use tensor::{
    DeviceTensor, Elements, ElementsMut, TensorMemory, TensorMut, TensorRef, TensorView, TensorViewMut,
};
