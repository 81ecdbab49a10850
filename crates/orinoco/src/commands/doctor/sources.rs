//! Check of the sources: each is opened, and gives a frame or the reason why there is none.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orinoco_api::{MachinePart, PartState};
use orinoco_core::{Clock, Diagnosis, codes};
use orinoco_media::FrameMemory;
use orinoco_pipeline::{Poll, Source};
use orinoco_uri::SourceUri;

use super::advice::System;
use super::check::{Group, part};

/// Longest time until the first frame. A camera starts in 1 to 2 s, and a file that cannot be decoded says so within 10 s.
const FRAME_WAIT_MAX: Duration = Duration::from_secs(12);
/// Longest time of one call, so that the bound above is kept.
const STEP: Duration = Duration::from_millis(100);
/// Frames that may wait: one is enough.
const QUEUE_FRAMES: usize = 1;

/// Frame that a source gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FirstFrame {
    /// Width and height in pixels.
    size: (u32, u32),
    /// Decoder or capture element, where the source knows it.
    decoder: Option<String>,
}

impl std::fmt::Display for FirstFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a frame of {}x{}", self.size.0, self.size.1)?;
        self.decoder.iter().try_for_each(|decoder| write!(f, ", decoded by {decoder}"))
    }
}

/// Opens a source and returns its first frame, or the reason why there is none.
pub(super) fn first_frame(uri: &SourceUri, clock: &Arc<dyn Clock>) -> Result<FirstFrame, Diagnosis> {
    let mut source = orinoco_media::open(uri, "doctor", FrameMemory::Host, QUEUE_FRAMES, Arc::clone(clock))?;
    let found = wait_for_frame(source.as_mut(), uri, clock.as_ref());
    source.close();
    found
}

fn wait_for_frame(
    source: &mut dyn Source,
    uri: &SourceUri,
    clock: &dyn Clock,
) -> Result<FirstFrame, Diagnosis> {
    let start = clock.now();
    source.open().map_err(|why| why.diagnosis().clone())?;
    while clock.now().since(start) < FRAME_WAIT_MAX {
        match source.next(STEP).map_err(|why| why.diagnosis().clone())? {
            Poll::Frame(frame) => {
                let size = (frame.desc.width, frame.desc.height);
                return Ok(FirstFrame { size, decoder: source.decoder() });
            }
            Poll::End => {
                let next = "use a source that delivers frames";
                return Err(Diagnosis::new(&codes::SOURCE_NO_VIDEO, uri, "it ended without a frame", next));
            }
            Poll::Pending | Poll::Waiting => {}
        }
    }
    let cause = format!("no frame within {} s", FRAME_WAIT_MAX.as_secs());
    Err(Diagnosis::new(&codes::SOURCE_UNREACHABLE, uri, cause, "check that it delivers frames"))
}

/// Checks GStreamer with its decoders, the test pattern and the cameras. `folder` is for the small videos that are decoded.
pub(super) fn checks(
    folder: &Path,
    system: &System,
    is_jetson: bool,
    clock: &Arc<dyn Clock>,
) -> Vec<MachinePart> {
    let mut parts = vec![pattern(clock)];
    parts.extend(videos::checks(folder, system, is_jetson, clock));
    parts.extend(cameras::checks(clock));
    parts
}

fn pattern(clock: &Arc<dyn Clock>) -> MachinePart {
    let uri = SourceUri::parse("test://ball?width=64&height=48&frames=1").expect("a test pattern");
    let (state, says) = match first_frame(&uri, clock) {
        Ok(frame) => (PartState::Ok, frame.to_string()),
        Err(why) => (PartState::Broken, why.cause),
    };
    part(Group::Sources, "source", "test pattern", state, says)
}

#[cfg(feature = "gstreamer")]
mod videos {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use orinoco_api::{MachinePart, PartState};
    use orinoco_core::{Clock, Diagnosis};
    use orinoco_media::{
        GstElement, VideoEncoder, VideoHardware, gstreamer_version, needed_elements, video_encoders,
        video_hardware,
    };
    use orinoco_uri::SourceUri;

    use super::super::advice::System;
    use super::super::check::{Fix, Group, part, with_fix};
    use super::first_frame;

    /// Videos of one red frame of 64x64, made by GStreamer's `videotestsrc pattern=red`, `x264enc` or `x265enc`, and `mp4mux`.
    /// The H.264 clip is constrained baseline (caps `video/x-h264,profile=constrained-baseline` after `x264enc`): of the High profile,
    /// openh264 gives a frame only when the next one comes, and this clip has one.
    const CLIPS: [(&str, &str, &[u8]); 2] = [
        ("H.264", "h264.mp4", include_bytes!("probe/h264.mp4")),
        ("H.265", "h265.mp4", include_bytes!("probe/h265.mp4")),
    ];
    /// Package of Debian and Ubuntu with the decoders of FFmpeg.
    const DECODERS: &str = "gstreamer1.0-libav";

    pub(super) fn checks(
        folder: &Path,
        system: &System,
        is_jetson: bool,
        clock: &Arc<dyn Clock>,
    ) -> Vec<MachinePart> {
        let found = gstreamer_version().and_then(|version| Ok((version, needed_elements()?)));
        let (version, elements) = match found {
            Ok(found) => found,
            Err(why) => return vec![broken("gstreamer", "gstreamer", &why)],
        };
        let mut parts = vec![part(Group::Sources, "gstreamer", "gstreamer", PartState::Ok, version)];
        let missing = elements.iter().filter(|element| !element.is_here);
        parts.extend(missing.map(|element| missing_element(element, system)));
        parts.extend(CLIPS.map(|clip| decoder(clip, folder, &elements, system, clock)));
        parts.extend(video_encoders().into_iter().flatten().map(|encoder| encoder_part(encoder, system)));
        match video_hardware() {
            Ok(hardware) => parts.extend(hardware.iter().map(|part| hardware_part(part, is_jetson))),
            Err(why) => parts.push(broken("video", "gstreamer", &why)),
        }
        parts
    }

