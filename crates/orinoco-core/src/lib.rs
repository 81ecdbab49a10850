//! The vocabulary every Orinoco crate shares: ids, time, chance, frames, tensors, detections, settings of models and diagnoses.
//!
//! It does no I/O, reads no clock, and needs no operating system. Read first:
//! [`FrameDesc`] (what an image in memory is), [`TensorDesc`] (what a model takes and gives) and
//! [`Diagnosis`] (how everything here reports what a user can mend).
#![no_std]

extern crate alloc;

mod choice;
pub mod codes;
mod detection;
mod diagnosis;
mod findings;
mod frame;
mod ids;
mod model;
mod span;
mod stream;
mod tensor;
pub mod text;
mod time;

pub use choice::Choice;
pub use detection::{BoxF, Detection, TrackId};
pub use diagnosis::{Code, Diagnosis, Exit, WithSubject};
pub use findings::{ClassMap, ClassScore, Findings, Keypoint, Mask, Point, RawTensor};
pub use frame::{
    ColorMatrix, ColorRange, FrameDesc, FrameView, MemoryDomain, Orientation, PLANES_MAX, PixelFormat, Plane,
    PlaneView, Region,
};
pub use ids::{LaneId, ModelId, StreamId};
pub use model::{Activation, ColorOrder, Resize};
pub use span::{ComputeUnit, TimeSpan};
pub use stream::{Codec, DropPolicy};
pub use tensor::{Dim, ElementType, Layout, TensorDesc, shape_text};
pub use time::{Clock, Nanos, Pts, PtsClock, Signal, WallTime};

/// Chance with a seed. Whatever draws from it takes it as an argument or is given a seed, so that a run can be repeated.
pub use fastrand::Rng;
