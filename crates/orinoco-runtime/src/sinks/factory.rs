//! Kinds of sinks, and the start of an output.

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

/// Kind of sink, with the function that begins its outputs.
pub(crate) struct SinkFactory {
    /// Kind, with its declared properties.
    pub(crate) kind: SinkKind,
    /// Begins an output.
    pub(crate) begin: fn(SinkStart<'_>) -> Result<Box<dyn Sink>, Diagnosis>,
    /// Repairs, as far as possible, a file that an earlier run did not complete.
    pub(crate) repair: fn(&Path),
}

/// Settings with which an output begins.
pub(crate) struct SinkStart<'s> {
    /// Path as it was named; `-` is standard output.
    pub(crate) path: &'s Path,
    /// File of the output, emptied; `None` for standard output.
    pub(crate) file: Option<File>,
    /// Name of the stream.
    pub(crate) stream: &'s str,
    /// Models of the stream.
    pub(crate) models: NamesOfModels,
    /// Clock of the run.
    pub(crate) clock: &'s Arc<dyn Clock>,
    /// List of readers that outputs may lose.
    pub(crate) readers: &'s mut Vec<OutputReader>,
}

impl SinkStart<'_> {
    /// Returns the writer of a text output. If the output may lose its reader, the reader is watched.
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
        // The reader sees each line at once, as on standard output.
        Box::new(LineWriter::new(output))
    }
}
