//! Errors of the MP4 sink, and how they become faults.

use std::fmt;
use std::io;
use std::time::Duration;

use orinoco_core::{Codec, Diagnosis, codes};

use super::recorder::RecordError;
use crate::gst::GstError;

/// Reason why no video can be encoded here.
#[derive(Debug)]
pub(super) enum OpenError {
    /// GStreamer does not start, or lacks an element.
    Gst(GstError),
    /// No encoder of this codec is installed; one is in this Debian package.
    NoEncoder { codec: Codec, package: &'static str },
}

impl From<GstError> for OpenError {
    fn from(error: GstError) -> Self {
        Self::Gst(error)
    }
}

impl OpenError {
    /// Converts the error to a fault of the file that is called `shown` in messages.
    pub(super) fn about(&self, shown: &str) -> Diagnosis {
        match self {
            Self::Gst(error) => error.about(&codes::SINK_OPEN, shown),
            Self::NoEncoder { codec, package } => {
                let next = format!("install the Debian package {package}");
                let cause = format!("no {codec:?} encoder is installed");
                Diagnosis::new(&codes::SINK_OPEN, shown, cause, next)
            }
        }
    }
}

/// Reason why a frame is not written.
#[derive(Debug)]
pub(super) enum WriteError {
    /// A side of the frames is longer than MP4 can say.
    FrameTooLarge,
    /// The frames are smaller than 2 by 2 pixels.
    FrameTooSmall,
    /// The frames are in a pixel format that cannot be converted to I420.
    UnknownFormat,
    /// GStreamer has no caps for the format of the file.
    NoCaps,
    /// The operating system starts no thread that writes.
    NoThread(io::Error),
    /// There is no memory for a frame.
    NoMemory,
    /// The memory of a frame cannot be mapped.
    Unmapped,
    /// GStreamer lacks an element.
    Gst(GstError),
    /// The encoder failed.
    Encoder(EncoderError),
}

impl From<GstError> for WriteError {
    fn from(error: GstError) -> Self {
        Self::Gst(error)
    }
}

impl From<EncoderError> for WriteError {
    fn from(error: EncoderError) -> Self {
        Self::Encoder(error)
    }
}

impl WriteError {
    /// Converts the error to a fault of the file that is called `shown` in messages.
    pub(super) fn about(&self, shown: &str) -> Diagnosis {
        let fault = |cause: &str, next: &str| Diagnosis::new(&codes::SINK_WRITE, shown, cause, next);
        match self {
            Self::FrameTooLarge => fault("the frames are too large", "use a smaller source"),
            Self::FrameTooSmall => fault("the frames are too small to encode", "use a larger source"),
            Self::UnknownFormat => fault("its frames have an unknown pixel format", "use another source"),
            Self::NoCaps => fault("unknown pixel format", "use another source"),
            Self::NoThread(error) => fault(&error.to_string(), "raise the limit on threads (ulimit -u)"),
            Self::NoMemory => fault("there is no memory for a frame", "free some memory"),
            Self::Unmapped => fault("a frame cannot be mapped", "try again"),
            Self::Gst(error) => error.about(&codes::SINK_OPEN, shown),
            Self::Encoder(error) => fault(&error.to_string(), "check the free space where it is written"),
        }
    }
}

/// Reason why a running encoder takes or completes no frame.
#[derive(Debug)]
pub(super) enum EncoderError {
    /// GStreamer has no caps for a new format of the frames.
    NoCaps,
    /// The encoder accepted no frame within this time.
    Full(Duration),
    /// The encoder failed; with GStreamer's message.
    Failed(String),
    /// The encoder has stopped without an error.
    Stopped,
    /// The encoder did not end within this time.
    NotEnded(Duration),
    /// The file was not written, which stops the encoder.
    Recorder(RecordError),
}

impl fmt::Display for EncoderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCaps => f.write_str("unknown pixel format"),
            Self::Full(waited) => write!(f, "the encoder accepted no frame for {} s", waited.as_secs()),
            Self::Failed(message) => write!(f, "it cannot be encoded ({message})"),
            Self::Stopped => f.write_str("the encoder has stopped"),
            Self::NotEnded(waited) => write!(f, "the encoder did not end within {} s", waited.as_secs()),
            Self::Recorder(error) => error.fmt(f),
        }
    }
}
