//! Converts GStreamer's errors, which name elements and source lines, to faults that name the file or camera, the cause
//! and the next step.

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use orinoco_core::{Code, Diagnosis, codes};
use orinoco_pipeline::SourceError;
use orinoco_uri::hide_secrets;

use crate::container::Wholeness;

/// Containers whose caps look like those of a video codec. Caps of MPEG containers have a field for it.
const CONTAINERS: [&str; 8] = [
    "video/quicktime",
    "video/x-matroska",
    "video/x-matroska-3d",
    "video/webm",
    "video/x-msvideo",
    "video/x-flv",
    "video/x-ms-asf",
    "video/ogg",
];
/// Next step for faults without a better one.
const DISCOVER: &str = "run `gst-discoverer-1.0` on it";

/// Observations of a pipeline while it runs, which explain an error better than its message.
#[derive(Clone, Debug, Default)]
pub(super) struct PipelineFacts {
    /// Whether there is a video track, decodable or not.
    pub(super) video: bool,
    /// Whether there is a track of another kind.
    pub(super) other: bool,
    /// Codec or format for which no element is installed.
    pub(super) missing: Option<Missing>,
    /// Whether the container's times start at any value.
    pub(super) free_clock: bool,
    /// Whether the container's times are decoding times.
    pub(super) decoding_order: bool,
}

/// Part of GStreamer that is not installed.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    /// Name of the format: `H.264 (Main Profile)`.
    name: String,
    package: &'static str,
}

impl PipelineFacts {
    /// Records a stream that is found while the pipeline builds itself.
    pub(super) fn note_stream(&mut self, caps: &gst::CapsRef) {
        let Some(structure) = caps.structure(0) else { return };
        let name = structure.name().as_str();
        let of_mpeg = structure.get::<bool>("systemstream").unwrap_or(false);
        self.free_clock |= of_mpeg;
        self.decoding_order |= name == "video/x-msvideo";
        if of_mpeg || CONTAINERS.contains(&name) {
            return;
        }
        let media = structure.get::<&str>("media").unwrap_or_default();
        self.video |= name.starts_with("video/") || name.starts_with("image/") || media == "video";
        self.other |=
            name.starts_with("audio/") || name.starts_with("text/") || name.starts_with("subpicture/");
    }

    /// Records an element message about a missing plugin; ignores others.
    pub(super) fn note_message(&mut self, structure: &gst::StructureRef) {
        if structure.name() != "missing-plugin" {
            return;
        }
        let kind = structure.get::<&str>("type").unwrap_or_default();
        let caps = structure.get::<gst::Caps>("detail").ok();
        let format = caps.as_ref().and_then(|caps| caps.structure(0)).map(|caps| caps.name().as_str());
        if format.is_some_and(|format| format.starts_with("audio/") || format.starts_with("text/")) {
            return;
        }
        let name = structure.get::<&str>("name").ok().or(format).unwrap_or("its format");
        let name = name.trim_end_matches(" decoder").trim_end_matches(" demuxer").to_owned();
        let package = if kind == "decoder" { "gstreamer1.0-libav" } else { "gstreamer1.0-plugins-bad" };
        self.missing = Some(Missing { name, package });
    }
}

/// Progress of a source before it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// No frame has been delivered.
    Nothing,
    /// Frames have been delivered.
    Frames,
}

/// Protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Rtsp,
    Http,
}

/// Returns the fault of a file that is unusable by its own lengths, or `None`.
pub(super) fn unusable_file(shown: &str, wholeness: Wholeness) -> Option<Diagnosis> {
    match wholeness {
        Wholeness::Empty => {
            Some(Diagnosis::new(&codes::SOURCE_OPEN, shown, "the file is empty", "copy or record it again"))
        }
        Wholeness::NoIndex => Some(Diagnosis::new(
            &codes::SOURCE_TRUNCATED,
            shown,
            "the file was cut off: its index (moov box) is missing, so nothing in it can be decoded",
            "copy it again, or record it again and stop the recorder cleanly",
        )),
        Wholeness::Whole | Wholeness::Cut { .. } => None,
    }
}

