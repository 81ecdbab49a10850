//! Converts GStreamer's errors, which name elements and source lines, to faults that name the file or camera, the cause
//! and the next step.

use std::io;

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use orinoco_core::{Code, Diagnosis, codes};
use orinoco_pipeline::SourceError;
use orinoco_uri::hide_secrets;

use super::facts::{Missing, PipelineFacts, Progress};
use crate::container::Wholeness;
use crate::local_file::FileError;

/// Next step for faults without a better one.
const DISCOVER: &str = "run `gst-discoverer-1.0` on it";

/// Reason why a video file gives no frames, or no more of them. Messages are GStreamer's, without secrets.
#[derive(Debug)]
pub(super) enum FileFault {
    /// The file cannot be read.
    File(FileError),
    /// The lengths in its container cannot be read.
    Uninspected(io::Error),
    /// The file has no bytes.
    Empty,
    /// The index of the MP4 is missing: the file was cut off, and nothing in it can be decoded.
    NoIndex,
    /// The file has `held` of at least `promised` bytes.
    CutOff { promised: u64, held: u64 },
    /// Its data is damaged after the first frames.
    Corrupt(String),
    /// No decoder for its video is installed.
    NoDecoder(Missing),
    /// It has audio but no video.
    AudioOnly,
    /// It is in no format that GStreamer knows.
    UnknownFormat,
    /// It has video that cannot be decoded.
    Undecodable(String),
    /// It cannot be read, for a reason that only GStreamer's message gives.
    Unreadable(String),
    /// Its video track has no frames.
    NoFrames,
    /// It has no video track.
    NoVideo,
    /// It stopped delivering data after its first frames.
    Stalled,
    /// It gave no frame within this time.
    Silent { seconds: u64 },
}

impl FileFault {
    /// Returns the fault of a file that is unusable by its own lengths, or `None`.
    pub(super) fn of_lengths(wholeness: Wholeness) -> Option<Self> {
        match wholeness {
            Wholeness::Empty => Some(Self::Empty),
            Wholeness::NoIndex => Some(Self::NoIndex),
            Wholeness::Whole | Wholeness::Cut { .. } => None,
        }
    }

    /// Returns the fault of a file that ended, with or without an error; `None` when it ended normally.
    pub(super) fn of_end(
        wholeness: Wholeness,
        progress: Progress,
        seen: &PipelineFacts,
        error: Option<&glib::Error>,
    ) -> Option<Self> {
        match (wholeness, progress, error) {
            (Wholeness::Cut { promised, held }, ..) if seen.missing.is_none() => {
                Some(Self::CutOff { promised, held })
            }
            (_, Progress::Frames, None) => None,
            (_, Progress::Frames, Some(error)) => Some(Self::Corrupt(hide_secrets(error.message()))),
            (_, Progress::Nothing, error) => Some(Self::without_frames(seen, error)),
        }
    }

    fn without_frames(seen: &PipelineFacts, error: Option<&glib::Error>) -> Self {
        if let Some(missing) = &seen.missing {
            return Self::NoDecoder(missing.clone());
        }
        if seen.other && !seen.video {
            return Self::AudioOnly;
        }
        match error {
            Some(error)
                if error.matches(gst::StreamError::TypeNotFound)
                    || error.matches(gst::StreamError::WrongType) =>
            {
                Self::UnknownFormat
            }
            Some(error) if seen.video => Self::Undecodable(hide_secrets(error.message())),
            Some(error) => Self::Unreadable(hide_secrets(error.message())),
            None if seen.video => Self::NoFrames,
            None => Self::NoVideo,
        }
    }

    /// Converts the fault to that of the source that is called `shown` in messages.
    pub(super) fn about(&self, shown: &str) -> SourceError {
        SourceError::Permanent(self.diagnosis(shown))
    }

