//! Observations of a running pipeline, by which its end is explained.

use gstreamer as gst;
use orinoco_core::{Diagnosis, codes};

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// Name of the format: `H.264 (Main Profile)`.
    name: String,
    package: &'static str,
}

impl Missing {
    /// Returns the fault of a stream that would need it, called `shown` in messages.
    pub(super) fn about(&self, shown: &str) -> Diagnosis {
        let cause = format!("no decoder for {} is installed", self.name);
        let next = format!("install the Debian package {}", self.package);
        Diagnosis::new(&codes::SOURCE_OPEN, shown, cause, next)
    }
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