/// Returns the fault of a file that ended, with or without an error; `None` when it ended normally.
pub(super) fn file_end(
    shown: &str,
    wholeness: Wholeness,
    progress: Progress,
    seen: &PipelineFacts,
    error: Option<&glib::Error>,
) -> Option<SourceError> {
    let diagnosis = match (wholeness, progress, error) {
        (Wholeness::Cut { promised, held }, ..) if seen.missing.is_none() => cut_off(shown, promised, held),
        (_, Progress::Frames, None) => return None,
        (_, Progress::Frames, Some(error)) => {
            let cause = format!("its data is corrupt ({})", hide_secrets(error.message()));
            Diagnosis::new(&codes::SOURCE_DECODE, shown, cause, "copy it again, or re-encode it")
        }
        (_, Progress::Nothing, error) => file_without_frames(shown, seen, error),
    };
    Some(SourceError::Permanent(diagnosis))
}

/// Makes the fault of a file with fewer bytes than its container declares.
pub(super) fn cut_off(shown: &str, promised: u64, held: u64) -> Diagnosis {
    let cause = format!("the file was cut off: it has {held} of at least {promised} bytes");
    Diagnosis::new(&codes::SOURCE_TRUNCATED, shown, cause, "copy it again")
}

fn file_without_frames(shown: &str, seen: &PipelineFacts, error: Option<&glib::Error>) -> Diagnosis {
    let fault = |code: &'static Code, cause: &str, next: &str| Diagnosis::new(code, shown, cause, next);
    if let Some(missing) = &seen.missing {
        return missing_decoder(shown, missing);
    }
    if seen.other && !seen.video {
        return fault(&codes::SOURCE_NO_VIDEO, "it has audio but no video", "name a file with a video track");
    }
    match error {
        Some(error)
            if error.matches(gst::StreamError::TypeNotFound)
                || error.matches(gst::StreamError::WrongType) =>
        {
            fault(&codes::SOURCE_OPEN, "it is not a media file that GStreamer knows", DISCOVER)
        }
        Some(error) if seen.video => {
            let cause = format!("its video cannot be decoded ({})", hide_secrets(error.message()));
            fault(&codes::SOURCE_DECODE, &cause, DISCOVER)
        }
        Some(error) => fault(
            &codes::SOURCE_OPEN,
            &format!("it cannot be read ({})", hide_secrets(error.message())),
            DISCOVER,
        ),
        None if seen.video => fault(&codes::SOURCE_DECODE, "its video track has no frames", DISCOVER),
        None => fault(&codes::SOURCE_NO_VIDEO, "it has no video track", DISCOVER),
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

/// Returns the reason why a stream from a server ended. An `error` of `None` means that the server ended it.
pub(super) fn server_end(
    shown: &str,
    protocol: Protocol,
    progress: Progress,
    seen: &PipelineFacts,
    error: Option<&gst::message::Error>,
) -> SourceError {
    if let Some(missing) = &seen.missing {
        return SourceError::Permanent(missing_decoder(shown, missing));
    }
    let fault = |cause: &str, next: &str| {
        SourceError::Transient(Diagnosis::new(&codes::SOURCE_UNREACHABLE, shown, cause, next))
    };
    let Some(message) = error else {
        return fault("the server ended the stream", "check that the camera still runs");
    };
    let (error, debug) = (message.error(), message.debug().unwrap_or_default());
    if error.matches(gst::ResourceError::NotAuthorized) || debug.contains("Unauthorized") {
        let next = match protocol {
            Protocol::Rtsp => "write rtsp://USER:PASSWORD@HOST/PATH",
            Protocol::Http => "write http://USER:PASSWORD@HOST/PATH",
        };
        fault("the server refuses the user name and password", next)
    } else if error.matches(gst::ResourceError::NotFound) || debug.contains("Not Found") {
        fault("the server has no stream at this path", "check the path after the host")
    } else if seen.other && !seen.video {
        let cause = "it has audio but no video";
        SourceError::Permanent(Diagnosis::new(
            &codes::SOURCE_NO_VIDEO,
            shown,
            cause,
            "check the path after the host",
        ))
    } else if progress == Progress::Frames {
        fault("the connection was lost", "check the network and that the camera still runs")
    } else if debug.contains("Failed to connect") || no_connection(message) {
        fault("cannot connect to it", "check address and port, and that the camera runs")
    } else if protocol == Protocol::Http && error.is::<gst::StreamError>() && !seen.video {
        let next = "check the path after the host; a video file's ends in .mp4, .mkv or the like";
        fault("it sent no MJPEG stream (multipart/x-mixed-replace)", next)
    } else {
        fault("it offered no video stream", "check address and path, and that the camera runs")
    }
}

/// Makes the fault of a file whose server disconnected after its first frames.
pub(super) fn server_cut(shown: &str) -> SourceError {
    let cause = "the connection was lost before the end of the file, which cannot be resumed";
    let next = "check the network, or fetch the file first";
    SourceError::Permanent(Diagnosis::new(&codes::SOURCE_UNREACHABLE, shown, cause, next))
}

/// Makes the fault of a file whose server stopped sending after its first frames.
pub(super) fn server_stalled(shown: &str) -> SourceError {
    let cause = "the server stopped sending in the middle of the file, which cannot be resumed";
    let next = "check the network, or fetch the file first";
    SourceError::Permanent(Diagnosis::new(&codes::SOURCE_UNREACHABLE, shown, cause, next))
}

/// Makes the fault of a file on a disk that stopped after its first frames.
pub(super) fn file_stalled(shown: &str) -> SourceError {
    let cause = "it stopped delivering data; a file cannot be resumed, only restarted";
    let next = "check the disk or network it is on, or copy it to a disk of this machine";
    SourceError::Permanent(Diagnosis::new(&codes::SOURCE_UNREACHABLE, shown, cause, next))
}

/// Makes the fault of a server that sent no video within the time limit.
pub(super) fn server_silent(shown: &str, seconds: u64) -> SourceError {
    let cause = format!("it sent no video within {seconds} s");
    let next = "check address and port, and that the camera runs";
    SourceError::Transient(Diagnosis::new(&codes::SOURCE_UNREACHABLE, shown, cause, next))
}

/// Makes the fault of a file that gave no frame within the time limit.
pub(super) fn file_silent(shown: &str, seconds: u64) -> SourceError {
    let cause = format!("it gave no frame within {seconds} s");
    let next = "check the disk or network it is on; `gst-discoverer-1.0` shows what GStreamer makes of it";
    SourceError::Permanent(Diagnosis::new(&codes::SOURCE_OPEN, shown, cause, next))
}

fn missing_decoder(shown: &str, missing: &Missing) -> Diagnosis {
    let cause = format!("no decoder for {} is installed", missing.name);
    Diagnosis::new(
        &codes::SOURCE_OPEN,
        shown,
        cause,
        format!("install the Debian package {}", missing.package),
    )
}

/// Makes the fault of a CSI camera that ended or failed. The service that reads all of them (nvargus-daemon) may have
/// been restarted.
pub(super) fn csi_end(shown: &str, error: Option<&gst::message::Error>) -> SourceError {
    let cause =
        error.map_or_else(|| "the camera ended".to_owned(), |error| hide_secrets(error.error().message()));
    let next = "look at the cable and at the journal of nvargus-daemon";
    SourceError::Transient(Diagnosis::new(&codes::SOURCE_UNREACHABLE, shown, cause, next))
}

/// Makes the fault of a CSI camera that delivers no frame after it was opened.
pub(super) fn csi_silent(shown: &str, seconds: u64) -> SourceError {
    let next = "look at the cable, and restart the service nvargus-daemon";
    let cause = format!("no frame within {seconds} s");
    SourceError::Transient(Diagnosis::new(&codes::SOURCE_UNREACHABLE, shown, cause, next))
}
