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
