//! Files to which no output may write.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use orinoco_board::Board;
use orinoco_media::source_files;
use orinoco_model::Repository;
use orinoco_pipeline::{MonotonicClock, Stop};
use orinoco_uri::SourceKind;

use super::error::OutputError;
use super::file::OutputFile;
use super::reader_wait::ReaderWait;

/// Maximum depth of nested folders. Links may lead in a circle, and data sets are flatter.
const FOLDERS_DEPTH_MAX: usize = 8;

/// Identity of a file, whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Returns the identity; `None` for pipes and devices, in which nothing is overwritten.
    fn of(metadata: &Metadata) -> Option<Self> {
        metadata.is_file().then(|| Self { device: metadata.dev(), inode: metadata.ino() })
    }

    fn at(path: &Path) -> Option<Self> {
        Self::of(&path.metadata().ok()?)
    }
}

/// Files to which no output may write: those that are read, and those that another output writes.
#[derive(Clone, Debug, Default)]
pub struct TakenFiles {
    /// Reasons why files are taken, by file.
    files: BTreeMap<FileId, String>,
    /// Folders that were created for outputs, by canonical path. Outputs share them, and are dropped in any order.
    made_folders: BTreeSet<PathBuf>,
}

impl TakenFiles {
    /// Collects every file from which a board is read: its own and those that it inherits, its models' and its sources'.
    /// Missing files are skipped.
    pub fn of_board(board: &Board, repository: &Repository) -> Self {
        let mut taken = Self::default();
        for file in &board.files {
            taken.add(file, || format!("it is a file of board {} and would be overwritten", board.name));
        }
        for file in board.inference.ort_library.iter() {
            taken.add(file, || "it is the library of ONNX Runtime".to_owned());
        }
        for file in board.otlp.iter().filter_map(|otlp| otlp.headers_file.as_ref()) {
            taken.add(file, || "it has the headers for the OpenTelemetry collector".to_owned());
        }
        if let Some(cluster) = &board.cluster {
            taken.add(&cluster.list, || "it is the member list of the cluster".to_owned());
            taken.add(&cluster.key, || "it has the key of the board's seat in the cluster".to_owned());
        }
        for model in &board.models {
            taken.add_model(&model.name, &model.model, repository);
        }
        for stream in &board.streams {
            let whose = || format!("stream {} reads this file", stream.name);
            for file in source_files(&stream.source) {
                taken.add(&file, whose);
            }
            if matches!(stream.source.kind(), SourceKind::Stdin(_)) {
                taken.add_open(io::stdin().as_fd(), whose);
            }
        }
        taken
    }

    /// Adds every file from which the model `text` is read; messages call it `name`.
    pub fn add_model(&mut self, name: &str, text: &str, repository: &Repository) {
        for file in repository.files(text) {
            self.add(&file, || format!("it is a file of model {name} and would be overwritten"));
        }
    }

    /// Adds every file in a folder and in its subfolders, with the reason `why`, except drawings (`.svg`), which are never
    /// read.
    pub fn add_folder(&mut self, folder: &Path, why: &str) {
        self.add_folder_to(folder, why, FOLDERS_DEPTH_MAX);
    }

    fn add_folder_to(&mut self, folder: &Path, why: &str, depth_left: usize) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                if depth_left > 0 {
                    self.add_folder_to(&path, why, depth_left - 1);
                }
            } else if path.extension().is_none_or(|ending| ending != "svg") {
                self.add(&path, || why.to_owned());
            }
        }
    }

    /// Adds the file at `path`, with the reason why it is taken; nothing if it does not exist.
    pub fn add(&mut self, path: &Path, why: impl Fn() -> String) {
        if let Some(file) = FileId::at(path) {
            self.files.entry(file).or_insert_with(why);
        }
    }

    pub(super) fn add_open(&mut self, file: BorrowedFd<'_>, why: impl Fn() -> String) {
        let metadata = file.try_clone_to_owned().and_then(|file| File::from(file).metadata());
        if let Some(file) = metadata.ok().as_ref().and_then(FileId::of) {
            self.files.entry(file).or_insert_with(why);
        }
    }

    /// Adds all files of `others`.
    pub(crate) fn extend(&mut self, others: &Self) {
        for (file, why) in &others.files {
            self.files.entry(*file).or_insert_with(|| why.clone());
        }
        self.made_folders.extend(others.made_folders.iter().cloned());
    }

    pub(super) fn has(&self, path: &Path) -> bool {
        FileId::at(path).is_some_and(|file| self.files.contains_key(&file))
    }

    /// Opens an output, which is taken from then on; `whose` is the reason in messages about other outputs. A missing file
    /// is created with its folders, and an existing one is not changed until [`OutputFile::begin`].
    ///
    /// # Errors
    /// [`OutputError::Open`] and [`OutputError::Taken`].
    pub fn open(&mut self, path: &Path, whose: &str) -> Result<OutputFile, OutputError> {
        let output = OutputFile::open(path, &mut self.made_folders).map_err(OutputError::open(path))?;
        let metadata = output.file.metadata().map_err(OutputError::open(path))?;
        if let Some(file) = FileId::of(&metadata) {
            if let Some(why) = self.files.get(&file) {
                return Err(OutputError::Taken { path: path.to_owned(), why: why.clone() });
            }
            self.files.insert(file, whose.to_owned());
        }
        Ok(output)
    }
}

/// Opens a file that the caller writes in addition to the outputs of the board's sinks. Set the returned [`TakenFiles`] as
/// [`RunOptions::own`](crate::RunOptions::own), so that no sink writes to the file.
pub fn open_own_file(
    board: &Board,
    repository: &Repository,
    path: &Path,
    whose: &str,
) -> Result<(OutputFile, TakenFiles), OutputError> {
    let mut taken = TakenFiles::of_board(board, repository);
    let (clock, stop) = (MonotonicClock::default(), Stop::default());
    let file = ReaderWait::new(&clock, &stop).open(|| taken.open(path, whose))?;
    let mut own = TakenFiles { made_folders: taken.made_folders, ..TakenFiles::default() };
    own.add(path, || whose.to_owned());
    // Also refused if the sink would write to a numbered file instead: the results of an earlier run at this path are kept.
    for stream in &board.streams {
        if stream.sinks.iter().any(|sink| own.has(&sink.path)) {
            let why = format!("another output (stream {}) already writes to this file", stream.name);
            return Err(OutputError::Taken { path: path.to_owned(), why });
        }
    }
    Ok((file, own))
}
