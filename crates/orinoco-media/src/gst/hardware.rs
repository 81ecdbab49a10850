//! Video hardware of a Jetson, as GStreamer elements of JetPack: each is tested, with the reason if it does not work.

use std::sync::OnceLock;

use gstreamer as gst;
use gstreamer::prelude::*;

/// Caps feature of NVIDIA's video memory (NVMM).
pub(crate) const NVMM: &str = "memory:NVMM";
/// Element that copies frames between NVMM and host memory, scales and rotates them.
pub(crate) const CONVERTER: &str = "nvvidconv";
/// Element that captures from a CSI camera.
pub(super) const CAMERA: &str = "nvarguscamerasrc";

/// Elements that are used where they exist, each with its purpose.
const ELEMENTS: [(&str, &str); 6] = [
    (CONVERTER, "copying frames from NVMM"),
    (CAMERA, "CSI cameras"),
    ("nvv4l2decoder", "decoding H.264, H.265, VP9 and AV1"),
    ("nvjpegdec", "decoding JPEG"),
    ("nvv4l2h264enc", "encoding H.264"),
    ("nvv4l2h265enc", "encoding H.265"),
];

/// Part of the board's video hardware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoHardware {
    /// Name of its GStreamer element.
    pub element: &'static str,
    /// Purpose of the element.
    pub purpose: &'static str,
    /// Reason why it is not used; `None` where it is.
    pub refused: Option<String>,
}

/// Returns the elements of a Jetson's video hardware. Each one has tried to open its device; those that cannot are
/// excluded from all later choices, and software replaces them. The check runs once; GStreamer must have been started.
pub(crate) fn video_hardware() -> &'static [VideoHardware] {
    static FOUND: OnceLock<Vec<VideoHardware>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let converter = try_element(CONVERTER);
        let found = ELEMENTS.map(|(element, purpose)| {
            let refused = match &converter {
                _ if element == CONVERTER => converter.clone(),
                // Without the converter no frame gets out of, or into, the other elements.
                Some(why) if gst::ElementFactory::find(element).is_some() => {
                    Some(format!("it needs {CONVERTER}: {why}"))
                }
                _ => try_element(element),
            };
            if refused.is_some()
                && let Some(factory) = gst::ElementFactory::find(element)
            {
                // Where GStreamer chooses elements by itself, it goes by their rank.
                factory.set_rank(gst::Rank::NONE);
            }
            VideoHardware { element, purpose, refused }
        });
        found.to_vec()
    })
}

/// Whether an element exists and works.
pub(crate) fn works(element: &str) -> bool {
    video_hardware().iter().any(|part| part.element == element && part.refused.is_none())
}

/// Returns the reason why an element is not used; `None` where it is.
pub(crate) fn refusal(element: &str) -> Option<&'static str> {
    video_hardware().iter().find(|part| part.element == element).and_then(|part| part.refused.as_deref())
}

/// Lets an element open its device. Returns the reason if it cannot.
fn try_element(name: &str) -> Option<String> {
    let Ok(element) = gst::ElementFactory::make(name).build() else {
        return Some(
            "GStreamer has no such element here; JetPack's package nvidia-l4t-gstreamer has it".to_owned(),
        );
    };
    let bus = gst::Bus::new();
    element.set_bus(Some(&bus));
    let ready = element.set_state(gst::State::Ready);
    // Stopping cannot fail, and an error would have no consequence here.
    let _ = element.set_state(gst::State::Null);
    ready.err().map(|_| {
        let said = bus.iter().find_map(|message| match message.view() {
            gst::MessageView::Error(error) => Some(error.error().message().to_owned()),
            _ => None,
        });
        said.unwrap_or_else(|| "it cannot open its device".to_owned())
    })
}
