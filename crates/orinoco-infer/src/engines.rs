//! The engines.

pub(crate) mod onnxruntime;
#[cfg(feature = "tract")]
pub(crate) mod pure_rust;
