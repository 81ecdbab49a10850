//! Whole files: read within a bound, written whole or not at all.

use std::fs::{File, FileType, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::Utf8Error;

use orinoco_core::{Code, Diagnosis, codes};
use rustix::fs::OFlags;

/// Mode of a new file before the process's umask, as everywhere else.
const MODE_NEW: u32 = 0o666;

/// Kind of file that is read as a whole: its name, its size limit, and the faults of a file that cannot be read.
///
/// Only regular files are read. A pipe may never have a writer, and a device may never end, so both are refused before
/// anything is read from them. The limit holds for the bytes read, not for the size that the file system gives: files
/// grow, and those of `/proc` have a size of 0.
#[derive(Clone, Copy, Debug)]
pub struct FileKind {
    /// Name of the kind with its article: "a board or model file".
    pub noun: &'static str,
    /// Maximum size of a file of this kind, in bytes.
    pub bytes_max: u64,
    /// Error code of a file that is too large or is not UTF-8.
    pub code: &'static Code,
    /// Next step in faults of a file that cannot be opened or read.
    pub next: &'static str,
}

impl FileKind {
    /// Board and model files. They have a few kilobytes; a larger file is the wrong one.
    pub const DESCRIPTION: Self = Self {
        noun: "a board or model file",
        bytes_max: 1 << 20,
        code: &codes::SYNTAX,
        next: "check the path",
    };

    /// Opens the regular file at `path` without waiting for anyone.
    ///
    /// # Errors
    /// All but [`ReadErrorKind::NotText`].
    pub fn open(&self, path: &Path) -> Result<File, ReadError> {
        self.open_regular(path).map_err(|kind| self.error(path, kind))
    }

    /// Reads the regular file at `path`.
    ///
    /// # Errors
    /// Those of [`FileKind::open`].
    pub fn read(&self, path: &Path) -> Result<Vec<u8>, ReadError> {
        self.read_regular(path).map_err(|kind| self.error(path, kind))
    }

    /// Reads the regular file at `path` as text.
    ///
    /// # Errors
    /// Those of [`FileKind::open`], and [`ReadErrorKind::NotText`].
    pub fn read_text(&self, path: &Path) -> Result<String, ReadError> {
        String::from_utf8(self.read(path)?)
            .map_err(|error| self.error(path, ReadErrorKind::NotText(error.utf8_error())))
    }

    fn error(&self, path: &Path, kind: ReadErrorKind) -> ReadError {
        ReadError { path: path.to_owned(), file: *self, kind }
    }

    fn open_regular(&self, path: &Path) -> Result<File, ReadErrorKind> {
        let regular = |found: FileType| match found.is_file() {
            true => Ok(()),
            false => Err(ReadErrorKind::NotAFile(found)),
        };
        // The type is checked before the file is opened, because opening a device may do something; and again
        // afterwards, because by then the path may be another file. Non-blocking mode is for a pipe that appeared in
        // between.
        regular(std::fs::metadata(path)?.file_type())?;
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
        let metadata = file.metadata()?;
        regular(metadata.file_type())?;
        if metadata.len() > self.bytes_max { Err(ReadErrorKind::TooLarge) } else { Ok(file) }
    }

    fn read_regular(&self, path: &Path) -> Result<Vec<u8>, ReadErrorKind> {
        let mut file = self.open_regular(path)?;
        let size = file.metadata()?.len().min(self.bytes_max);
        let mut bytes = Vec::new();
        // A file too large for a small board's memory is an error, and does not end the process.
        let size = usize::try_from(size).map_err(|_| ReadErrorKind::TooLarge)?;
        bytes.try_reserve_exact(size).map_err(io::Error::other)?;
        (&mut file).take(self.bytes_max).read_to_end(&mut bytes)?;
        // A byte more is beyond the limit: the file grew, or the system gave the wrong size.
        match file.read(&mut [0])? {
            0 => Ok(bytes),
            _ => Err(ReadErrorKind::TooLarge),
        }
    }
}

/// File that was not opened or read.
#[derive(Debug)]
pub struct ReadError {
    /// Path of the file.
    pub path: PathBuf,
    /// Kind of file that was expected.
    pub file: FileKind,
    /// Reason why it was not read.
    pub kind: ReadErrorKind,
}

/// Reason why a file was not opened or read.
#[derive(Debug)]
pub enum ReadErrorKind {
    /// The file system reported an error: the path does not exist, this user may not read it, or the disk failed.
    Io(io::Error),
    /// A folder, pipe, socket or device is at the path.
    NotAFile(FileType),
    /// The file is larger than [`FileKind::bytes_max`].
    TooLarge,
    /// The file is not UTF-8 text.
    NotText(Utf8Error),
}

impl From<io::Error> for ReadErrorKind {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ReadError> for Diagnosis {
    fn from(error: ReadError) -> Self {
        Self::from(&error)
    }
}

impl From<&ReadError> for Diagnosis {
    /// A file that cannot be opened is `E0101`; one with the wrong content has the code of its kind.
    fn from(ReadError { path, file, kind }: &ReadError) -> Self {
        let subject = path.display();
        let other = || format!("name {}", file.noun);
        match kind {
            ReadErrorKind::Io(error) => Self::new(&codes::FILE_MISSING, subject, error, file.next),
            ReadErrorKind::NotAFile(found) => {
                Self::new(&codes::FILE_MISSING, subject, type_cause(*found), other())
            }
            ReadErrorKind::TooLarge => {
                let cause = format!("it is larger than {} MiB", file.bytes_max >> 20);
                Self::new(file.code, subject, cause, other())
            }
            ReadErrorKind::NotText(error) => Self::new(file.code, subject, error, "save it as UTF-8 text"),
        }
    }
}

/// Returns the reason why something of this type, which is not a regular file, is not read.
fn type_cause(found: FileType) -> &'static str {
    if found.is_dir() {
        "it is a folder, not a file"
    } else if found.is_fifo() || found.is_socket() {
        "it is a pipe or socket, not a file"
    } else {
        "it is a device, not a file"
    }
}

/// Treatment of a file that already exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Keeps it: writing fails with [`io::ErrorKind::AlreadyExists`].
    Keep,
    /// Replaces it and keeps its mode. A pipe or device is written into.
    Replace,
}

