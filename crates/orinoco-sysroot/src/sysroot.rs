use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::directory;
use crate::error::{ReadError, ReadErrorKind};

/// Root of the files that describe a board. Paths are absolute and as on the board (`/sys/class/hwmon`); symbolic links
/// stay inside the root. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Sysroot {
    root: Arc<Path>,
}

impl Sysroot {
    /// Returns the root of this machine.
    pub fn host() -> Self {
        Self::at("/")
    }

    /// Returns the root of the board that the directory `root` describes.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into().into() }
    }

    /// Returns the directory that is the root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the bytes of a file.
    ///
    /// # Errors
    /// Says which file gave no value, and why; a file longer than [`FILE_BYTES_MAX`](crate::FILE_BYTES_MAX) is refused.
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, ReadError> {
        directory::read(&self.root, path).map_err(|kind| ReadError { path: path.into(), kind })
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
        directory::entries(&self.root, path).map_err(|kind| ReadError { path: path.into(), kind })
    }

    /// Returns the target of a symbolic link, as it is written there.
    ///
    /// # Errors
    /// Says why, also if it is not a link.
    pub fn link(&self, path: &str) -> Result<String, ReadError> {
        directory::link(&self.root, path).map_err(|kind| ReadError { path: path.into(), kind })
    }
}

impl Default for Sysroot {
    fn default() -> Self {
        Self::host()
    }
}
