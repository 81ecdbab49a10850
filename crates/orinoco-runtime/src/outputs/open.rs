//! Outputs of streams, opened all or none.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use orinoco_board::{Board, BoardStream, SinkSpec, StandardOutput};
use orinoco_core::Diagnosis;
use orinoco_model::Repository;
use orinoco_pipeline::{MonotonicClock, Stop};

use super::endings::check_ending;
use super::error::OutputError;
use super::file::OutputFile;
use super::reader_wait::ReaderWait;
use super::taken::TakenFiles;
use crate::sinks;

/// Treatment of existing files of an earlier run, at paths that this run is to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingOutputs {
    /// Files are overwritten: a person has just named them.
    Overwritten,
    /// Files are kept, and this run writes to new ones next to them: the run may have started unattended.
    Kept,
}

/// Output of a stream: its kind and path, and its file, or `None` for standard output.
pub(crate) type OpenSink = (SinkSpec, Option<OutputFile>);

/// Opens the sinks of streams, all of them or none. With [`ExistingOutputs::Kept`], a sink whose file was already written
/// gets the first free path of `name-2.ext`, `name-3.ext` and so on.
pub(crate) fn open_sinks<'s>(
    streams: impl IntoIterator<Item = &'s BoardStream>,
    taken: &mut TakenFiles,
    written: &TakenFiles,
    earlier: ExistingOutputs,
    readers: &ReaderWait<'_>,
) -> Result<Vec<Vec<OpenSink>>, OutputError> {
    let open = |stream: &BoardStream| -> Result<Vec<OpenSink>, OutputError> {
        let open = |sink| open_sink(sink, &stream.name, taken, written, earlier, readers);
        stream.sinks.iter().map(open).collect()
    };
    streams.into_iter().map(open).collect()
}

/// Opens the sinks of each stream of a board as a start does, and closes them again, which leaves the file system as it was.
/// Returns the result for each stream. The reader of a pipe may come later, so that none is opened.
pub fn check_sinks(board: &Board, repository: &Repository) -> Vec<Result<(), Diagnosis>> {
    let mut taken = TakenFiles::of_board(board, repository);
    let mut outputs = Vec::new();
    let (clock, stop) = (MonotonicClock::default(), Stop::default());
    let readers = ReaderWait::new(&clock, &stop);
    let mut check = |stream: &BoardStream| {
        let is_pipe = |sink: &SinkSpec| sink.path.metadata().is_ok_and(|there| there.file_type().is_fifo());
        let sinks = stream.sinks.iter().filter(|sink| !is_pipe(sink)).cloned().collect();
        let stream = BoardStream { sinks, ..stream.clone() };
        let opened =
            open_sinks([&stream], &mut taken, &TakenFiles::default(), ExistingOutputs::Kept, &readers)?;
        // All stay open until the last one is checked: two must not write to one file.
        outputs.extend(opened);
        Ok(())
    };
    board.streams.iter().map(&mut check).collect()
}

fn open_sink(
    sink: &SinkSpec,
    stream: &str,
    taken: &mut TakenFiles,
    written: &TakenFiles,
    earlier: ExistingOutputs,
    readers: &ReaderWait<'_>,
) -> Result<OpenSink, OutputError> {
    let whose = format!("another output (stream {stream}) already writes to this file");
    if sink.path == Path::new("-") {
        if let StandardOutput::Refused { cause, .. } = sink.kind.standard_output {
            return Err(OutputError::StandardOutput { kind: sink.kind, why: cause });
        }
        taken.add_open(io::stdout().as_fd(), || whose.clone());
        return Ok((sink.clone(), None));
    }
    if let Err(why) = check_name(sink) {
        // The fault that the file is in use helps more than the one about its name.
        if sink.path.is_file() {
            taken.open(&sink.path, &whose)?;
        }
        return Err(why);
    }
    let path = free_path(sink, written, earlier);
    let file = readers.open(|| taken.open(&path, &whose))?;
    Ok((SinkSpec { kind: sink.kind, path }, Some(file)))
}

/// Refuses a folder, and a name whose ending stands for another format. Pipes and devices may have any name.
fn check_name(sink: &SinkSpec) -> Result<(), OutputError> {
    match sink.path.metadata() {
        Ok(there) if there.is_dir() => Err(OutputError::Folder { path: sink.path.clone() }),
        Ok(there) if !there.is_file() => Ok(()),
        _ => check_ending(sink.kind, &sink.path),
    }
}

/// Returns the path of `sink`, or, if that was already written, the first free one of `name-2.ext`, `name-3.ext` and so on.
pub(super) fn free_path(sink: &SinkSpec, written: &TakenFiles, earlier: ExistingOutputs) -> PathBuf {
    let path = &*sink.path;
    let is_free = |path: &PathBuf| !is_written(path, written, earlier);
    if is_free(&path.to_owned()) {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let ending = path.extension().map_or_else(String::new, |ending| format!(".{}", ending.to_string_lossy()));
    let numbered = |number: usize| path.with_file_name(format!("{stem}-{number}{ending}"));
    let mut latest = path.to_owned();
    for number in 2.. {
        let next = numbered(number);
        if is_free(&next) {
            // Earlier files were repaired when this one began.
            sinks::repair(sink.kind, &latest);
            return next;
        }
        latest = next;
    }
    unreachable!("numbers do not end")
}

fn is_written(path: &Path, written: &TakenFiles, earlier: ExistingOutputs) -> bool {
    match path.metadata() {
        Ok(there) if !there.is_file() => false,
        Ok(there) if earlier == ExistingOutputs::Kept && there.len() > 0 => true,
        _ => written.has(path),
    }
}