/// Writes a file whole or not at all: writes another file in the same folder, syncs it to the disk, then renames it. If
/// the disk is full, the old file stays, or no file appears.
///
/// # Errors
/// Those of the file system; [`io::ErrorKind::AlreadyExists`] as [`Existing`] describes.
pub fn write_whole(path: &Path, bytes: &[u8], existing: Existing) -> io::Result<()> {
    let known = match std::fs::metadata(path) {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if existing == Existing::Keep && (known.is_some() || path.is_symlink()) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // A file that the shell opened for us (`/dev/stdout`) is written into, even if it is a regular file.
    let is_opened = path.starts_with("/dev") || path.starts_with("/proc");
    if known.as_ref().is_some_and(|known| is_opened || !known.is_file()) {
        return OpenOptions::new().write(true).open(path)?.write_all(bytes);
    }
    // A symbolic link stays; the file that it names is replaced.
    let path = match &known {
        Some(_) => path.canonicalize()?,
        None if path.is_symlink() => folder_of(path).join(path.read_link()?),
        None => path.to_owned(),
    };
    let folder = folder_of(&path);
    let mut part = tempfile::Builder::new()
        .prefix(".orinoco-")
        .suffix(".part")
        .permissions(Permissions::from_mode(MODE_NEW))
        .tempfile_in(folder)
        .map_err(without_path)?;
    part.write_all(bytes)?;
    if let Some(known) = known {
        part.as_file().set_permissions(known.permissions())?;
    }
    part.as_file().sync_all()?;
    let renamed = match existing {
        Existing::Keep => part.persist_noclobber(&path),
        Existing::Replace => part.persist(&path),
    };
    renamed.map_err(|error| error.error)?;
    // The new name is only certain to survive a power failure when the folder is on the disk too.
    File::open(folder)?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes the temporary file's name from an error, because the user never gave that name.
fn without_path(error: io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::{Duration, Instant};

    use rustix::fs::{Mode, mkfifoat};
    use tempfile::TempDir;

    use super::*;

    /// Longer than opening a file takes on a busy machine; a hang does not end.
    const WAIT_MAX: Duration = Duration::from_secs(20);
    const SMALL: FileKind = FileKind { bytes_max: 1 << 20, ..FileKind::DESCRIPTION };

    fn folder() -> TempDir {
        tempfile::tempdir().expect("temporary folder")
    }

    /// Reads `path`, which must not take long, and compares the result with `expected`.
    fn check(path: &Path, expected: &str) {
        let (path, started) = (path.to_owned(), Instant::now());
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let reading = std::thread::spawn(move || SMALL.read(&path));
        while !reading.is_finished() {
            assert!(started.elapsed() < WAIT_MAX, "reading {name} hangs");
            std::thread::sleep(Duration::from_millis(2));
        }
        let text = match reading.join().expect("no panic") {
            Ok(bytes) => format!("{} bytes", bytes.len()),
            Err(error) => {
                let fault = Diagnosis::from(error);
                format!("{} {}; {}", fault.code.id, fault.cause, fault.next)
            }
        };
        assert_eq!(text, expected, "{name}");
    }

    #[test]
    fn only_regular_files_within_the_bound_are_read() {
        let dir = folder();
        let file = |name: &str| dir.path().join(name);
        std::fs::write(file("full"), vec![b'x'; 1 << 20]).expect("written");
        check(&file("full"), "1048576 bytes");
        std::fs::write(file("over"), vec![b'x'; (1 << 20) + 1]).expect("written");
        check(&file("over"), "E0102 it is larger than 1 MiB; name a board or model file");
        symlink(file("full"), file("link")).expect("linked");
        check(&file("link"), "1048576 bytes");
        check(&file("none"), "E0101 No such file or directory (os error 2); check the path");
        check(dir.path(), "E0101 it is a folder, not a file; name a board or model file");
        mkfifoat(rustix::fs::CWD, file("pipe"), Mode::RWXU).expect("made");
        check(&file("pipe"), "E0101 it is a pipe or socket, not a file; name a board or model file");
        check(Path::new("/dev/zero"), "E0101 it is a device, not a file; name a board or model file");
    }

    #[test]
    fn the_bound_holds_where_the_system_gives_no_size() {
        // Files of /proc have a size of 0, whatever they hold.
        let maps = Path::new("/proc/self/maps");
        assert_eq!(std::fs::metadata(maps).expect("mounted").len(), 0);
        let tiny = FileKind { bytes_max: 10, ..SMALL };
        let longer = tiny.read(maps).expect_err("it is longer");
        assert!(matches!(longer.kind, ReadErrorKind::TooLarge), "{longer:?}");
        assert!(SMALL.read(maps).expect("within the bound").len() > 10);
    }

    #[test]
    fn text_is_utf8() {
        let dir = folder();
        let path = dir.path().join("latin1.toml");
        std::fs::write(&path, b"name = '\xe9'").expect("written");
        let error = SMALL.read_text(&path).expect_err("no UTF-8");
        assert!(
            matches!(&error.kind, ReadErrorKind::NotText(error) if error.valid_up_to() == 8),
            "{error:?}"
        );
        let fault = Diagnosis::from(error);
        assert_eq!((fault.code.id, fault.next.as_str()), (codes::SYNTAX.id, "save it as UTF-8 text"));
    }

    fn names(dir: &TempDir) -> Vec<String> {
        let entries = std::fs::read_dir(dir.path()).expect("a folder").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("there").permissions().mode() & 0o777
    }

    #[test]
    fn a_written_file_keeps_its_mode_and_its_link() {
        let dir = folder();
        let (file, link) = (dir.path().join("a.json"), dir.path().join("link.json"));
        std::fs::write(dir.path().join("usual"), "").expect("written");
        write_whole(&file, b"1", Existing::Keep).expect("new");
        assert_eq!(mode(&file), mode(&dir.path().join("usual")), "the umask holds");
        let kept = write_whole(&file, b"2", Existing::Keep).expect_err("it is there");
        assert_eq!(kept.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&file).expect("there"), b"1");

        std::fs::set_permissions(&file, Permissions::from_mode(0o604)).expect("set");
        symlink(&file, &link).expect("linked");
        write_whole(&link, b"3", Existing::Replace).expect("replaced");
        assert_eq!((std::fs::read(&file).expect("there"), mode(&file)), (b"3".to_vec(), 0o604));
        assert!(link.is_symlink());
        std::fs::remove_file(&file).expect("removed");
        write_whole(&link, b"4", Existing::Replace).expect("written where the link points");
        assert!(link.is_symlink() && file.is_file());
        assert_eq!(names(&dir), ["a.json", "link.json", "usual"]);
        write_whole(Path::new("/dev/null"), b"5", Existing::Replace).expect("devices are written into");
    }

    #[test]
    fn a_full_disk_leaves_what_was_there() {
        // `/dev/full` takes nothing; a folder that cannot be written takes no part file. The limit on a file's size,
        // which fails in the middle, is tried with the program (tests/tests/models.rs).
        let full = write_whole(Path::new("/dev/full"), b"1", Existing::Replace).expect_err("it is full");
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        let dir = folder();
        let gone = dir.path().join("gone").join("a.json");
        assert_eq!(
            write_whole(&gone, b"1", Existing::Keep).expect_err("no folder").kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!(names(&dir), Vec::<String>::new());
    }
}
