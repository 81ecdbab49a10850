//! GStreamer back end of the sources: demuxers, decoders and RTSP.
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
    // Before the first choice of a decoder: what does not work must not be chosen.
    hardware::video_hardware();
    static LEAVE_ALPHA_OUT: std::sync::Once = std::sync::Once::new();
    LEAVE_ALPHA_OUT.call_once(|| {
        // `decodebin` finds them first, does not know what they make, and takes the stream for one without a decoder.
        // The plain decoders behind them decode the picture and leave its alpha out, as with images.
        for name in ["vp8alphadecodebin", "vp9alphadecodebin"] {
            if let Some(factory) = gst::ElementFactory::find(name) {
                factory.set_rank(gst::Rank::NONE);
            }
        }
    });
    Ok(())
}

/// What there is of a Jetson's video hardware, and why the rest is not used.
pub fn video_hardware() -> Result<&'static [VideoHardware], Diagnosis> {
    init(&orinoco_core::codes::FEATURE_MISSING, "video hardware")?;
    Ok(hardware::video_hardware())
}

/// Makes an element; a missing one names the Debian package that has it.
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

/// Puts elements into a pipeline and links them in order.
pub(crate) fn chain(pipeline: &gst::Pipeline, elements: &[&gst::Element]) {
    // Both fail only for elements that are in another bin or have no matching pads, and the callers pass neither.
    pipeline.add_many(elements).expect("new elements are in no other pipeline");
    gst::Element::link_many(elements).expect("the elements were chosen to fit");
}
