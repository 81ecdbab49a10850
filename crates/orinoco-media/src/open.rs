use std::sync::Arc;

use orinoco_core::{Clock, Diagnosis};
use orinoco_pipeline::Source;
use orinoco_uri::{ImagePaths, SourceKind, SourceUri, V4l2Address};

use crate::image_paths::{check_source, folder_of};
use crate::sources::gif::{GifSource, is_gif};
use crate::{FrameMemory, ImageSource, RawSource, TestSource};

/// Creates the source for `uri`. It is not opened yet: [`Source::open`] does that, on the source's own thread.
///
/// Checks everything that is known without opening it: that a local file exists, and that this program includes the
/// source. `stream_name` is used in the names of threads and pipelines, for debuggers. Sources that cannot leave their
/// frames in `memory` use host memory. `queue_frames` is the capacity of the stream's ring, which determines the number
/// of slots as described at [`source_needs`](crate::source_needs).
pub fn open(
    uri: &SourceUri,
    stream_name: &str,
    memory: FrameMemory,
    queue_frames: usize,
    clock: Arc<dyn Clock>,
) -> Result<Box<dyn Source>, Diagnosis> {
    check_source(uri)?;
    let folder = folder_of(uri).map(|path| ImagePaths::Folder(path.to_owned()));
    Ok(match (uri.kind(), folder) {
        (SourceKind::Video { repeat, pace, .. } | SourceKind::Images { repeat, pace, .. }, Some(folder)) => {
            Box::new(ImageSource::new(folder, *repeat, *pace, clock))
        }
        (SourceKind::Images { paths, repeat, pace }, _) => {
            Box::new(ImageSource::new(paths.clone(), *repeat, *pace, clock))
        }
        (SourceKind::Video { path, repeat, pace }, _) if is_gif(path) => {
            Box::new(GifSource::new(path.clone(), *repeat, *pace, clock))
        }
        (SourceKind::Stdin(video), _) => {
            Box::new(RawSource::stdin(*video, uri, clock).with_ring(queue_frames))
        }
        (SourceKind::Camera(address), _) => open_camera(address, uri, queue_frames, clock)?,
        (SourceKind::Test(pattern), _) => Box::new(TestSource::new(*pattern, queue_frames, clock)),
        (
            SourceKind::Video { .. }
            | SourceKind::Csi(_)
            | SourceKind::Rtsp(_)
            | SourceKind::HttpCamera(_)
            | SourceKind::HttpVideo { .. },
            _,
        ) => open_stream(uri, stream_name, memory, clock)?,
    })
}

#[cfg(feature = "v4l2")]
fn open_camera(
    address: &V4l2Address,
    uri: &SourceUri,
    queue_frames: usize,
    clock: Arc<dyn Clock>,
) -> Result<Box<dyn Source>, Diagnosis> {
    let source = crate::V4l2Source::new(address.clone(), uri.to_string(), clock);
    Ok(Box::new(source.with_ring(queue_frames)))
}

#[cfg(not(feature = "v4l2"))]
fn open_camera(
    _: &V4l2Address,
    uri: &SourceUri,
    _: usize,
    _: Arc<dyn Clock>,
) -> Result<Box<dyn Source>, Diagnosis> {
    let cause = "this binary was built without V4L2, which reads cameras";
    Err(Diagnosis::new(&orinoco_core::codes::FEATURE_MISSING, uri, cause, "build with `--features v4l2`"))
}

#[cfg(feature = "gstreamer")]
fn open_stream(
    uri: &SourceUri,
    name: &str,
    memory: FrameMemory,
    clock: Arc<dyn Clock>,
) -> Result<Box<dyn Source>, Diagnosis> {
    Ok(Box::new(crate::GstSource::new(uri, name, clock)?.in_memory(memory)))
}

#[cfg(not(feature = "gstreamer"))]
fn open_stream(
    uri: &SourceUri,
    _: &str,
    _: FrameMemory,
    _: Arc<dyn Clock>,
) -> Result<Box<dyn Source>, Diagnosis> {
    let cause = "this binary was built without GStreamer, which reads video files, RTSP and HTTP";
    let next = "build with `--features gstreamer`, or use images, stdin:// or test://ball";
    Err(Diagnosis::new(&orinoco_core::codes::FEATURE_MISSING, uri, cause, next))
}

#[cfg(all(test, not(feature = "gstreamer")))]
mod tests {
    use super::*;
    use orinoco_core::codes;
    use orinoco_pipeline::MonotonicClock;

    #[test]
    fn streams_need_gstreamer() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("clip.mp4");
        std::fs::write(&path, "any").expect("writable");
        for text in [path.to_str().expect("UTF-8"), "rtsp://camera/x", "http://camera/x"] {
            let uri = SourceUri::parse(text).expect("it is valid");
            let opened = open(&uri, "test", FrameMemory::Host, 4, Arc::new(MonotonicClock::default()));
            let fault = opened.map(|_| ()).expect_err("there is no GStreamer");
            assert_eq!(fault.code.id, codes::FEATURE_MISSING.id);
        }
    }
}
