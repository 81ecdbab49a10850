//! Kinds of sink, and the start of an output.

use std::fs::File;
use std::io::{LineWriter, Write};
use std::path::Path;
use std::sync::Arc;

use orinoco_board::SinkKind;
use orinoco_core::{Clock, Diagnosis};
use orinoco_media::LineFile;
use orinoco_pipeline::Sink;

use super::names::NamesOfModels;
use crate::readers::{OutputReader, ReaderOutput};

/// One kind of sink, and how its outputs are begun.
pub(crate) struct SinkFactory {
    /// The kind, with what it declares.
    pub(crate) kind: SinkKind,
    /// Begins an output.
    pub(crate) begin: fn(SinkStart<'_>) -> Result<Box<dyn Sink>, Diagnosis>,
    /// Repairs, as far as possible, a file that an earlier run did not complete.
    pub(crate) repair: fn(&Path),
}

/// An output that begins.
pub(crate) struct SinkStart<'s> {
    /// Path as it was named; `-` is standard output.
    pub(crate) path: &'s Path,
    /// The file, emptied; `None` is standard output.
    pub(crate) file: Option<File>,
    /// Name of the stream.
    pub(crate) stream: &'s str,
    /// The models of the stream.
    pub(crate) models: NamesOfModels,
    /// Clock of the run.
    pub(crate) clock: &'s Arc<dyn Clock>,
    /// Readers that outputs may lose.
    pub(crate) readers: &'s mut Vec<OutputReader>,
}

impl SinkStart<'_> {
    /// Returns where to write text. Its reader is watched, where it may lose that.
    pub(crate) fn text(&mut self) -> Box<dyn Write + Send> {
        let Some(file) = self.file.take() else {
            let (output, reader) = ReaderOutput::stdout();
            self.readers.push(reader);
            return Box::new(output);
        };
        if file.metadata().is_ok_and(|there| there.is_file()) {
            return Box::new(LineFile::new(file));
        }
        let (output, reader) = ReaderOutput::file(file, self.path);
        self.readers.push(reader);
        // Whoever reads it sees each line at once, as on standard output.
        Box::new(LineWriter::new(output))
    }
}
