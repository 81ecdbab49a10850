//! Files that no output may be.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use orinoco_board::Board;
use orinoco_core::{Diagnosis, WithSubject, codes};
use orinoco_media::source_files;
use orinoco_model::Repository;
use orinoco_uri::SourceKind;

use super::file::{NEXT, OutputFile};

/// Folders in one another. Links may lead in a circle, and data sets are flatter.
const FOLDERS_DEPTH_MAX: usize = 8;

/// A file, whatever its paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// `None` of pipes and devices: nothing is lost in them.
    fn of(metadata: &Metadata) -> Option<Self> {
        metadata.is_file().then(|| Self { device: metadata.dev(), inode: metadata.ino() })
    }

    fn at(path: &Path) -> Option<Self> {
        Self::of(&path.metadata().ok()?)
    }
}

/// Files that no output may be: those that are read, and those that are written already.
#[derive(Clone, Debug, Default)]
pub struct TakenFiles {
    /// Each with why it is taken.
    files: BTreeMap<FileId, String>,
    /// Folders that were made for outputs, in their canonical spelling. Outputs share them, and are dropped in any order.
    made_folders: BTreeSet<PathBuf>,
}

impl TakenFiles {
    /// Every file that a board is read from: its own and those that it inherits, its models' and its sources'. Files that
    /// are not there are left out.
    pub fn of_board(board: &Board, repository: &Repository) -> Self {
        let mut taken = Self::default();
        for file in &board.files {
            taken.add(file, || format!("it is a file of board {} and would be overwritten", board.name));
        }
        for file in board.inference.ort_library.iter() {
            taken.add(file, || "it is the library of ONNX Runtime".to_owned());
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

    /// Adds every file that the model `text` is read from; messages call it `name`.
    pub fn add_model(&mut self, name: &str, text: &str, repository: &Repository) {
        for file in repository.files(text) {
            self.add(&file, || format!("it is a file of model {name} and would be overwritten"));
        }
    }

    /// Adds every file in a folder, for which `why` holds, but for drawings: nobody reads those.
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

    /// Adds the file at `path`, and why it is taken; nothing where there is none.
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

    /// Adds all of `others`.
    pub(crate) fn extend(&mut self, others: &Self) {
        for (file, why) in &others.files {
            self.files.entry(*file).or_insert_with(|| why.clone());
        }
        self.made_folders.extend(others.made_folders.iter().cloned());
    }

    pub(super) fn has(&self, path: &Path) -> bool {
        FileId::at(path).is_some_and(|file| self.files.contains_key(&file))
    }

    /// Opens an output, which is taken from then on: `whose` is what others are told. It is created with its folders where
    /// it is not there, and else stays as it is until [`OutputFile::begin`].
    ///
    /// # Errors
    /// `E0501` where it cannot be written, or is taken.
    pub fn open(&mut self, path: &Path, whose: &str) -> Result<OutputFile, Diagnosis> {
        let output = OutputFile::open(path, &mut self.made_folders);
        let output = output.about(&codes::SINK_OPEN, path.display(), NEXT)?;
        let metadata = output.file.metadata().about(&codes::SINK_OPEN, path.display(), NEXT)?;
        if let Some(file) = FileId::of(&metadata) {
            if let Some(why) = self.files.get(&file) {
                return Err(Diagnosis::new(&codes::SINK_OPEN, path.display(), why, "write to another path"));
            }
            self.files.insert(file, whose.to_owned());
        }
        Ok(output)
    }
}

/// Opens a file that the caller writes besides those of the board's sinks. Hand the [`TakenFiles`] to
/// [`Runtime::prepare_with`](crate::Runtime::prepare_with), so that no sink writes there.
pub fn open_own_file(
    board: &Board,
    repository: &Repository,
    path: &Path,
    whose: &str,
) -> Result<(OutputFile, TakenFiles), Diagnosis> {
    let mut taken = TakenFiles::of_board(board, repository);
    let file = taken.open(path, whose)?;
    let mut own = TakenFiles { made_folders: taken.made_folders, ..TakenFiles::default() };
    own.add(path, || whose.to_owned());
    // Also where the sink is going to write to a numbered file: what an earlier run recorded here stays.
    for stream in &board.streams {
        if stream.sinks.iter().any(|sink| own.has(&sink.path)) {
            let cause = format!("another output (stream {}) already writes to this file", stream.name);
            return Err(Diagnosis::new(&codes::SINK_OPEN, path.display(), cause, "write to another path"));
        }
    }
    Ok((file, own))
}
