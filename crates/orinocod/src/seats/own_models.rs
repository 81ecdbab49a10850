//! Models that this board shares with the other boards of its cluster.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use orinoco_api::{SharedFile, SharedModel};
use orinoco_board::Board;
use orinoco_config::FileKind;
use orinoco_core::{Diagnosis, codes};
use orinoco_model::{PortableModel, Repository, sha256_of_file};

use crate::journal::{self, Level};

/// Maximum number of files. Each is open twice, and while models are reloaded four times; the usual limit of a process is 1,024. A rank of a
/// transfer agent has that many regions at most.
pub(super) const FILES_MAX: usize = 200;

/// Files of models. Those with weights may be of any size.
const MODEL_FILE: FileKind = FileKind {
    noun: "a file of a model",
    bytes_max: u64::MAX,
    code: &codes::MODEL_COPY,
    next: "check the path and its permissions",
};

/// Models of a running board, with their files open: a file that is replaced meanwhile is still the one that runs.
#[derive(Default)]
pub(crate) struct OwnModels {
    models: Vec<OpenModel>,
}

struct OpenModel {
    name: String,
    version: Option<u32>,
    files: Vec<OpenFile>,
}

struct OpenFile {
    path: String,
    is_graph: bool,
    bytes: u64,
    file: File,
}

/// Models with the hashes of their files.
#[derive(Default)]
pub(super) struct HashedModels {
    pub(super) models: Vec<SharedModel>,
    /// The files of the models, in the same order.
    pub(super) files: Vec<Vec<File>>,
}

/// Hashes of files that have not changed since.
#[derive(Default)]
pub(super) struct Hashes(HashMap<FileState, String>);

/// State of a file on a disk. Its content is another as soon as one of these is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FileState {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl OwnModels {
    /// Opens the files of a board's models. A model that cannot be shared is logged and left out.
    pub(super) fn open(board: &Board, place: &Repository) -> Self {
        let mut own = Self::default();
        for model in board.models.iter().filter(|model| model.is_loaded()) {
            if let Err(why) = own.add(&model.model, place) {
                let text = format!("model {} is not shared with the cluster: {why}", model.name);
                journal::log(Level::Warning, &text);
            }
        }
        own
    }

    fn add(&mut self, text: &str, place: &Repository) -> Result<(), String> {
        let PortableModel { name, version, files } = place.portable(text).map_err(|why| why.to_string())?;
        if let Some(known) = self.models.iter().find(|known| known.name == name) {
            // A board may run one model several times.
            let is_same = known.files.iter().map(|file| &file.path).eq(files.iter().map(|file| &file.path));
            return match is_same {
                true => Ok(()),
                false => Err("the board runs another version of it, which is shared".to_owned()),
            };
        }
        let known_files = self.models.iter().map(|model| model.files.len()).sum::<usize>();
        if known_files + files.len() > FILES_MAX {
            return Err(format!("the models of the board have more than {FILES_MAX} files"));
        }
        let opened = files.into_iter().map(|file| {
            let opened = MODEL_FILE.open(&file.file).map_err(|why| Diagnosis::from(why).to_string())?;
            let data = opened.metadata().map_err(|why| format!("{}: {why}", file.file.display()))?;
            Ok(OpenFile { path: file.path, is_graph: file.is_graph, bytes: data.len(), file: opened })
        });
        let files = opened.collect::<Result<Vec<_>, String>>()?;
        self.models.push(OpenModel { name, version, files });
        Ok(())
    }

    /// Hashes the files, which takes seconds for large ones. A model whose files cannot be read is logged and left out.
    pub(super) fn hash(self, hashes: &mut Hashes) -> HashedModels {
        let mut hashed = HashedModels::default();
        let mut known = HashMap::new();
        for model in self.models {
            let mut hash = |file: &OpenFile| {
                let (state, sha256) = hashes.of(file)?;
                known.insert(state, sha256.clone());
                let path = file.path.clone();
                Ok(SharedFile { path, bytes: file.bytes, sha256, graph: file.is_graph })
            };
            match model.files.iter().map(&mut hash).collect::<io::Result<Vec<_>>>() {
                Ok(files) => {
                    hashed.models.push(SharedModel { name: model.name, version: model.version, files });
                    hashed.files.push(model.files.into_iter().map(|file| file.file).collect());
                }
                Err(why) => {
                    let text = format!("model {} is not shared with the cluster: {why}", model.name);
                    journal::log(Level::Warning, &text);
                }
            }
        }
        hashes.0 = known;
        hashed
    }
}

impl Hashes {
    fn of(&self, file: &OpenFile) -> io::Result<(FileState, String)> {
        let data = file.file.metadata()?;
        let state = FileState {
            device: data.dev(),
            inode: data.ino(),
            bytes: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
        };
        let hash = match self.0.get(&state) {
            Some(hash) => hash.clone(),
            None => sha256_of_file(file.file.try_clone()?)?,
        };
        Ok((state, hash))
    }
}
