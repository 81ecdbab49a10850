//! Sinks of a board. A new kind of sink is a file in this folder and a line in the list (docs/extending.md).

mod factory;
mod names;
#[cfg(test)]
mod suite;

use std::path::Path;
use std::sync::Arc;

use orinoco_board::{SinkKind, SinkSpec};
use orinoco_core::{Clock, Diagnosis};
use orinoco_pipeline::Sink;

use self::factory::{SinkFactory, SinkStart};
pub(crate) use self::names::{ModelNames, NamesOfModels};
use crate::outputs::{OutputError, OutputFile};
use crate::readers::OutputReader;

/// Declares the module of each kind of sink, and lists its sinks.
macro_rules! sinks {
    ($(mod $module:ident: $($sink:ident),+;)*) => {
        $(mod $module;)*

        const ALL: &[SinkFactory] = &[$($($module::$sink),+),*];

        /// Every kind of sink, in the order in which messages list them.
        pub const SINKS: &[SinkKind] = &[$($($module::$sink.kind),+),*];
    };
}

sinks! {
    mod jsonl: JSONL;
    mod mp4: H264, H265;
    mod framemd5: FRAME_MD5;
}

/// Kind of sink that writes one `orinoco.result/1` object per line.
pub const JSONL: SinkKind = jsonl::JSONL.kind;
/// Kind of sink that writes the video with boxes and names, in H.264.
pub const MP4: SinkKind = mp4::H264.kind;

/// Begins one output of one stream in `file`; `None` is standard output. If the output may lose its reader, adds the reader
/// to `readers`.
pub(crate) fn open(
    spec: &SinkSpec,
    file: Option<OutputFile>,
    stream: &str,
    models: &NamesOfModels,
    clock: &Arc<dyn Clock>,
    readers: &mut Vec<OutputReader>,
) -> Result<Box<dyn Sink>, Diagnosis> {
    let path = &*spec.path;
    let file = file.map(OutputFile::begin).transpose();
    let file = file.map_err(|source| OutputError::Open { path: path.to_owned(), source })?;
    (find(spec.kind).begin)(SinkStart { path, file, stream, models: models.clone(), clock, readers })
}

/// Repairs, as far as possible, a file of this kind that an earlier run did not complete.
pub(crate) fn repair(kind: SinkKind, path: &Path) {
    (find(kind).repair)(path);
}

fn find(kind: SinkKind) -> &'static SinkFactory {
    ALL.iter().find(|factory| factory.kind == kind).expect("a board's kinds are those of the list")
}
