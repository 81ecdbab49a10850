mod archive;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{FILE_BYTES_MAX, ReadErrorKind};
use crate::path::resolve;

pub use archive::{ArchiveError, ArchiveErrorKind, Packing};

/// Greatest number of files, folders and links of a recording.
pub const NODES_MAX: usize = 1 << 16;

/// Greatest number of changes of values in a recording: 300 sensors at 10 Hz for almost 6 minutes.
pub const CHANGES_MAX: usize = 1 << 20;

/// Greatest memory of a recording, in bytes, by the estimate of [`Recording::memory_bytes`]. A board's tree takes about
/// 1 MiB, and each change of a value about 100 bytes.
pub const RECORDING_BYTES_MAX: usize = 128 << 20;

/// Estimated memory of an entry of the tree and of a name in a folder, in addition to their texts.
const NODE_BYTES: usize = 128;
/// Estimated memory of a content, in addition to its bytes.
const CHANGE_BYTES: usize = 64;

/// Greatest length of a path in a recording, in bytes (`PATH_MAX`, path_resolution(7)).
pub(crate) const PATH_BYTES_MAX: usize = 4096;

/// Files of a board and the values that they gave over time. It is read through [`Sysroot::replay`], written by
/// [`save`](Self::save) and read again by [`load`](Self::load).
///
/// [`Sysroot::replay`]: crate::Sysroot::replay
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    nodes: BTreeMap<String, Node>,
    left_out: Vec<String>,
    /// Whether nothing exists but what is recorded, as in a synthetic board.
    is_complete: bool,
    duration: Duration,
    changes: usize,
    bytes: usize,
}

/// Entry of a recorded tree, by its path without symbolic links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// Folder with its names, where they were read; a folder on the way to a file has none.
    Directory(Option<Result<Vec<String>, ReadErrorKind>>),
    /// File with its contents over time, in order of time. The first one also counts before its time.
    File(Vec<Change>),
    /// Symbolic link, with its target as it is written there.
    Link(String),
    /// Path that could not be looked at, such as one that does not exist.
    Unreadable(ReadErrorKind),
}

/// Content of a file from a time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) at: Duration,
    pub(crate) content: Result<Arc<[u8]>, ReadErrorKind>,
}

/// Reason why something cannot be added to a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The path is not absolute, has `.`, `..` or an empty name in it, or is longer than 4096 bytes.
    #[error("is not an absolute path without `.` and `..`")]
    Path,
    /// Something above the path is a file, a link or unreadable.
    #[error("lies below `{0}`, which is not a folder")]
    NotBelowAFolder(String),
    /// The path is there already, as something else.
    #[error("is in the recording already")]
    Twice,
    /// The time is before that of the last content of the file.
    #[error("has a value that is older than the one before it")]
    OutOfOrder,
    /// The content is longer than [`FILE_BYTES_MAX`](crate::FILE_BYTES_MAX).
    #[error("is larger than 1 MiB")]
    TooLarge,
    /// A bound of the whole recording is reached: [`NODES_MAX`], [`CHANGES_MAX`] or [`RECORDING_BYTES_MAX`].
    #[error("exceeds the limits of a recording: 65536 files, 1048576 changes of values, 128 MiB")]
    Full,
}

impl Recording {
    /// Creates the recording of a board on which there is nothing else than what is added to it. With
    /// [`add_value`](Self::add_value) it is a synthetic board whose values change, or fail, at set times.
    pub fn synthetic() -> Self {
        Self { is_complete: true, ..Self::default() }
    }

    /// Adds a file whose content never changes.
    ///
    /// # Errors
    /// Says why it cannot be added.
    pub fn add_file(&mut self, path: &str, bytes: impl AsRef<[u8]>) -> Result<(), AddError> {
        self.add_value(path, Duration::ZERO, Ok(bytes.as_ref()))
    }

    /// Adds what a file gives from the time `at` on. The first value also counts before its time.
    ///
    /// # Errors
    /// Says why it cannot be added.
    pub fn add_value(
        &mut self,
        path: &str,
        at: Duration,
        content: Result<&[u8], ReadErrorKind>,
    ) -> Result<(), AddError> {
        let length = content.as_ref().map_or(0, |bytes| bytes.len());
        if length as u64 > FILE_BYTES_MAX {
            return Err(AddError::TooLarge);
        }
        if self.changes >= CHANGES_MAX || self.bytes + CHANGE_BYTES + length > RECORDING_BYTES_MAX {
            return Err(AddError::Full);
        }
        let change = Change { at, content: content.map(Arc::from) };
        let is_added = match self.nodes.get_mut(path) {
            Some(Node::File(changes)) => append(changes, change)?,
            Some(_) => return Err(AddError::Twice),
            None => {
                self.insert(path, Node::File(vec![Change { at: Duration::ZERO, ..change }]))?;
                true
            }
        };
        self.duration = self.duration.max(at);
        if is_added {
            self.changes += 1;
            self.bytes += CHANGE_BYTES + length;
        }
        Ok(())
    }