    fn diagnosis(&self, shown: &str) -> Diagnosis {
        let fault = |code: &'static Code, cause: &str, next: &str| Diagnosis::new(code, shown, cause, next);
        match self {
            Self::File(error) => error.about(shown),
            Self::Uninspected(error) => {
                fault(&codes::FILE_MISSING, &error.to_string(), "check the disk or network it is on")
            }
            Self::Empty => fault(&codes::SOURCE_OPEN, "the file is empty", "copy or record it again"),
            Self::NoIndex => fault(
                &codes::SOURCE_TRUNCATED,
                "the file was cut off: its index (moov box) is missing, so nothing in it can be decoded",
                "copy it again, or record it again and stop the recorder cleanly",
            ),
            Self::CutOff { promised, held } => {
                let cause = format!("the file was cut off: it has {held} of at least {promised} bytes");
                fault(&codes::SOURCE_TRUNCATED, &cause, "copy it again")
            }
            Self::Corrupt(message) => {
                let cause = format!("its data is corrupt ({message})");
                fault(&codes::SOURCE_DECODE, &cause, "copy it again, or re-encode it")
            }
            Self::NoDecoder(missing) => missing.about(shown),
            Self::AudioOnly => {
                fault(&codes::SOURCE_NO_VIDEO, "it has audio but no video", "name a file with a video track")
            }
            Self::UnknownFormat => {
                fault(&codes::SOURCE_OPEN, "it is not a media file that GStreamer knows", DISCOVER)
            }
            Self::Undecodable(message) => {
                fault(&codes::SOURCE_DECODE, &format!("its video cannot be decoded ({message})"), DISCOVER)
            }
            Self::Unreadable(message) => {
                fault(&codes::SOURCE_OPEN, &format!("it cannot be read ({message})"), DISCOVER)
            }
            Self::NoFrames => fault(&codes::SOURCE_DECODE, "its video track has no frames", DISCOVER),
            Self::NoVideo => fault(&codes::SOURCE_NO_VIDEO, "it has no video track", DISCOVER),
            Self::Stalled => fault(
                &codes::SOURCE_UNREACHABLE,
                "it stopped delivering data; a file cannot be resumed, only restarted",
                "check the disk or network it is on, or copy it to a disk of this machine",
            ),
            Self::Silent { seconds } => fault(
                &codes::SOURCE_OPEN,
                &format!("it gave no frame within {seconds} s"),
                "check the disk or network it is on; `gst-discoverer-1.0` shows what GStreamer makes of it",
            ),
        }
    }
}

/// Protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Rtsp,
    Http,
}

/// Reason why a server gives no frames, or no more of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServerFault {
    /// No decoder for its video is installed.
    NoDecoder(Missing),
    /// It has audio but no video.
    AudioOnly,
    /// The server ended the stream without an error.
    Ended,
    /// The server does not accept the user name and password of the URI, which has this protocol.
    Unauthorized(Protocol),
    /// The server has nothing at the path.
    NotFound,
    /// The connection was lost after the first frames.
    Lost,
    /// The server cannot be connected to.
    NotConnected,
    /// A web server sent something else than MJPEG.
    NoMjpeg,
    /// The server offered no video.
    NoVideo,
    /// The server sent no video within this time.
    Silent { seconds: u64 },
    /// The connection was lost after the first frames of a file, which cannot be resumed.
    FileLost,
    /// The server stopped sending after the first frames of a file, which cannot be resumed.
    FileStalled,
}

impl ServerFault {
    /// Returns the reason why a stream from a server ended. An `error` of `None` means that the server ended it.
    pub(super) fn of_end(
        protocol: Protocol,
        progress: Progress,
        seen: &PipelineFacts,
        error: Option<&gst::message::Error>,
    ) -> Self {
        if let Some(missing) = &seen.missing {
            return Self::NoDecoder(missing.clone());
        }
        let Some(message) = error else { return Self::Ended };
        let (error, debug) = (message.error(), message.debug().unwrap_or_default());
        if error.matches(gst::ResourceError::NotAuthorized) || debug.contains("Unauthorized") {
            Self::Unauthorized(protocol)
        } else if error.matches(gst::ResourceError::NotFound) || debug.contains("Not Found") {
            Self::NotFound
        } else if seen.other && !seen.video {
            Self::AudioOnly
        } else if progress == Progress::Frames {
            Self::Lost
        } else if debug.contains("Failed to connect") || no_connection(message) {
            Self::NotConnected
        } else if protocol == Protocol::Http && error.is::<gst::StreamError>() && !seen.video {
            Self::NoMjpeg
        } else {
            Self::NoVideo
        }
    }

