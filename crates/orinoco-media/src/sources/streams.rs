//! Video files, RTSP, HTTP and CSI cameras: what GStreamer reads, where this build has it.

use orinoco_core::Diagnosis;
use orinoco_pipeline::Source;
use orinoco_uri::{SourceKind, SourceUri};

#[cfg(test)]
use super::suite::Samples;
use super::{SourceDescriptor, SourceSettings};
use crate::local_file::check_file;
use crate::slots::SourceNeeds;

pub(super) static STREAMS: SourceDescriptor = SourceDescriptor {
    scheme: None,
    opens: |uri| {
        matches!(
            uri.kind(),
            SourceKind::Video { .. }
                | SourceKind::Csi(_)
                | SourceKind::Rtsp(_)
                | SourceKind::HttpCamera(_)
                | SourceKind::HttpVideo { .. }
        )
    },
    needs: |_, _| SourceNeeds::uncounted("decoder buffers"),
    check: |uri| match uri.kind() {
        SourceKind::Video { path, .. } => check_file(path).map_err(|error| error.about(&uri.to_string())),
        _ => Ok(()),
    },
    files: |uri| match uri.kind() {
        SourceKind::Video { path, .. } => vec![path.clone()],
        _ => Vec::new(),
    },
    make,
    #[cfg(test)]
    samples,
};

#[cfg(feature = "gstreamer")]
fn make(uri: &SourceUri, settings: SourceSettings<'_>) -> Result<Box<dyn Source>, Diagnosis> {
    let source = crate::GstSource::new(uri, settings.stream_name, settings.clock)?;
    Ok(Box::new(source.in_memory(settings.memory)))
}

#[cfg(not(feature = "gstreamer"))]
fn make(uri: &SourceUri, _: SourceSettings<'_>) -> Result<Box<dyn Source>, Diagnosis> {
    let cause = "this binary was built without GStreamer, which reads video files, RTSP and HTTP";
    let next = "build with `--features gstreamer`, or use images, stdin:// or test://ball";
    Err(Diagnosis::new(&orinoco_core::codes::FEATURE_MISSING, uri, cause, next))
}

/// A video file. Live streams have tests with servers of their own (tests/rtsp.rs, tests/http.rs).
#[cfg(all(test, feature = "gstreamer"))]
fn samples(folder: &std::path::Path) -> Samples {
    use super::suite::{Reopened, Sample};
    use gstreamer as gst;
    use gstreamer::prelude::*;

    let path = folder.join("clip.avi");
    gst::init().expect("GStreamer starts");
    let pipeline = format!(
        "videotestsrc num-buffers=30 ! video/x-raw,width=64,height=48,framerate=30/1 ! jpegenc ! avimux ! \
         filesink location={}",
        path.display()
    );
    let pipeline = gst::parse::launch(&pipeline).expect("the pipeline is right");
    let bus = pipeline.bus().expect("a pipeline has a bus");
    pipeline.set_state(gst::State::Playing).expect("it plays");
    let ends = [gst::MessageType::Eos, gst::MessageType::Error];
    let end = bus.timed_pop_filtered(gst::ClockTime::from_seconds(60), &ends).expect("it ends");
    assert_eq!(end.type_(), gst::MessageType::Eos, "{end:?}");
    pipeline.set_state(gst::State::Null).expect("it stops");
    Samples::Here(vec![Sample { reopened: Reopened::Fails, ..Sample::new(path.display(), 30) }])
}

#[cfg(all(test, not(feature = "gstreamer")))]
fn samples(_: &std::path::Path) -> Samples {
    Samples::Lacking("GStreamer (missing in this build)")
}