    /// Adds a symbolic link.
    ///
    /// # Errors
    /// Says why it cannot be added.
    pub fn add_link(&mut self, path: &str, target: &str) -> Result<(), AddError> {
        if target.is_empty() || target.len() > PATH_BYTES_MAX {
            return Err(AddError::Path);
        }
        self.charge(target.len())?;
        self.insert(path, Node::Link(target.to_owned()))
    }

    /// Adds a folder whose names are not known, or nothing if the folder is there.
    ///
    /// # Errors
    /// Says why it cannot be added.
    pub fn add_directory(&mut self, path: &str) -> Result<(), AddError> {
        match self.nodes.get(path) {
            Some(Node::Directory(_)) => Ok(()),
            _ => self.insert(path, Node::Directory(None)),
        }
    }

    /// Adds a folder with the names in it, or the reason why they cannot be read.
    pub(crate) fn add_listing(
        &mut self,
        path: &str,
        names: Result<Vec<String>, ReadErrorKind>,
    ) -> Result<(), AddError> {
        self.add_directory(path)?;
        if !matches!(self.nodes.get(path), Some(Node::Directory(None))) {
            return Err(AddError::Twice);
        }
        self.charge(names.iter().flatten().map(|name| NODE_BYTES + name.len()).sum())?;
        self.nodes.insert(path.to_owned(), Node::Directory(Some(names)));
        Ok(())
    }

    /// Adds a path that could not be looked at.
    pub(crate) fn add_unreadable(&mut self, path: &str, kind: ReadErrorKind) -> Result<(), AddError> {
        match self.nodes.get(path) {
            Some(_) => Ok(()),
            None => self.insert(path, Node::Unreadable(kind)),
        }
    }

    /// Adds a line to the list of what was left out.
    pub(crate) fn add_left_out(&mut self, line: String) {
        if self.left_out.len() < NODES_MAX {
            self.left_out.push(line);
        }
    }

    /// Sets the time of the last sample, which can be later than the last change.
    pub(crate) fn extend_to(&mut self, at: Duration) {
        self.duration = self.duration.max(at);
    }

    pub(crate) fn set_complete(&mut self, is_complete: bool) {
        self.is_complete = is_complete;
    }

    /// Returns the paths and reasons of what the recorder left out for privacy, one sentence each.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Returns the time from the start of the recording to its last sample.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Returns the number of files.
    pub fn files(&self) -> usize {
        self.nodes.values().filter(|node| matches!(node, Node::File(_))).count()
    }

    /// Returns the number of contents of all files together, the first of each included.
    pub fn changes(&self) -> usize {
        self.changes
    }

    /// Returns an estimate of the memory that the recording takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(crate) fn nodes(&self) -> &BTreeMap<String, Node> {
        &self.nodes
    }

    /// Adds a node, and the folders above it that are not there yet.
    fn insert(&mut self, path: &str, node: Node) -> Result<(), AddError> {
        if !is_plain(path) {
            return Err(AddError::Path);
        }
        if self.nodes.contains_key(path) {
            return Err(AddError::Twice);
        }
        for (end, _) in path.match_indices('/').skip(1) {
            let parent = &path[..end];
            match self.nodes.get(parent) {
                Some(Node::Directory(_)) => {}
                Some(_) => return Err(AddError::NotBelowAFolder(parent.to_owned())),
                None => self.put(parent, Node::Directory(None))?,
            }
        }
        self.put(path, node)
    }

    fn put(&mut self, path: &str, node: Node) -> Result<(), AddError> {
        if self.nodes.len() >= NODES_MAX {
            return Err(AddError::Full);
        }
        self.charge(NODE_BYTES + path.len())?;
        self.nodes.insert(path.to_owned(), node);
        Ok(())
    }

    /// Counts memory that is going to be used.
    fn charge(&mut self, bytes: usize) -> Result<(), AddError> {
        if self.bytes + bytes > RECORDING_BYTES_MAX {
            return Err(AddError::Full);
        }
        self.bytes += bytes;
        Ok(())
    }
}

