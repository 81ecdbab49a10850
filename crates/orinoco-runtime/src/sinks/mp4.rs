//! Sinks `mp4` and `mp4-h265`: the video with boxes and names.

use std::path::Path;
#[cfg(feature = "gstreamer")]
use std::sync::Arc;

use orinoco_board::{Endings, SinkDescriptor, SinkKind, StandardOutput};
use orinoco_core::{Codec, Diagnosis};
use orinoco_pipeline::Sink;
#[cfg(feature = "gstreamer")]
use {
    super::names::NamesOfModels,
    orinoco_media::OverlayContent,
    orinoco_pipeline::FrameResult,
    orinoco_vision::{Canvas, draw, draw_card, draw_within},
};

use super::factory::{SinkFactory, SinkStart};

static H264_DESCRIPTOR: SinkDescriptor = descriptor("mp4");
static H265_DESCRIPTOR: SinkDescriptor = descriptor("mp4-h265");

const fn descriptor(name: &'static str) -> SinkDescriptor {
    SinkDescriptor {
        name,
        content: "an MP4 video",
        endings: Endings::OneOf(&["mp4", "m4v"]),
        standard_output: StandardOutput::Refused {
            cause: "MP4 cannot be written to standard output, because it needs a seekable file",
            example: "mp4=FILE.mp4",
        },
        reads_pixels: true,
    }
}

/// Sink in H.264.
pub(super) const H264: SinkFactory =
    SinkFactory { kind: SinkKind::new(&H264_DESCRIPTOR), begin: |start| begin(start, Codec::H264), repair };

/// Sink in H.265.
pub(super) const H265: SinkFactory =
    SinkFactory { kind: SinkKind::new(&H265_DESCRIPTOR), begin: |start| begin(start, Codec::H265), repair };

#[cfg(feature = "gstreamer")]
fn begin(start: SinkStart<'_>, codec: Codec) -> Result<Box<dyn Sink>, Diagnosis> {
    let SinkStart { path, file, stream, models, clock, .. } = start;
    let file = file.expect("standard output is refused when outputs are opened");
    let stream = stream.to_owned();
    let paint = Box::new(move |frame: &mut [u8], width: u32, height: u32, shown: OverlayContent<'_>| {
        let Some(mut canvas) = Canvas::new(frame, width, height) else { return };
        match shown {
            OverlayContent::FrameResult(frame_result) => paint_outcome(&mut canvas, frame_result, &models),
            OverlayContent::Offline(silence) => {
                let text = format!("{stream}: no frame for {:.0} s", silence.as_secs_f64());
                draw_card(&mut canvas, &text);
            }
        }
    });
    Ok(Box::new(orinoco_media::Mp4Sink::to_file(file, path, codec, paint, Arc::clone(clock))?))
}

#[cfg(not(feature = "gstreamer"))]
fn begin(start: SinkStart<'_>, _: Codec) -> Result<Box<dyn Sink>, Diagnosis> {
    let (cause, next) =
        ("this binary was built without GStreamer", "build with the feature gstreamer, or write jsonl");
    Err(Diagnosis::new(&orinoco_core::codes::FEATURE_MISSING, start.path.display(), cause, next))
}

#[cfg(feature = "gstreamer")]
fn paint_outcome(canvas: &mut Canvas<'_>, frame_result: &FrameResult, models: &NamesOfModels) {
    for found in frame_result.reported() {
        let (names, inference) = (&models[&found.model], found.reported());
        match found.object.map(|object| frame_result.detection(object)) {
            None => {
                let count = inference.detections.len();
                let count = if count == 0 { String::new() } else { format!(": {count}") };
                let caption = format!("{} on {}{count}", names.name, names.engine);
                draw(canvas, &inference, &names.labels, &caption);
            }
            Some(Some(holder)) => draw_within(canvas, &inference, &names.labels, holder),
            Some(None) => {}
        }
    }
}

/// Cuts off the incomplete last fragment that a power loss leaves.
fn repair(path: &Path) {
    #[cfg(feature = "gstreamer")]
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("mp4")) {
        // A file that cannot be cut plays unchanged in most players.
        let _ = orinoco_media::cut_torn_mp4(path);
    }
    #[cfg(not(feature = "gstreamer"))]
    let _ = path;
}
