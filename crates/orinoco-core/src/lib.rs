//! Types that every Orinoco crate shares: ids, units, time, random numbers, frames, tensors, detections, settings of models
//! and diagnoses.
//!
//! It does no I/O, reads no clock, and needs no operating system. Read first: [`FrameDesc`] (an image in memory),
//! [`TensorDesc`] (an input or output of a model) and [`Diagnosis`] (a fault that a user can correct).
#![no_std]

extern crate alloc;

mod choice;
pub mod codes;
mod detection;
mod diagnosis;
mod frame;
mod ids;
mod inference;
mod model;
mod span;
mod stream;
mod tensor;
pub mod text;
mod time;
mod units;

pub use choice::Choice;
pub use detection::{BoxF, Detection, TrackId};
pub use diagnosis::{Code, Diagnosis, Exit, WithSubject};
pub use frame::{
    ColorMatrix, ColorRange, FrameDesc, FrameView, MemoryDomain, Orientation, PLANES_MAX, PixelFormat, Plane,
    PlaneView, Region,
};
pub use ids::{LaneId, ModelId, StreamId};
pub use inference::{ClassMap, ClassScore, InferenceResult, Keypoint, Mask, Point, RawTensor};
pub use model::{Activation, ColorOrder, Resize};
pub use span::{ComputeUnit, TimeSpan};
pub use stream::{Codec, DropPolicy};
pub use tensor::{Dim, ElementType, Layout, Tensor, TensorDesc, shape_text};
pub use time::{Clock, Nanos, Pts, PtsClock, Signal, WallTime};
pub use units::{Amperes, Celsius, Joules, Ohms, Volts, Watts};

/// Random number generator with a seed. Code that needs random numbers takes one as an argument or is given a seed, so
/// that a run can be repeated.
pub use fastrand::Rng;
