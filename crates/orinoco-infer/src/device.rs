//! GPU types that the rest of this crate names: those of `orinoco-cuda`, or, in a build without CUDA, types of the same
//! names that have no values. So code that only passes such values on is the same in both builds.

#[cfg(not(feature = "cuda"))]
mod absent;

#[cfg(not(feature = "cuda"))]
pub use self::absent::{CudaError, Device, Span, Stream, Unavailable};
#[cfg(not(feature = "cuda"))]
pub(crate) use self::absent::{DevicePool, Event};
#[cfg(feature = "cuda")]
pub use orinoco_cuda::{CudaError, Device, Span, Stream, Unavailable};
#[cfg(feature = "cuda")]
pub(crate) use orinoco_cuda::{DevicePool, Event};
