//! Joining: the window is found and mapped, and the ranks meet in it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FallocateFlags, StatFs, fallocate, fstat, fstatfs, stat, statfs};
use rustix::io::{Errno, retry_on_intr};

use super::hello::VERSION;
use super::layout::{Layout, MAGIC};
use super::mapping::Mapping;
use super::meeting::{JoinAttempt, Meetings};
use super::settings::PcieSettings;
use super::window::Window;
use super::window_ring::Rings;
use crate::clock::{Ticks, pause};
use crate::meeting_file::{check_owner, open_no_link};
use crate::message::MessageSettings;
use crate::publish::{fault, publish};
use crate::security::{KeyError, Keys};
use crate::tcp::digest;
use crate::{JoinError, Security};

/// Period in which a rank looks for the others.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// `SYSFS_MAGIC` of statfs(2): the file system with the resources of PCI devices.
const SYSFS: i64 = 0x6265_6572;
/// `PROC_SUPER_MAGIC` of statfs(2): the file system with the descriptors of processes.
const PROCFS: i64 = 0x9fa0;
/// Time after which a rank 0 that has given a window up counts as missing, too: it would have made another one.
const NEW_WINDOW_MAX: Duration = Duration::from_secs(1);
/// Bytes at the beginning of a file by which it is known. Other ranks may write behind them before rank 0 does.
const BEGINNING_BYTES: usize = 4096;

/// A mapped window, with rings with each rank that was met in it; none for this rank itself.
type Met = (Mapping, Vec<Option<Rings>>);

/// End of a meeting.
enum MeetingEnd {
    Met(Met),
    /// Rank 0 has given the window up, because these were missing. It may make another one.
    GivenUp(Vec<usize>),
}

/// Maps a window and meets the other ranks in it.
pub(super) fn join(
    path: &Path,
    rank: usize,
    ranks: usize,
    settings: &PcieSettings,
) -> Result<Met, JoinError> {
    let (start, deadline) = (Ticks::now(), settings.messages.deadline);
    let keys = keys(&settings.security, rank, ranks)?;
    // Those of TCP alone may differ.
    let messages = MessageSettings { tcp_connections: 1, tcp_encryption: true, ..settings.messages };
    let digest = digest(&messages);
    let mut awaited = vec![0];
    loop {
        let (file, is_new) = match rank {
            0 => open_or_make(path, ranks)?,
            _ => (find(path, &awaited, start, deadline)?, false),
        };
        let met = check(&file, path, rank, &keys).and_then(|()| {
            let (window, layout) = map(&file, path, rank, ranks)?;
            let (keys, nonce) = (keys.clone(), nonce()?);
            let attempt = JoinAttempt { path, rank, ranks, layout, keys, settings: digest, nonce };
            meet(attempt, window, &file, start, deadline)
        });
        // Nobody comes any more, and the mapping lives without its name.
        let removed = if is_new && !is_removed(&file, path) { fs::remove_file(path) } else { Ok(()) };
        let met = met?;
        removed.map_err(|source| fault("removing", path, source))?;
        match met {
            MeetingEnd::Met(met) => return Ok(met),
            MeetingEnd::GivenUp(missing) => awaited = missing,
        }
    }
}

/// Maps as much of a window as so many ranks use, and marks it as rank 0.
fn map(file: &File, path: &Path, rank: usize, ranks: usize) -> Result<(Mapping, Layout), JoinError> {
    let bytes = file.metadata().map_err(|source| fault("reading the size of", path, source))?.len();
    let layout = Layout::new(ranks, bytes).ok_or_else(|| {
        let least = Layout::least_bytes(ranks) as u64;
        JoinError::WindowSize { path: path.to_owned(), ranks, bytes, least }
    })?;
    reserve(file, layout.bytes()).map_err(|source| fault("reserving the memory of", path, source))?;
    let window = Mapping::new(file, layout.bytes()).map_err(|source| fault("mapping", path, source))?;
    if rank == 0 {
        window.publish(0, MAGIC);
    }
    Ok((window, layout))
}

