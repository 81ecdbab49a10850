use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::str::FromStr;

use rustix::io::Errno;

use crate::error::{FILE_BYTES_MAX, ReadErrorKind};
use crate::sysroot::Sysroot;

/// Greatest length of a number with its white space, in bytes. The longest attribute of a driver that holds one number,
/// a signed 64-bit one, takes 21.
const NUMBER_BYTES_MAX: usize = 64;

/// Bytes by which the buffer of a file grows; a page, which is what the kernel formats at a time.
const PAGE_BYTES: usize = 4096;

/// File of a [`Sysroot`] that is read again and again: it stays open between two reads, and each read is one system call at
/// offset 0, at which the kernel asks the driver again (sysfs.rst, "Reading/Writing Attribute Data"). Where the device went
/// away, the file is opened again, so a driver that was reloaded under the same path is found again.
#[derive(Debug)]
pub struct Attribute {
    sysroot: Sysroot,
    path: Box<str>,
    file: Option<File>,
    is_kept_open: bool,
}

impl Attribute {
    /// Creates an attribute. Nothing is opened before the first read.
    pub fn new(sysroot: &Sysroot, path: impl Into<Box<str>>) -> Self {
        Self { sysroot: sysroot.clone(), path: path.into(), file: None, is_kept_open: true }
    }

    /// Closes the file after each read: slower, and without a file descriptor in between.
    #[must_use]
    pub fn opened_for_each_read(mut self) -> Self {
        self.is_kept_open = false;
        self
    }

    /// Returns the path on the board.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reads the whole file into `buffer`, whose contents are replaced and whose capacity is used again.
    ///
    /// # Errors
    /// Says why it gave no value, as [`Sysroot::bytes`] does.
    pub fn bytes<'b>(&mut self, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], ReadErrorKind> {
        buffer.clear();
        if self.sysroot.directory().is_none() {
            buffer.extend_from_slice(&self.sysroot.recorded(&self.path)?);
            return Ok(buffer);
        }
        self.with_file(|file| read_whole(file, buffer))?;
        if buffer.len() as u64 > FILE_BYTES_MAX {
            buffer.clear();
            return Err(ReadErrorKind::TooLarge);
        }
        Ok(buffer)
    }

    /// Reads the whole file as [`bytes`](Self::bytes) does, and returns its text without the white space at both ends.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes), and if it is not UTF-8.
    pub fn text<'b>(&mut self, buffer: &'b mut Vec<u8>) -> Result<&'b str, ReadErrorKind> {
        let text = std::str::from_utf8(self.bytes(buffer)?).map_err(|_| ReadErrorKind::NotText)?;
        Ok(trim(text))
    }

    /// Reads the whole number in the file. Drivers of L4T R32 write a unit after some numbers (`32760 ma`), which is ignored.
    ///
    /// # Errors
    /// Says why it gave no number. A text that does not begin with one is an error.
    pub fn number<N: FromStr>(&mut self) -> Result<N, ReadErrorKind> {
        let mut start = [0; NUMBER_BYTES_MAX];
        let length = if self.sysroot.directory().is_none() {
            let bytes = self.sysroot.recorded(&self.path)?;
            let length = bytes.len().min(start.len());
            start[..length].copy_from_slice(&bytes[..length]);
            length
        } else {
            self.with_file(|file| file.read_at(&mut start, 0))?
        };
        let text = std::str::from_utf8(&start[..length]).map_err(|_| ReadErrorKind::NotText)?;
        let is_cut_off = length == NUMBER_BYTES_MAX;
        let word = trim(text).split_whitespace().next().unwrap_or_default();
        match word.parse() {
            Ok(number) if !is_cut_off => Ok(number),
            _ => Err(ReadErrorKind::NotANumber(trim(text).chars().take(40).collect())),
        }
    }

    /// Calls `read` with the open file, and a second time with the file opened again if it is not the board's file any more.
    fn with_file<T>(&mut self, mut read: impl FnMut(&File) -> io::Result<T>) -> Result<T, ReadErrorKind> {
        let kept = self.file.take().filter(|file| !self.is_replaced(file));
        if let Some(file) = kept {
            let value = read(&file);
            if !value.as_ref().is_err_and(is_gone) {
                self.file = Some(file);
                return value.map_err(|error| ReadErrorKind::from(&error));
            }
        }
        let directory = self.sysroot.directory().expect("a recording has no files to open");
        let file = crate::directory::open(directory, &self.path)?;
        let value = read(&file);
        if self.is_kept_open && !value.as_ref().is_err_and(is_gone) {
            self.file = Some(file);
        }
        value.map_err(|error| ReadErrorKind::from(&error))
    }

    /// Whether the file was deleted or replaced by another. A driver's file answers `ENODEV` then; a file of a directory that
    /// stands for a board does not, and would give its last value without limit.
    fn is_replaced(&self, file: &File) -> bool {
        !self.sysroot.is_host() && file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }
}

/// Whether an open file has lost its device.
fn is_gone(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::NODEV | Errno::NXIO | Errno::NOENT | Errno::STALE))
}

/// Reads a file from its start to its end, or to one byte more than is read of any file.
fn read_whole(file: &File, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    let mut filled = 0;
    loop {
        if buffer.len() < filled + PAGE_BYTES {
            buffer.resize((filled + PAGE_BYTES).max(buffer.capacity()), 0);
        }
        let read = match file.read_at(&mut buffer[filled..], filled as u64) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        filled += read;
        if read == 0 || filled as u64 > FILE_BYTES_MAX {
            buffer.truncate(filled);
            return Ok(());
        }
    }
}

fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || c == '\0')
}
