//! Cameras of the Linux kernel: Video4Linux2 capture devices, single- and multi-planar.
//!
//! Reads from top to bottom as [`V4l2Source`] (a camera's life), `formats` (what its bytes are), `kernel` (the ioctls and
//! mappings; the only file with unsafe code). Names and rules: The Linux Kernel documentation, "Video for Linux API".

mod cameras;
mod formats;
mod kernel;
mod needs;
mod source;

pub(crate) use needs::camera_needs;

pub use cameras::{Camera, CameraControl, CameraFormat, CameraSize, cameras};
pub use source::V4l2Source;
