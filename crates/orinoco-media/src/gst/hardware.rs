//! The video hardware of a Jetson, as GStreamer elements that come with JetPack: what is there, whether it works, and why not.

use std::sync::OnceLock;

use gstreamer as gst;
use gstreamer::prelude::*;

/// The caps feature of NVIDIA's memory.
pub(crate) const NVMM: &str = "memory:NVMM";
/// What moves pictures between NVIDIA's memory and ours, scales and turns them.
pub(crate) const CONVERTER: &str = "nvvidconv";
/// What captures from a CSI camera.
pub(super) const CAMERA: &str = "nvarguscamerasrc";

/// Every element that is used when it is there, and what for.
const ELEMENTS: [(&str, &str); 6] = [
    (CONVERTER, "copying frames out of NVIDIA's memory"),
    (CAMERA, "CSI cameras"),
    ("nvv4l2decoder", "decoding H.264, H.265, VP9 and AV1"),
    ("nvjpegdec", "decoding JPEG"),
    ("nvv4l2h264enc", "encoding H.264"),
    ("nvv4l2h265enc", "encoding H.265"),
];

/// A part of the board's video hardware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoHardware {
    /// GStreamer's element for it.
    pub element: &'static str,
    /// What it is for.
    pub purpose: &'static str,
    /// Why it is not used; `None` where it is.
    pub refused: Option<String>,
}

/// What there is of a Jetson's video hardware. Each element was asked to take hold of its device; one that cannot is left
/// out of all further choices, and software does its work. Found out once; GStreamer must have been started.
pub(crate) fn video_hardware() -> &'static [VideoHardware] {
    static FOUND: OnceLock<Vec<VideoHardware>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let converter = try_element(CONVERTER);
        let found = ELEMENTS.map(|(element, purpose)| {
            let refused = match &converter {
                _ if element == CONVERTER => converter.clone(),
                // Without the converter no picture gets out of, or into, the others.
                Some(why) if gst::ElementFactory::find(element).is_some() => {
                    Some(format!("it needs {CONVERTER}: {why}"))
                }
                _ => try_element(element),
            };
            if refused.is_some()
                && let Some(factory) = gst::ElementFactory::find(element)
            {
                // Where GStreamer chooses by itself it goes by rank.
                factory.set_rank(gst::Rank::NONE);
            }
            VideoHardware { element, purpose, refused }
        });
        found.to_vec()
    })
}

/// Whether an element is there and works.
pub(crate) fn works(element: &str) -> bool {
    video_hardware().iter().any(|part| part.element == element && part.refused.is_none())
}

/// Why an element is not used; `None` where it is.
pub(crate) fn refusal(element: &str) -> Option<&'static str> {
    video_hardware().iter().find(|part| part.element == element).and_then(|part| part.refused.as_deref())
}

/// Lets an element take hold of its device, and says why it cannot.
fn try_element(name: &str) -> Option<String> {
    let Ok(element) = gst::ElementFactory::make(name).build() else {
        return Some(
            "GStreamer has no such element here; JetPack's package nvidia-l4t-gstreamer has it".to_owned(),
        );
    };
    let bus = gst::Bus::new();
    element.set_bus(Some(&bus));
    let ready = element.set_state(gst::State::Ready);
    // It cannot fail on the way down, and there would be nothing left to do about it.
    let _ = element.set_state(gst::State::Null);
    ready.err().map(|_| {
        let said = bus.iter().find_map(|message| match message.view() {
            gst::MessageView::Error(error) => Some(error.error().message().to_owned()),
            _ => None,
        });
        said.unwrap_or_else(|| "it cannot take hold of its device".to_owned())
    })
}