/// Reads, as [`Sysroot`](crate::Sysroot) offers them.
impl Recording {
    /// Returns the content that the file `path` has at the time `at`.
    pub(crate) fn content(&self, path: &str, at: Duration) -> Result<Arc<[u8]>, ReadErrorKind> {
        match self.node(&self.resolved(path)?)? {
            Node::Directory(_) => Err(ReadErrorKind::WrongType),
            Node::File(changes) => {
                let after = changes.partition_point(|change| change.at <= at);
                changes[after.max(1) - 1].content.clone()
            }
            Node::Link(_) => Err(ReadErrorKind::LinkLoop),
            Node::Unreadable(kind) => Err(kind.clone()),
        }
    }

    /// Returns the names in the folder `path`, sorted.
    pub(crate) fn entries(&self, path: &str) -> Result<Vec<String>, ReadErrorKind> {
        let path = self.resolved(path)?;
        if path == "/" {
            return if self.is_complete { Ok(self.children("")) } else { Err(ReadErrorKind::NotRecorded) };
        }
        match self.node(&path)? {
            Node::Directory(Some(names)) => names.clone(),
            Node::Directory(None) if self.is_complete => Ok(self.children(&path)),
            Node::Directory(None) => Err(ReadErrorKind::NotRecorded),
            Node::File(_) | Node::Link(_) => Err(ReadErrorKind::WrongType),
            Node::Unreadable(kind) => Err(kind.clone()),
        }
    }

    /// Returns the target of the symbolic link `path`.
    pub(crate) fn link(&self, path: &str) -> Result<String, ReadErrorKind> {
        let (parent, name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("/", ""));
        let parent = self.resolved(parent)?;
        let path = format!("{}/{name}", parent.trim_end_matches('/'));
        match self.node(&path)? {
            Node::Link(target) => Ok(target.clone()),
            Node::Unreadable(kind) => Err(kind.clone()),
            Node::Directory(_) | Node::File(_) => Err(ReadErrorKind::WrongType),
        }
    }

    /// Returns the path without symbolic links to which `path` leads.
    fn resolved(&self, path: &str) -> Result<String, ReadErrorKind> {
        let target = |inside: &Path| match self.nodes.get(&absolute(inside)) {
            Some(Node::Link(target)) => Some(PathBuf::from(target)),
            _ => None,
        };
        Ok(absolute(&resolve(Path::new(path), target)?))
    }

    /// Returns the node at a path without links, or the reason why there is none: the first folder above it that knows its
    /// names tells whether it exists.
    fn node(&self, path: &str) -> Result<&Node, ReadErrorKind> {
        if path == "/" {
            return Err(ReadErrorKind::WrongType);
        }
        if let Some(node) = self.nodes.get(path) {
            return Ok(node);
        }
        let (mut parent, mut name) = path.rsplit_once('/').unwrap_or(("", path));
        loop {
            match self.nodes.get(parent) {
                Some(Node::Directory(Some(Ok(names)))) if names.iter().any(|known| known == name) => {
                    return Err(ReadErrorKind::NotRecorded);
                }
                Some(Node::Directory(Some(Ok(_)))) => return Err(ReadErrorKind::Absent),
                Some(Node::Directory(Some(Err(kind))) | Node::Unreadable(kind)) => return Err(kind.clone()),
                Some(Node::File(_)) => return Err(ReadErrorKind::WrongType),
                Some(Node::Directory(None) | Node::Link(_)) | None => {}
            }
            match parent.rsplit_once('/') {
                Some(above) => (parent, name) = above,
                None if self.is_complete => return Err(ReadErrorKind::Absent),
                None => return Err(ReadErrorKind::NotRecorded),
            }
        }
    }

    /// Returns the names of the recorded nodes in the folder `path`.
    fn children(&self, path: &str) -> Vec<String> {
        let start = format!("{path}/");
        let below = self.nodes.range(start.clone()..).take_while(|(path, _)| path.starts_with(&start));
        let names = below.filter_map(|(path, _)| path.strip_prefix(&start));
        names.filter(|name| !name.contains('/')).map(str::to_owned).collect()
    }
}

/// Whether a path is absolute and has no `.`, `..`, empty name or NUL.
pub(crate) fn is_plain(path: &str) -> bool {
    let names = path.strip_prefix('/').unwrap_or_default();
    path.len() <= PATH_BYTES_MAX
        && !path.contains('\0')
        && names.split('/').all(|name| !matches!(name, "" | "." | ".."))
}

/// Returns the path on the board of a path that is relative to the root.
fn absolute(inside: &Path) -> String {
    format!("/{}", inside.display())
}

/// Adds a content to those of a file, unless it is the one that the file has already. Returns whether it did.
fn append(changes: &mut Vec<Change>, change: Change) -> Result<bool, AddError> {
    let last = changes.last().expect("a file has a content");
    if change.at < last.at {
        return Err(AddError::OutOfOrder);
    }
    let is_new = change.content != last.content;
    if is_new {
        changes.push(change);
    }
    Ok(is_new)
}
