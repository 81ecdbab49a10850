//! Types that every Orinoco crate shares: ids, units, time, random numbers, frames, tensors, detections, settings of models
//! and diagnoses.
//!
//! It does no I/O, reads no clock, and needs no operating system. Read first: [`FrameDesc`] (an image in memory),
//! [`TensorDesc`] (an input or output of a model) and [`Diagnosis`] (a fault that a user can correct).
//!
//! What needs a heap is behind the feature `alloc`, which is on by default. A microcontroller without a heap turns it off
//! and keeps units, time, ids and descriptors. [`Clock`] and [`Signal`] also need a processor that can count references
//! (`target_has_atomic = "ptr"`), which an Armv6-M (Cortex-M0) cannot.
#![no_std]

#[cfg(any(feature = "alloc", test))]
extern crate alloc;

mod choice;
#[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
mod clock;
#[cfg(feature = "alloc")]
pub mod codes;
mod detection;
#[cfg(feature = "alloc")]
mod diagnosis;
mod frame;
mod ids;
#[cfg(feature = "alloc")]
mod inference;
mod model;
mod span;
mod stream;
#[cfg(feature = "alloc")]
mod tensor;
#[cfg(feature = "alloc")]
pub mod text;
mod time;
mod units;

pub use choice::Choice;
#[cfg(all(feature = "alloc", target_has_atomic = "ptr"))]
pub use clock::{Clock, Signal};
pub use detection::{BoxF, Detection, TrackId};
#[cfg(feature = "alloc")]
pub use diagnosis::{Code, Diagnosis, Exit, WithSubject};
pub use frame::{
    ColorMatrix, ColorRange, FrameDesc, FrameView, MemoryDomain, Orientation, PLANES_MAX, PixelFormat, Plane,
    PlaneView, Region,
};
pub use ids::{LaneId, ModelId, StreamId};
#[cfg(feature = "alloc")]
pub use inference::{ClassMap, ClassScore, InferenceResult, Keypoint, Mask, Point, RawTensor};
pub use model::{Activation, ColorOrder, Resize};
pub use span::{ComputeUnit, TimeSpan};
pub use stream::{Codec, DropPolicy};
#[cfg(feature = "alloc")]
pub use tensor::{Dim, ElementType, Layout, Tensor, TensorDesc, shape_text};
pub use time::{Nanos, Pts, PtsClock, WallTime};
pub use units::{Amperes, Celsius, Coulombs, Joules, Ohms, Volts, Watts};

/// Random number generator with a seed. Code that needs random numbers takes one as an argument or is given a seed, so
/// that a run can be repeated.
pub use fastrand::Rng;
