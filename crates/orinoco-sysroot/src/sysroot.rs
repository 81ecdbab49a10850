use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::directory;
use crate::error::{FILE_BYTES_MAX, ReadError, ReadErrorKind};
use crate::recording::{ArchiveError, Recording};

/// Reason why a path is not the root of a board.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The system's answer.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is a device, a socket or a pipe.
    #[error("it is neither a folder nor a file")]
    Type,
    /// The file is no recording.
    #[error("it is no recording of a board: {0}")]
    Archive(#[from] ArchiveError),
}

/// Root of the files that describe a board. Paths are absolute and as on the board (`/sys/class/hwmon`); symbolic links
/// stay inside the root. Cloning it is cheap.
#[derive(Clone)]
pub struct Sysroot(Root);

#[derive(Clone)]
enum Root {
    Directory(Arc<Path>),
    Recording(Arc<Recording>, Arc<dyn Fn() -> Duration + Send + Sync>),
}

impl Sysroot {
    /// Returns the root of this machine.
    pub fn host() -> Self {
        Self::at("/")
    }

    /// Returns the root of the board that the directory `root` describes.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self(Root::Directory(root.into().into()))
    }

    /// Opens the root that `path` names: a folder, or the archive of a recording, which is replayed as by
    /// [`replay`](Self::replay).
    ///
    /// # Errors
    /// Says why it is neither.
    pub fn open(path: &Path, at: impl Fn() -> Duration + Send + Sync + 'static) -> Result<Self, OpenError> {
        // Opening a pipe would wait for its writer, so the type is asked first.
        let kind = fs::metadata(path)?.file_type();
        if kind.is_dir() {
            return Ok(Self::at(path.canonicalize()?));
        }
        if !kind.is_file() {
            return Err(OpenError::Type);
        }
        Ok(Self::replay(Recording::load(File::open(path)?)?, at))
    }

    /// Returns the root of a board that was recorded: each read gives what the board gave at the time that `at` returns,
    /// counted from the start of the recording. After its end the last values stay.
    pub fn replay(recording: Recording, at: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Root::Recording(Arc::new(recording), Arc::new(at)))
    }

    /// Returns the directory that is the root; `None` for a recording.
    pub fn directory(&self) -> Option<&Path> {
        match &self.0 {
            Root::Directory(root) => Some(root),
            Root::Recording(..) => None,
        }
    }

    /// Returns whether this is the root of this machine, on which values change by themselves.
    pub fn is_host(&self) -> bool {
        self.directory() == Some(Path::new("/"))
    }

    /// Returns the bytes of a file.
    ///
    /// # Errors
    /// Says which file gave no value, and why; a file longer than [`FILE_BYTES_MAX`](crate::FILE_BYTES_MAX) is refused.
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, ReadError> {
        self.bytes_within(path, FILE_BYTES_MAX)
    }

    /// Returns the bytes of a file that may be longer than those of drivers, such as a list of packages.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes), with `bytes_max` as the greatest length.
    pub fn bytes_within(&self, path: &str, bytes_max: u64) -> Result<Vec<u8>, ReadError> {
        let bytes = match &self.0 {
            Root::Directory(root) => directory::read(root, path, bytes_max),
            Root::Recording(..) => self.recorded(path).map(|bytes| bytes.to_vec()),
        };
        bytes.map_err(|kind| ReadError { path: path.into(), kind })
    }

    /// Returns the text of a file without the white space and the NUL characters at both ends. Strings of a device tree end
    /// with NUL, attributes of a driver with a new line.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes), and if it is not UTF-8.
    pub fn text(&self, path: &str) -> Result<String, ReadError> {
        let text = String::from_utf8(self.bytes(path)?)
            .map_err(|_| ReadError { path: path.into(), kind: ReadErrorKind::NotText })?;
        Ok(text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned())
    }

    /// Returns the strings of a property of the device tree, or of another list of texts that end with NUL.
    ///
    /// # Errors
    /// As [`text`](Self::text).
    pub fn texts(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let text = self.text(path)?;
        Ok(text.split('\0').map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned).collect())
    }

    /// Returns the whole number in a file.
    ///
    /// # Errors
    /// As [`text`](Self::text), and if the text is not a number of this type.
    pub fn number<N: FromStr>(&self, path: &str) -> Result<N, ReadError> {
        let text = self.text(path)?;
        let kind = || ReadErrorKind::NotANumber(text.chars().take(40).collect());
        text.parse().map_err(|_| ReadError { path: path.into(), kind: kind() })
    }

    /// Returns the names in a folder, sorted.
    ///
    /// # Errors
    /// Says why the folder cannot be read.
    pub fn entries(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let names = match &self.0 {
            Root::Directory(root) => directory::entries(root, path),
            Root::Recording(recording, _) => recording.entries(path),
        };
        names.map_err(|kind| ReadError { path: path.into(), kind })
    }

    /// Returns the target of a symbolic link, as it is written there.
    ///
    /// # Errors
    /// Says why, also if it is not a link.
    pub fn link(&self, path: &str) -> Result<String, ReadError> {
        let target = match &self.0 {
            Root::Directory(root) => directory::link(root, path),
            Root::Recording(recording, _) => recording.link(path),
        };
        target.map_err(|kind| ReadError { path: path.into(), kind })
    }

    /// Returns the path on this machine to which a path of the root leads, symbolic links resolved inside the root. What is there
    /// is not looked at. It is for the rare program that writes: this crate does not.
    ///
    /// # Errors
    /// A recording has no files ([`ReadErrorKind::NotRecorded`]), and links may form a loop.
    pub fn real_path(&self, path: &str) -> Result<PathBuf, ReadError> {
        let real =
            self.directory().ok_or(ReadErrorKind::NotRecorded).and_then(|root| directory::inside(root, path));
        real.map_err(|kind| ReadError { path: path.into(), kind })
    }

    /// Returns what the board said in a file at this time, if this root is a recording.
    pub(crate) fn recorded(&self, path: &str) -> Result<Arc<[u8]>, ReadErrorKind> {
        match &self.0 {
            Root::Directory(_) => Err(ReadErrorKind::NotRecorded),
            Root::Recording(recording, at) => recording.content(path, at()),
        }
    }
}

impl Default for Sysroot {
    fn default() -> Self {
        Self::host()
    }
}

impl fmt::Debug for Sysroot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Root::Directory(root) => f.debug_tuple("Sysroot").field(root).finish(),
            Root::Recording(recording, _) => f.debug_tuple("Sysroot").field(recording).finish(),
        }
    }
}
