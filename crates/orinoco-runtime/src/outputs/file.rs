//! Open output.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use orinoco_config::{Existing, write_whole};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Output that is open and not yet changed. A file that was created for it is removed when it is dropped, unless it was
/// begun.
#[derive(Debug)]
pub struct OutputFile {
    pub(super) file: File,
    path: PathBuf,
    is_new: bool,
    /// Folders that were created for this output, or for another output and contain this one, too.
    folders: BTreeSet<PathBuf>,
}

impl OutputFile {
    /// Opens an output. `made_folders` has the folders that were created for earlier outputs; the output's own are added.
    pub(super) fn open(path: &Path, made_folders: &mut BTreeSet<PathBuf>) -> io::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let missing = folder.into_iter().flat_map(Path::ancestors).take_while(|folder| !folder.exists());
        // `new/..` is a folder that existed before, even if `new` is created and removed.
        let missing: BTreeSet<&Path> = missing.filter(|folder| folder.file_name().is_some()).collect();
        if let Err(why) = folder.map_or(Ok(()), fs::create_dir_all) {
            remove_folders(&missing);
            return Err(why);
        }
        let mut folders: BTreeSet<PathBuf> =
            missing.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
        made_folders.extend(folders.iter().cloned());
        let inside = folder.and_then(|folder| folder.canonicalize().ok()).unwrap_or_default();
        let shared = inside.ancestors().filter(|folder| made_folders.contains(*folder));
        folders.extend(shared.map(Path::to_owned));
        // Also true if a link points to a missing file: opening creates that file.
        let is_new = path.metadata().is_err_and(|why| why.kind() == io::ErrorKind::NotFound);
        match open_for_writing(path) {
            Ok(file) => Ok(Self { file, path: path.to_owned(), is_new, folders }),
            Err(why) => {
                remove_folders(&folders);
                Err(why)
            }
        }
    }

    /// Returns the path of the output.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Empties the file, and returns it for writing.
    pub fn begin(mut self) -> io::Result<File> {
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.keep();
        self.file.try_clone()
    }

    /// Writes the whole file, or leaves the old one. If the file can be written but not replaced, because its folder is
    /// read-only or the file is a mount point, it is emptied and overwritten in place.
    pub fn write_whole(self, bytes: &[u8]) -> io::Result<()> {
        self.write_with(bytes, |path, bytes| write_whole(path, bytes, Existing::Replace))
    }

    pub(super) fn write_with(
        mut self,
        bytes: &[u8],
        replace: impl FnOnce(&Path, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        use io::ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
        match replace(&self.path, bytes).map_err(|why| (why.kind(), why)) {
            Err((PermissionDenied | ReadOnlyFilesystem | ResourceBusy | CrossesDevices, _)) => {
                self.overwrite(bytes)?;
            }
            done => done.map_err(|(_, why)| why)?,
        }
        self.keep();
        Ok(())
    }

    fn overwrite(&mut self, bytes: &[u8]) -> io::Result<()> {
        let is_file = self.file.metadata()?.is_file();
        if is_file {
            self.file.set_len(0)?;
            self.file.rewind()?;
        }
        self.file.write_all(bytes)?;
        if is_file { self.file.sync_all() } else { Ok(()) }
    }

    /// Keeps the file from now on, even if this value is dropped.
    fn keep(&mut self) {
        self.is_new = false;
        self.folders.clear();
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_new {
            // An empty file that cannot be removed does no harm.
            let _ = fs::remove_file(self.path.canonicalize().as_deref().unwrap_or(&self.path));
        }
        remove_folders(&self.folders);
    }
}

/// Opens a file for writing, and creates it if it is missing. A named pipe that nobody reads fails with ENXIO, instead of waiting for its
/// reader without end.
fn open_for_writing(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false).custom_flags(OFlags::NONBLOCK.bits() as i32);
    let file = options.open(path)?;
    // Writes are to wait for a reader that is slow.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Removes created folders that are empty, the innermost first.
fn remove_folders<P: AsRef<Path>>(folders: &BTreeSet<P>) {
    folders.iter().rev().for_each(|folder| drop(fs::remove_dir(folder)));
}
