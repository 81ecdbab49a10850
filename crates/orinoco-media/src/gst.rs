//! GStreamer back end: demuxers, decoders and RTSP. No other module uses GStreamer.
//!
//! Only features of GStreamer 1.16 are used, because JetPack 5 has that version.

mod colours;
mod edits;
mod facts;
mod faults;
mod frames;
mod hardware;
mod nvmm;
mod presentation;
mod session;
mod source;
mod timing;

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use orinoco_core::{Code, Diagnosis, codes};

pub use hardware::VideoHardware;
pub use source::GstSource;

pub(crate) use hardware::{CONVERTER, NVMM, works};

/// Reason why GStreamer makes no pipeline.
#[derive(Debug)]
pub(crate) enum GstError {
    /// GStreamer does not start.
    NotStarted(glib::Error),
    /// An element is missing; it is in this Debian package.
    NoElement { element: &'static str, package: &'static str },
    /// An element has another type than its name says; it is in this Debian package.
    WrongType { element: &'static str, package: &'static str },
    /// NVIDIA's element for CSI cameras cannot be used, for this reason.
    NoCamera(&'static str),
}

impl GstError {
    /// Converts the error to a fault of kind `code` about `subject`.
    pub(crate) fn about(&self, code: &'static Code, subject: &str) -> Diagnosis {
        let (cause, next) = match self {
            Self::NotStarted(error) => (
                format!("GStreamer does not start ({error})"),
                "install the Debian package gstreamer1.0-plugins-base".to_owned(),
            ),
            Self::NoElement { element, package } => (
                format!("GStreamer has no element `{element}` here"),
                format!("install the Debian package {package}"),
            ),
            Self::WrongType { element, package } => (
                format!("the GStreamer element {element} has an unexpected type"),
                format!("reinstall the Debian package {package}"),
            ),
            Self::NoCamera(why) => (
                format!("no CSI camera can be read here ({}: {why})", hardware::CAMERA),
                "run it on a Jetson with JetPack; USB cameras are v4l2:///dev/video0".to_owned(),
            ),
        };
        Diagnosis::new(code, subject, cause, next)
    }
}

/// Starts GStreamer, once per process.
pub(crate) fn init() -> Result<(), GstError> {
    gst::init().map_err(GstError::NotStarted)?;
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
    init().map_err(|error| error.about(&codes::FEATURE_MISSING, "video hardware"))?;
    Ok(hardware::video_hardware())
}

/// Returns the version of GStreamer, such as `1.22.0`.
///
/// # Errors
/// `E0503`, if GStreamer does not start.
pub fn gstreamer_version() -> Result<String, Diagnosis> {
    init().map_err(|error| error.about(&codes::FEATURE_MISSING, "GStreamer"))?;
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
    init().map_err(|error| error.about(&codes::FEATURE_MISSING, "GStreamer"))?;
    let element = |(name, purpose, package)| {
        let is_here = gst::ElementFactory::find(name).is_some();
        GstElement { name, purpose, package, is_here }
    };
    Ok(NEEDED.map(element).to_vec())
}

/// Creates an element, which is in the Debian package `package`.
pub(crate) fn make(element: &'static str, package: &'static str) -> Result<gst::Element, GstError> {
    gst::ElementFactory::make(element).build().map_err(|_| GstError::NoElement { element, package })
}

/// Adds elements to a pipeline and links them in order.
pub(crate) fn chain(pipeline: &gst::Pipeline, elements: &[&gst::Element]) {
    // Both calls fail only for elements that are in another bin or have no matching pads, which the callers exclude.
    pipeline.add_many(elements).expect("new elements are in no other pipeline");
    gst::Element::link_many(elements).expect("the elements were chosen to fit");
}
