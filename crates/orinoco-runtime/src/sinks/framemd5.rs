//! Sink `framemd5`: a checksum of every frame, in the format of FFmpeg's muxer of that name.

use std::path::Path;

use orinoco_board::{Endings, SinkDescriptor, SinkKind, StandardOutput};
use orinoco_core::Diagnosis;
use orinoco_media::FrameMd5Sink;
use orinoco_pipeline::Sink;

use super::factory::{SinkFactory, SinkStart};

static DESCRIPTOR: SinkDescriptor = SinkDescriptor {
    name: "framemd5",
    content: "frame checksums",
    endings: Endings::OfText("md5"),
    standard_output: StandardOutput::Allowed,
    reads_pixels: true,
};

pub(super) const FRAME_MD5: SinkFactory =
    SinkFactory { kind: SinkKind::new(&DESCRIPTOR), begin, repair: |_| {} };

fn begin(mut start: SinkStart<'_>) -> Result<Box<dyn Sink>, Diagnosis> {
    let path: &Path = start.path;
    Ok(match start.file {
        None => Box::new(FrameMd5Sink::to_writer(start.text(), "standard output")),
        Some(_) => Box::new(FrameMd5Sink::to_writer(start.text(), &path.display().to_string()).at(path)),
    })
}
