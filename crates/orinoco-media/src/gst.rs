//! GStreamer back end: demuxers, decoders and RTSP. No other module uses GStreamer.
//!
//! Only features of GStreamer 1.16 are used, because JetPack 5 has that version.

mod colours;
mod edits;
mod faults;
mod frames;
mod hardware;
mod nvmm;
mod presentation;
mod session;
mod source;
mod timing;

use gstreamer as gst;
use gstreamer::prelude::*;
use orinoco_core::{Code, Diagnosis};

pub use hardware::VideoHardware;
pub use source::GstSource;

pub(crate) use hardware::{CONVERTER, NVMM, works};

/// Starts GStreamer, once per process.
pub(crate) fn init(code: &'static Code, subject: &str) -> Result<(), Diagnosis> {
    gst::init().map_err(|error| {
        let cause = format!("GStreamer does not start ({error})");
        Diagnosis::new(code, subject, cause, "install the Debian package gstreamer1.0-plugins-base")
    })?;
    // Runs before the first choice of a decoder, so that no broken element is chosen.
    hardware::video_hardware();
    static LEAVE_ALPHA_OUT: std::sync::Once = std::sync::Once::new();
    LEAVE_ALPHA_OUT.call_once(|| {
        // `decodebin` finds these elements first, does not know their output, and then takes the stream as one without
        // a decoder. With them disabled, the plain decoders decode the video without its alpha channel, which is left
        // out of images too.
        for name in ["vp8alphadecodebin", "vp9alphadecodebin"] {
            if let Some(factory) = gst::ElementFactory::find(name) {
                factory.set_rank(gst::Rank::NONE);
            }
        }
    });
    Ok(())
}

/// Returns the elements of a Jetson's video hardware, each with the reason if it is not used.
pub fn video_hardware() -> Result<&'static [VideoHardware], Diagnosis> {
    init(&orinoco_core::codes::FEATURE_MISSING, "video hardware")?;
    Ok(hardware::video_hardware())
}

/// Returns the version of GStreamer, such as `1.22.0`.
///
/// # Errors
/// `E0503`, if GStreamer does not start.
pub fn gstreamer_version() -> Result<String, Diagnosis> {
    init(&orinoco_core::codes::FEATURE_MISSING, "GStreamer")?;
    let (major, minor, micro, _) = gst::version();
    Ok(format!("{major}.{minor}.{micro}"))
}

/// Element that sources or sinks need, and that GStreamer has or lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GstElement {
    /// Name of the element.
    pub name: &'static str,
    /// Sources or sinks that need it.
    pub purpose: &'static str,
    /// Package of Debian and Ubuntu that contains it.
    pub package: &'static str,
    /// Whether GStreamer has it.
    pub is_here: bool,
}

/// Elements by which sources read containers and networks. Decoders are chosen by what a stream needs.
const NEEDED: [(&str, &str, &str); 10] = [
    ("decodebin", "every video", "gstreamer1.0-plugins-base"),
    ("videoconvert", "pixel formats", "gstreamer1.0-plugins-base"),
    ("videoflip", "rotated video", "gstreamer1.0-plugins-good"),
    ("qtdemux", "MP4 files", "gstreamer1.0-plugins-good"),
    ("matroskademux", "MKV and WebM files", "gstreamer1.0-plugins-good"),
    ("rtspsrc", "rtsp://", "gstreamer1.0-plugins-good"),
    ("souphttpsrc", "http://", "gstreamer1.0-plugins-good"),
    ("multipartdemux", "MJPEG cameras over http://", "gstreamer1.0-plugins-good"),
    ("h264parse", "H.264", "gstreamer1.0-plugins-bad"),
    ("h265parse", "H.265", "gstreamer1.0-plugins-bad"),
];

/// Returns the elements that sources need, each with whether it is here.
///
/// # Errors
/// As [`gstreamer_version`].
pub fn needed_elements() -> Result<Vec<GstElement>, Diagnosis> {
    init(&orinoco_core::codes::FEATURE_MISSING, "GStreamer")?;
    let element = |(name, purpose, package)| {
        let is_here = gst::ElementFactory::find(name).is_some();
        GstElement { name, purpose, package, is_here }
    };
    Ok(NEEDED.map(element).to_vec())
}

/// Creates an element. If it is missing, the fault names its Debian package.
pub(crate) fn make(
    element: &str,
    package: &str,
    code: &'static Code,
    subject: &str,
) -> Result<gst::Element, Diagnosis> {
    gst::ElementFactory::make(element).build().map_err(|_| {
        let cause = format!("GStreamer has no element `{element}` here");
        Diagnosis::new(code, subject, cause, format!("install the Debian package {package}"))
    })
}

/// Adds elements to a pipeline and links them in order.
pub(crate) fn chain(pipeline: &gst::Pipeline, elements: &[&gst::Element]) {
    // Both calls fail only for elements that are in another bin or have no matching pads, which the callers exclude.
    pipeline.add_many(elements).expect("new elements are in no other pipeline");
    gst::Element::link_many(elements).expect("the elements were chosen to fit");
}