    fn broken(kind: &str, name: &str, why: &Diagnosis) -> MachinePart {
        let fix = Fix::words(&why.next);
        with_fix(part(Group::Sources, kind, name, PartState::Broken, &why.cause), fix)
    }

    fn missing_element(element: &GstElement, system: &System) -> MachinePart {
        let says = format!("GStreamer has no element `{}`, needed for {}", element.name, element.purpose);
        let part = part(Group::Sources, "gstreamer", element.name, PartState::Missing, says);
        with_fix(part, system.install(&[element.package]))
    }

    /// Decodes a video of one frame.
    fn decoder(
        (codec, file, bytes): (&str, &str, &[u8]),
        folder: &Path,
        elements: &[GstElement],
        system: &System,
        clock: &Arc<dyn Clock>,
    ) -> MachinePart {
        let report = |state, says: String| part(Group::Sources, "decoder", codec, state, says);
        let path = folder.join(file);
        if let Err(why) = fs::write(&path, bytes) {
            return report(PartState::NotChecked, format!("{}: {why}", path.display()));
        }
        let uri = SourceUri::parse(&path.display().to_string());
        match uri.and_then(|uri| first_frame(&uri, clock)) {
            Ok(frame) => report(PartState::Ok, frame.to_string()),
            Err(why) => {
                let mut packages: Vec<&str> = elements
                    .iter()
                    .filter(|element| !element.is_here)
                    .map(|element| element.package)
                    .collect();
                packages.push(DECODERS);
                packages.dedup();
                with_fix(report(PartState::Missing, why.cause), system.install(&packages))
            }
        }
    }

    fn encoder_part(encoder: VideoEncoder, system: &System) -> MachinePart {
        let report = |state, says: String| part(Group::Sources, "encoder", encoder.codec, state, says);
        match encoder.element {
            Some(element) => report(PartState::Ok, format!("{element}, for annotated MP4")),
            None => {
                let says = "no encoder for annotated MP4 is installed".to_owned();
                with_fix(report(PartState::Missing, says), system.install(&[encoder.package]))
            }
        }
    }

    fn hardware_part(found: &VideoHardware, is_jetson: bool) -> MachinePart {
        let (state, says) = match &found.refused {
            None => (PartState::Ok, found.purpose.to_owned()),
            Some(_) if !is_jetson => (PartState::Missing, "only a Jetson has it".to_owned()),
            Some(why) => (PartState::Missing, why.clone()),
        };
        part(Group::Sources, "video", found.element, state, says)
    }
}

#[cfg(not(feature = "gstreamer"))]
mod videos {
    use std::path::Path;
    use std::sync::Arc;

    use orinoco_api::{MachinePart, PartState};
    use orinoco_core::Clock;

    use super::super::advice::System;
    use super::super::check::{Group, part};

    pub(super) fn checks(_: &Path, _: &System, _: bool, _: &Arc<dyn Clock>) -> Vec<MachinePart> {
        let says = "this binary was built without it";
        vec![part(Group::Sources, "video", "gstreamer", PartState::Missing, says)]
    }
}

#[cfg(feature = "v4l2")]
mod cameras {
    use std::path::Path;
    use std::sync::Arc;

    use orinoco_api::{MachinePart, PartState};
    use orinoco_core::Clock;
    use orinoco_media::Camera;
    use orinoco_uri::SourceUri;

    use super::super::check::{Fix, Group, part, with_fix};
    use super::first_frame;

    pub(super) fn checks(clock: &Arc<dyn Clock>) -> Vec<MachinePart> {
        let found = orinoco_media::cameras();
        if found.is_empty() {
            let says = "there is no /dev/video*";
            let missing = part(Group::Sources, "camera", "v4l2", PartState::Missing, says);
            return vec![with_fix(missing, Fix::words("connect a camera, or use another kind of source"))];
        }
        found.iter().map(|(path, camera)| check(path, camera, clock)).collect()
    }

    /// Takes a frame of a camera, unless it cannot even be opened. Rights on its node are checked with the other devices.
    fn check(path: &Path, camera: &Result<Camera, String>, clock: &Arc<dyn Clock>) -> MachinePart {
        let name = path.display().to_string();
        let report = |state, says: String| part(Group::Sources, "camera", &*name, state, says);
        let camera = match camera {
            Ok(camera) => camera,
            Err(why) => return report(PartState::Broken, why.clone()),
        };
        let called = format!("{} ({})", camera.card, camera.driver);
        let uri = SourceUri::parse(&format!("v4l2://{name}"));
        match uri.and_then(|uri| first_frame(&uri, clock)) {
            Ok(frame) => report(PartState::Ok, format!("{called}, {frame}")),
            Err(why) => {
                with_fix(report(PartState::Broken, format!("{called}: {}", why.cause)), Fix::words(why.next))
            }
        }
    }
}

#[cfg(not(feature = "v4l2"))]
mod cameras {
    use std::sync::Arc;

    use orinoco_api::{MachinePart, PartState};
    use orinoco_core::Clock;

    use super::super::check::{Group, part};

    pub(super) fn checks(_: &Arc<dyn Clock>) -> Vec<MachinePart> {
        let says = "this binary was built without it";
        vec![part(Group::Sources, "camera", "v4l2", PartState::Missing, says)]
    }
}