/// Reserves the memory of a file, which may have holes: on a full file system, a write to one kills the process.
fn reserve(file: &File, bytes: usize) -> io::Result<()> {
    match retry_on_intr(|| fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes as u64)) {
        // A device's memory, or a file system that cannot tell.
        Ok(()) | Err(Errno::NODEV | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The keys of the ranks, once they are checked.
fn keys(security: &Security, rank: usize, ranks: usize) -> Result<Keys, JoinError> {
    match security {
        Security::Plaintext => Ok(Keys::Plaintext),
        Security::FileKey => Err(JoinError::NoKeyFile),
        Security::GroupKey(key) => Ok(Keys::Group(key.clone())),
        Security::KeyPairs { public, .. } if public.len() != ranks => {
            Err(JoinError::Keys { ranks, keys: public.len() })
        }
        Security::KeyPairs { own, public } if public[rank] != own.public() => Err(JoinError::OwnKey { rank }),
        Security::KeyPairs { own, public } => Ok(Keys::Pairs { own: own.clone(), public: public.clone() }),
    }
}

/// A random number that is not 0.
fn nonce() -> Result<u64, JoinError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| KeyError::Randomness(error.to_string()))?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

/// Opens the window as rank 0, or makes a file. Returns whether it is new.
fn open_or_make(path: &Path, ranks: usize) -> Result<(File, bool), JoinError> {
    match open(path) {
        Ok(file) => Ok((file, false)),
        Err(JoinError::File { source, .. }) if source.kind() == ErrorKind::NotFound => {
            let made = publish(path, |file| {
                let bytes = Layout::of_file(ranks).bytes();
                file.set_len(bytes as u64)?;
                reserve(file, bytes)?;
                file.write_all_at(&MAGIC.to_le_bytes(), 0)?;
                file.try_clone()
            })?;
            Ok((made, true))
        }
        Err(error) => Err(error),
    }
}

/// Opens the window as soon as it is there. Until then these ranks are missing.
fn find(path: &Path, awaited: &[usize], start: Ticks, deadline: Duration) -> Result<File, JoinError> {
    let since = Ticks::now();
    loop {
        match open(path) {
            Ok(file) => return Ok(file),
            Err(JoinError::File { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let waited = Ticks::now().since(start);
        if waited >= deadline {
            let mut absent = awaited.to_vec();
            if !absent.contains(&0) && Ticks::now().since(since) >= NEW_WINDOW_MAX {
                absent.insert(0, 0);
            }
            return Err(missing(absent, path.display().to_string(), waited));
        }
        pause(LOOK_EVERY);
    }
}

/// Opens a window to read and write. It is never truncated. A file must be one that only this user can have made; a device, and the
/// resource of one, belong to whom the system gives them.
fn open(path: &Path) -> Result<File, JoinError> {
    let opening = |source| fault("opening", path, source);
    if is_descriptor(path) {
        return OpenOptions::new().read(true).write(true).open(path).map_err(opening);
    }
    let file = open_no_link(path)?;
    let is_device = !file.metadata().map_err(opening)?.is_file();
    if !is_device && !is_sysfs(&file, path)? {
        check_owner(&file, path)?;
    }
    Ok(file)
}

/// Whether a path is a descriptor that a process holds (`/proc/*/fd`), such as that of a file in memory. It is a link that nobody else can
/// make.
fn is_descriptor(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.is_some_and(|folder| statfs(folder).is_ok_and(|system| kind(&system) == PROCFS))
}

/// Whether a file is the resource of a PCI device.
fn is_sysfs(file: &File, path: &Path) -> Result<bool, JoinError> {
    let system = fstatfs(file).map_err(|source| fault("opening", path, source.into()))?;
    Ok(kind(&system) == SYSFS)
}

#[allow(clippy::useless_conversion, clippy::unnecessary_cast, reason = "the type depends on the target")]
fn kind(system: &StatFs) -> i64 {
    system.f_type as i64
}

/// Refuses a file with other content, which would be lost, and a window that leads to other machines without keys.
fn check(file: &File, path: &Path, rank: usize, keys: &Keys) -> Result<(), JoinError> {
    if is_sysfs(file, path)? {
        return match keys {
            Keys::Plaintext => Err(JoinError::UnprotectedWindow { path: path.to_owned() }),
            // A device's memory holds anything before it is first used.
            _ => Ok(()),
        };
    }
    let mut beginning = [0; BEGINNING_BYTES];
    let len = file.read_at(&mut beginning, 0).map_err(|source| fault("reading", path, source))?;
    if beginning[..8] == MAGIC.to_le_bytes() || beginning[..len].iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    Err(match rank {
        0 => fault("creating", path, ErrorKind::AlreadyExists.into()),
        _ => JoinError::Foreign { path: path.to_owned(), found: "it has another beginning".to_owned() },
    })
}

/// Meets all other ranks in a window.
fn meet(
    attempt: JoinAttempt<'_>,
    window: Mapping,
    file: &File,
    start: Ticks,
    deadline: Duration,
) -> Result<MeetingEnd, JoinError> {
    let (path, rank) = (attempt.path, attempt.rank);
    let mut meetings = Meetings::begin(attempt, &window);
    loop {
        let absent = meetings.step(&window)?;
        if absent.is_empty() {
            return Ok(MeetingEnd::Met((window, meetings.finish())));
        }
        let waited = Ticks::now().since(start);
        if waited >= deadline {
            let mut at = path.display().to_string();
            if let Some((rank, version)) = meetings.other_version(&window) {
                at += &format!(
                    " (where rank {rank} has left a hello of version {version}, and this one has version {VERSION}: install the same version of Orinoco on all machines)"
                );
            }
            return Err(missing(absent, at, waited));
        }
        if rank != 0 && is_removed(file, path) {
            // What rank 0 said before is there now. It says to all that it has met them before it removes a file that is of no use
            // any more.
            let absent = meetings.step(&window)?;
            if absent.is_empty() {
                return Ok(MeetingEnd::Met((window, meetings.finish())));
            }
            if !meetings.is_ready() || absent.contains(&0) {
                return Ok(MeetingEnd::GivenUp(absent));
            }
        }
        pause(LOOK_EVERY);
    }
}

/// Whether a file has lost its name, or another one has it. A file in memory never had one, but is found by its path all the same.
fn is_removed(file: &File, path: &Path) -> bool {
    let Ok(opened) = fstat(file) else { return false };
    let found = stat(path).map(|named| (named.st_dev, named.st_ino));
    opened.st_nlink == 0 && found != Ok((opened.st_dev, opened.st_ino))
}

fn missing(missing: Vec<usize>, at: String, waited: Duration) -> JoinError {
    JoinError::Missing { missing, at, waited, turned_away: 0, other_version: None }
}
