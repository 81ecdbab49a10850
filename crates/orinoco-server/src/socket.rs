//! Unix sockets of the daemon: created so that nobody else's file is replaced, and removed at the end.

use std::fmt;
use std::fs::{self, File, FileType};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;

use orinoco_core::{Code, Diagnosis, WithSubject, codes};
use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Mode of the socket: its owner and its group may connect.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::WGRP);
/// Number of connections that the kernel keeps until the server accepts them. It is more than all clients of a burst.
const BACKLOG: i32 = 128;

/// Maximum number of attempts to lock the folder, some milliseconds together. Another start holds the lock for microseconds.
const LOCK_ATTEMPTS_MAX: u32 = 10_000;

/// Setting of a board file that names a socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketSetting {
    code: &'static Code,
    /// The key with its section, for errors.
    key: &'static str,
    /// Whether the key can be `false`.
    can_be_off: bool,
}

impl SocketSetting {
    /// The control socket.
    pub const CONTROL: Self =
        Self { code: &codes::CONTROL_LISTEN, key: "`socket` under [control]", can_be_off: true };
    /// The socket at which programs share the port of the board's seat in a cluster.
    pub const PROGRAMS: Self =
        Self { code: &codes::CLUSTER_SEAT, key: "`program_socket` under [cluster]", can_be_off: false };

    /// Returns the next step where the folder of the socket is at fault.
    fn next_for_folder(self) -> String {
        let off = if self.can_be_off { ", or to false" } else { "" };
        format!(
            "see that its folder exists and is writable (systemd: RuntimeDirectory=orinoco), or set {} to another path{off}",
            self.key
        )
    }

    fn fault(self, path: &Path, cause: impl fmt::Display, next: impl fmt::Display) -> Diagnosis {
        Diagnosis::new(self.code, path.display(), cause, next)
    }
}

/// Listening Unix socket with mode 0660. Its file is removed when the socket is dropped.
///
/// A socket file on which nobody listens any more is replaced; it was left by a daemon that was killed. A file of any other
/// kind, and a socket on which somebody listens, is left alone.
#[derive(Debug)]
pub struct LocalSocket {
    listener: UnixListener,
    file: SocketFile,
}

impl LocalSocket {
    /// Creates the socket at `path`, in a folder that exists. Errors name the setting.
    ///
    /// # Errors
    ///
    /// If the folder is missing or cannot be written, if another file or another process's
    /// socket is there, or if the path is longer than 107 bytes.
    pub fn bind(path: &Path, setting: SocketSetting) -> Result<Self, Diagnosis> {
        // A socket that another daemon has created and on which it does not listen yet looks stale.
        let _lock = lock_folder(path, setting)?;
        let created = match Self::create(path) {
            Err(Errno::ADDRINUSE) => {
                remove_stale(path, setting)?;
                Self::create(path)
            }
            created => created,
        };
        created.map_err(|why| creation_fault(path, setting, why))
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Returns the listener.
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Separates the listener from its file, which is removed when it is dropped.
    pub(crate) fn into_parts(self) -> (UnixListener, SocketFile) {
        (self.listener, self.file)
    }

    /// Creates the socket and its file; fails if there is a file already.
    fn create(path: &Path) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The file gets the mode of the socket without the bits of the umask (unix_bind_bsd of Linux), so nobody else can
        // connect before its mode is set.
        rustix::fs::fchmod(&socket, MODE)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        let file = SocketFile::of(path)?;
        rustix::fs::chmod(path, MODE)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self { listener: UnixListener::from(socket), file })
    }
}

/// File of a socket, which is removed when this is dropped, unless another has taken its place.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file.
    id: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> Result<Self, Errno> {
        let stat = rustix::fs::lstat(path)?;
        Ok(Self { path: path.to_owned(), id: (stat.st_dev, stat.st_ino) })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.id);
        if is_ours {
            // What cannot be removed is replaced at the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket file on which nobody listens.
fn remove_stale(path: &Path, setting: SocketSetting) -> Result<(), Diagnosis> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    let kind = metadata.file_type();
    if !kind.is_socket() {
        let cause = format!("there is a {} of that name", name_of(kind));
        let next = format!("move it away, or choose another path for {}", setting.key);
        return Err(setting.fault(path, cause, next));
    }
    match probe(path) {
        Err(Errno::CONNREFUSED) => {
            fs::remove_file(path).about(setting.code, path.display(), setting.next_for_folder())
        }
        // Its owner has just removed it.
        Err(Errno::NOENT) => Ok(()),
        // The queue of connections is full, so somebody has it.
        Ok(()) | Err(Errno::AGAIN) => {
            let next = format!("stop the other daemon, or choose another path for {}", setting.key);
            Err(setting.fault(path, "another process listens on it", next))
        }
        Err(why) => {
            let cause = format!("there is a socket of that name that cannot be checked: {why}");
            Err(setting.fault(path, cause, "remove it if nothing uses it"))
        }
    }
}

/// Locks the folder of `path` against another start, until the lock is dropped. A program of another kind that holds the lock
/// does not hold up the start.
fn lock_folder(path: &Path, setting: SocketSetting) -> Result<OwnedFd, Diagnosis> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let lock = File::open(folder).about(setting.code, path.display(), setting.next_for_folder())?;
    for _ in 0..LOCK_ATTEMPTS_MAX {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(lock.into()),
            Err(_) => thread::yield_now(),
        }
    }
    Err(setting.fault(
        path,
        "another process has locked its folder",
        "start again; `lslocks` names the process",
    ))
}

/// Connects to a socket without waiting.
fn probe(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
}

fn creation_fault(path: &Path, setting: SocketSetting, why: Errno) -> Diagnosis {
    match why {
        Errno::NAMETOOLONG => {
            setting.fault(path, "its path is longer than 107 bytes", "choose a shorter path")
        }
        why => setting.fault(path, why, setting.next_for_folder()),
    }
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_file() => "file",
        kind if kind.is_dir() => "folder",
        kind if kind.is_symlink() => "symbolic link",
        _ => "device or pipe",
    }
}
