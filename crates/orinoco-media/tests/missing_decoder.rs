//! Tests a machine without a decoder. It has its own program, because it removes the decoders from GStreamer's
//! registry.
#![cfg(feature = "gstreamer")]

mod common;

use common::{data, launch, note, read};
use gstreamer as gst;
use gstreamer::prelude::*;
use orinoco_core::codes;

#[test]
fn the_codec_and_the_package_are_named() {
    let Some(data) = data() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    launch(&format!(
        "videotestsrc num-buffers=3 ! theoraenc ! oggmux ! filesink location={}",
        folder.path().join("x.ogv").display()
    ));
    let decoders =
        gst::ElementFactory::factories_with_type(gst::ElementFactoryType::DECODER, gst::Rank::MARGINAL);
    let videos = ["video/x-h264", "video/x-theora"].map(|name| gst::Caps::builder(name).build());
    for decoder in decoders.iter().filter(|decoder| videos.iter().any(|caps| decoder.can_sink_any_caps(caps)))
    {
        decoder.set_rank(gst::Rank::NONE);
    }
    for (file, codec) in
        [(data.join("video/car-detection.mp4"), "H.264"), (folder.path().join("x.ogv"), "Theora")]
    {
        let reading = read(file.to_str().expect("UTF-8"), 10, |_| ());
        let fault = reading.fault.expect("it cannot be decoded");
        note(&fault.to_string());
        assert_eq!(fault.code.id, codes::SOURCE_OPEN.id, "{fault}");
        assert!(fault.cause.contains(codec) && fault.next.contains("gstreamer1.0-libav"), "{fault}");
    }
}
