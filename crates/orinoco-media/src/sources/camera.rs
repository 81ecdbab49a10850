//! `v4l2://`: cameras of the kernel, where this build has the part that reads them.

use orinoco_core::Diagnosis;
use orinoco_pipeline::Source;
use orinoco_uri::{SourceKind, SourceUri};

#[cfg(test)]
use super::suite::Samples;
use super::{SourceDescriptor, SourceSettings, no_check, no_files};
use crate::slots::SourceNeeds;

pub(super) static CAMERA: SourceDescriptor = SourceDescriptor {
    scheme: None,
    opens: |uri| matches!(uri.kind(), SourceKind::Camera(_)),
    needs,
    check: no_check,
    files: no_files,
    make,
    #[cfg(test)]
    samples: |_| Samples::Lacking("a camera (tests/rig has emulated ones)"),
};

#[cfg(feature = "v4l2")]
fn needs(uri: &SourceUri, queue_frames: usize) -> SourceNeeds {
    let SourceKind::Camera(address) = uri.kind() else { unreachable!("{uri} is a camera") };
    crate::v4l2::camera_needs(address, queue_frames)
}

#[cfg(not(feature = "v4l2"))]
fn needs(_: &SourceUri, _: usize) -> SourceNeeds {
    SourceNeeds::default()
}

#[cfg(feature = "v4l2")]
fn make(uri: &SourceUri, settings: SourceSettings<'_>) -> Result<Box<dyn Source>, Diagnosis> {
    let SourceKind::Camera(address) = uri.kind() else { unreachable!("{uri} is a camera") };
    let source = crate::V4l2Source::new(address.clone(), uri.to_string(), settings.clock);
    Ok(Box::new(source.with_ring(settings.queue_frames)))
}

#[cfg(not(feature = "v4l2"))]
fn make(uri: &SourceUri, _: SourceSettings<'_>) -> Result<Box<dyn Source>, Diagnosis> {
    let cause = "this binary was built without V4L2, which reads cameras";
    Err(Diagnosis::new(&orinoco_core::codes::FEATURE_MISSING, uri, cause, "build with `--features v4l2`"))
}
