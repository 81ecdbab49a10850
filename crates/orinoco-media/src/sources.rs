//! Sources, and what all of them are asked. A new one is a file in this folder and a line in the list
//! (docs/extending.md).

mod descriptor;
#[cfg(test)]
mod suite;

use std::path::PathBuf;
use std::sync::Arc;

use orinoco_core::{Clock, Diagnosis};
use orinoco_pipeline::Source;
use orinoco_uri::{Scheme, SourceUri};

#[cfg(test)]
use self::descriptor::MakeSource;
pub(crate) use self::descriptor::{SourceDescriptor, SourceSettings, no_check, no_files};
use crate::FrameMemory;
use crate::slots::SourceNeeds;

/// Declares each source's module, and lists what it has.
macro_rules! sources {
    ($(mod $module:ident: $($source:ident),+;)*) => {
        $(pub(crate) mod $module;)*

        /// Every source. The first that opens a URI is taken.
        const ALL: &[&SourceDescriptor] = &[$($(&$module::$source),+),*];
    };
}

sources! {
    mod cluster: CLUSTER;
    mod images: IMAGES;
    mod gif: GIF;
    mod raw: STDIN;
    mod camera: CAMERA;
    mod pattern: PATTERN;
    mod streams: STREAMS;
}

/// The source for `uri`, not yet opened: [`Source::open`] does that, on the source's own thread.
///
/// What can be known without opening it is checked here: that a local file is there, and that this binary has the part
/// that reads it. `stream_name` names its threads and pipeline for debuggers. Sources that cannot leave their frames in
/// `memory` leave them to the host. `queue_frames` is how many frames may wait in the stream's ring: the slots of a source
/// follow from it, as [`source_needs`] says.
pub fn open(
    uri: &SourceUri,
    stream_name: &str,
    memory: FrameMemory,
    queue_frames: usize,
    clock: Arc<dyn Clock>,
) -> Result<Box<dyn Source>, Diagnosis> {
    let source = find(uri)?;
    (source.check)(uri)?;
    (source.make)(uri, SourceSettings { stream_name, memory, queue_frames, clock })
}

/// Whether a source's local file is there and may be read. Asks nothing of the network.
pub fn check_source(uri: &SourceUri) -> Result<(), Diagnosis> {
    (find(uri)?.check)(uri)
}

/// Returns the files that a source reads and that are there now; none for cameras and streams.
pub fn source_files(uri: &SourceUri) -> Vec<PathBuf> {
    // A source that nobody opens is a fault of its own.
    find(uri).map_or_else(|_| Vec::new(), |source| (source.files)(uri))
}

/// Memory that the source of `uri` allocates for frames of which `queue_frames` may wait in its ring. Nothing is opened for
/// it: what only a file, a decoder or a device knows is named in [`SourceNeeds::uncounted`].
pub fn source_needs(uri: &SourceUri, queue_frames: usize) -> SourceNeeds {
    find(uri).map_or_else(|_| SourceNeeds::default(), |source| (source.needs)(uri, queue_frames))
}

/// Returns the schemes of sources that `orinoco-uri` has no variant for: [`SourceUri::parse_with`] takes them.
pub fn source_schemes() -> Vec<Scheme> {
    ALL.iter().filter_map(|source| source.scheme).collect()
}

/// Returns the source that opens `uri`.
fn find(uri: &SourceUri) -> Result<&'static SourceDescriptor, Diagnosis> {
    ALL.iter().find(|source| (source.opens)(uri)).copied().ok_or_else(|| uri.unknown_scheme())
}

#[cfg(test)]
mod tests;
