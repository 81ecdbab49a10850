//! Cameras of the Linux kernel: Video4Linux2 capture devices, single- and multi-planar.
//!
//! Modules in reading order: [`V4l2Source`] (the source), `formats` (the layout of its bytes), `kernel` (the ioctls and
//! mappings; the only file with unsafe code). Names and rules: The Linux Kernel documentation, "Video for Linux API".

mod cameras;
mod errors;
mod formats;
mod kernel;
mod needs;
mod source;

pub(crate) use needs::camera_needs;

pub use cameras::{Camera, CameraControl, CameraFormat, CameraSize, cameras};
pub use source::V4l2Source;