    /// Converts the fault to that of the source that is called `shown` in messages. Another attempt may help unless the
    /// content itself is wrong, or frames of a file would come twice.
    pub(super) fn about(&self, shown: &str) -> SourceError {
        let passing = |cause: &str, next: &str| {
            SourceError::Transient(Diagnosis::new(&codes::SOURCE_UNREACHABLE, shown, cause, next))
        };
        let over = |code: &'static Code, cause: &str, next: &str| {
            SourceError::Permanent(Diagnosis::new(code, shown, cause, next))
        };
        match self {
            Self::NoDecoder(missing) => SourceError::Permanent(missing.about(shown)),
            Self::AudioOnly => {
                over(&codes::SOURCE_NO_VIDEO, "it has audio but no video", "check the path after the host")
            }
            Self::Ended => passing("the server ended the stream", "check that the camera still runs"),
            Self::Unauthorized(protocol) => {
                let next = match protocol {
                    Protocol::Rtsp => "write rtsp://USER:PASSWORD@HOST/PATH",
                    Protocol::Http => "write http://USER:PASSWORD@HOST/PATH",
                };
                passing("the server refuses the user name and password", next)
            }
            Self::NotFound => {
                passing("the server has no stream at this path", "check the path after the host")
            }
            Self::Lost => {
                passing("the connection was lost", "check the network and that the camera still runs")
            }
            Self::NotConnected => {
                passing("cannot connect to it", "check address and port, and that the camera runs")
            }
            Self::NoMjpeg => passing(
                "it sent no MJPEG stream (multipart/x-mixed-replace)",
                "check the path after the host; a video file's ends in .mp4, .mkv or the like",
            ),
            Self::NoVideo => {
                passing("it offered no video stream", "check address and path, and that the camera runs")
            }
            Self::Silent { seconds } => passing(
                &format!("it sent no video within {seconds} s"),
                "check address and port, and that the camera runs",
            ),
            Self::FileLost => over(
                &codes::SOURCE_UNREACHABLE,
                "the connection was lost before the end of the file, which cannot be resumed",
                "check the network, or fetch the file first",
            ),
            Self::FileStalled => over(
                &codes::SOURCE_UNREACHABLE,
                "the server stopped sending in the middle of the file, which cannot be resumed",
                "check the network, or fetch the file first",
            ),
        }
    }
}

/// Whether an error comes from the network and not from the received data.
pub(super) fn is_network(message: &gst::message::Error) -> bool {
    let from_source = message
        .src()
        .and_then(|element| element.downcast_ref::<gst::Element>())
        .and_then(|element| element.factory())
        .is_some_and(|factory| factory.name() == "souphttpsrc");
    from_source && (message.error().is::<gst::ResourceError>() || no_connection(message))
}

/// Whether the HTTP element failed to connect. It reports nothing more than this.
fn no_connection(message: &gst::message::Error) -> bool {
    let debug = message.debug().unwrap_or_default();
    message.error().matches(gst::StreamError::Failed) && debug.contains("reason error (-5)")
}

/// Reason why a CSI camera gives no frames. The service that reads all of them (nvargus-daemon) may have been restarted,
/// so another attempt may help.
#[derive(Debug)]
pub(super) enum CsiFault {
    /// The camera ended without an error.
    Ended,
    /// The camera failed; with GStreamer's message, without secrets.
    Failed(String),
    /// The camera delivered no frame within this time after it was opened.
    Silent { seconds: u64 },
}

impl CsiFault {
    /// Returns the reason why a camera ended.
    pub(super) fn of_end(error: Option<&gst::message::Error>) -> Self {
        error.map_or(Self::Ended, |error| Self::Failed(hide_secrets(error.error().message())))
    }

    /// Converts the fault to that of the source that is called `shown` in messages.
    pub(super) fn about(self, shown: &str) -> SourceError {
        let journal = "look at the cable and at the journal of nvargus-daemon";
        let (cause, next) = match self {
            Self::Ended => ("the camera ended".to_owned(), journal),
            Self::Failed(message) => (message, journal),
            Self::Silent { seconds } => (
                format!("no frame within {seconds} s"),
                "look at the cable, and restart the service nvargus-daemon",
            ),
        };
        SourceError::Transient(Diagnosis::new(&codes::SOURCE_UNREACHABLE, shown, cause, next))
    }
}
