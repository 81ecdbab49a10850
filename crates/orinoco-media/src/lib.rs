//! Sources and sinks: cameras, video files, RTSP, HTTP, images, raw video and a test pattern as sources; frame
//! checksums and annotated MP4 as sinks.
//!
//! It knows no model and draws nothing itself: the MP4 sink calls a callback. Frames of a decoder are lent, not copied.
//! Read first: [`open`] (the source for an [`orinoco_uri::SourceUri`]), [`check_source`] (whether it can be opened),
//! [`source_needs`] (the memory it allocates) and [`FrameMd5Sink`].

#[cfg(feature = "gstreamer")]
mod container;
mod cpu_time;
mod frame_memory;
mod framemd5;
#[cfg(feature = "gstreamer")]
mod gst;
#[cfg(feature = "gstreamer")]
mod i420;
mod image_folder;
mod image_paths;
mod jpeg;
mod lines;
mod local_file;
#[cfg(feature = "gstreamer")]
mod mp4;
mod pace;
mod slots;
mod sources;
#[cfg(feature = "v4l2")]
mod v4l2;
mod wav;

pub use frame_memory::FrameMemory;
pub use framemd5::FrameMd5Sink;
#[cfg(feature = "gstreamer")]
pub use gst::{GstElement, GstSource, VideoHardware, gstreamer_version, needed_elements, video_hardware};
pub use lines::LineFile;
#[cfg(feature = "gstreamer")]
pub use mp4::{Draw, Mp4Sink, OverlayContent, VideoEncoder, cut_torn_mp4, video_encoders};
pub use slots::SourceNeeds;
pub use sources::images::{ImageSource, decode_image};
pub use sources::pattern::{Ball, TestSource};
pub use sources::raw::RawSource;
pub use sources::{check_source, open, source_files, source_needs, source_schemes};
#[cfg(feature = "v4l2")]
pub use v4l2::{Camera, CameraControl, CameraFormat, CameraSize, V4l2Source, cameras};
pub use wav::{Sound, read_wav};
