//! Declaration of a source, which stands in its own file.

use std::path::PathBuf;
use std::sync::Arc;

use orinoco_core::{Clock, Diagnosis};
use orinoco_pipeline::Source;
use orinoco_uri::{Scheme, SourceUri};

#[cfg(test)]
use super::suite::Samples;
use crate::FrameMemory;
use crate::slots::SourceNeeds;

/// One way to open sources.
pub(crate) struct SourceDescriptor {
    /// Scheme of its own, where `orinoco-uri` has no variant for what it opens.
    pub(crate) scheme: Option<Scheme>,
    /// Whether it opens this source. May look at the file system. The first in the list that does is taken.
    pub(crate) opens: fn(&SourceUri) -> bool,
    /// Memory that a source allocates for frames of which so many may wait in its ring.
    pub(crate) needs: fn(&SourceUri, usize) -> SourceNeeds,
    /// Checks what can be known without opening a source. Asks nothing of the network.
    pub(crate) check: fn(&SourceUri) -> Result<(), Diagnosis>,
    /// Files that a source reads and that are there now.
    pub(crate) files: fn(&SourceUri) -> Vec<PathBuf>,
    /// Makes a source that was checked.
    pub(crate) make: MakeSource,
    /// Sources that the shared suite reads, in a folder of its own.
    #[cfg(test)]
    pub(crate) samples: fn(&std::path::Path) -> Samples,
}

/// Makes a source of a URI.
pub(crate) type MakeSource = fn(&SourceUri, SourceSettings<'_>) -> Result<Box<dyn Source>, Diagnosis>;

/// Settings of a source in addition to its URI.
#[cfg_attr(not(feature = "gstreamer"), expect(dead_code, reason = "some are for GStreamer alone"))]
pub(crate) struct SourceSettings<'s> {
    /// Name of its threads and its pipeline, for debuggers.
    pub(crate) stream_name: &'s str,
    /// Memory in which its frames are best left.
    pub(crate) memory: FrameMemory,
    /// Frames that may wait in the stream's ring.
    pub(crate) queue_frames: usize,
    /// Clock that stamps its frames.
    pub(crate) clock: Arc<dyn Clock>,
}

/// Checks nothing: there is nothing to know before the source is opened.
pub(crate) fn no_check(_: &SourceUri) -> Result<(), Diagnosis> {
    Ok(())
}

/// Returns no file: the source reads none.
pub(crate) fn no_files(_: &SourceUri) -> Vec<PathBuf> {
    Vec::new()
}
