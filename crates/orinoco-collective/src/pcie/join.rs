//! Joining: the window is found and mapped, and the ranks meet in it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate, fstatfs};

use super::layout::{Layout, MAGIC};
use super::mapping::Mapping;
use super::meeting::{Joining, Meetings};
use super::ring::Rings;
use super::settings::PcieSettings;
use super::window::Window;
use crate::clock::{Ticks, pause};
use crate::message::MessageSettings;
use crate::publish::{fault, publish};
use crate::security::{KeyError, Keys};
use crate::tcp::digest;
use crate::{JoinError, Security};

/// Period in which a rank looks for the others.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// `SYSFS_MAGIC` of statfs(2): the file system with the resources of PCI devices.
const SYSFS: i64 = 0x6265_6572;
/// Bytes at the beginning of a file by which it is known. Other ranks may write behind them before rank 0 does.
const BEGINNING_BYTES: usize = 4096;

/// Maps a window and meets the other ranks in it. Returns rings with each; none for this rank itself.
pub(super) fn join(
    path: &Path,
    rank: usize,
    ranks: usize,
    settings: &PcieSettings,
) -> Result<(Mapping, Vec<Option<Rings>>), JoinError> {
    let start = Ticks::now();
    let deadline = settings.messages.deadline;
    let keys = keys(&settings.security, rank, ranks)?;
    let (file, is_new) =
        if rank == 0 { open_or_make(path, ranks)? } else { (find(path, start, deadline)?, false) };
    let met = check(&file, path, rank, &keys).and_then(|()| {
        let bytes = file.metadata().map_err(|source| fault("reading the size of", path, source))?.len();
        let layout = Layout::new(ranks, bytes).ok_or_else(|| {
            let least = Layout::least_bytes(ranks) as u64;
            JoinError::WindowSize { path: path.to_owned(), ranks, bytes, least }
        })?;
        let window = Mapping::new(&file, layout.bytes()).map_err(|source| fault("mapping", path, source))?;
        if rank == 0 {
            window.publish(0, MAGIC);
        }
        // Those of TCP alone may differ.
        let messages = MessageSettings { tcp_connections: 1, tcp_encryption: true, ..settings.messages };
        let (nonce, settings) = (nonce()?, digest(&messages));
        let joining = Joining { path, rank, ranks, layout, keys, settings, nonce };
        let rings = meet(joining, &window, start, deadline)?;
        Ok((window, rings))
    });
    if is_new {
        // Nobody comes any more, and the mapping lives without its name.
        let removed = fs::remove_file(path);
        let met = met?;
        removed.map_err(|source| fault("removing", path, source))?;
        return Ok(met);
    }
    met
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
        Err(source) if source.kind() == ErrorKind::NotFound => {
            let made = publish(path, |file| {
                // Its memory must be there before anybody writes to it: a full /dev/shm would kill the process later.
                fallocate(file, FallocateFlags::empty(), 0, Layout::of_file(ranks).bytes() as u64)?;
                file.write_all_at(&MAGIC.to_le_bytes(), 0)?;
                file.try_clone()
            })?;
            Ok((made, true))
        }
        Err(source) => Err(fault("opening", path, source)),
    }
}

/// Opens the window as soon as it is there.
fn find(path: &Path, start: Ticks, deadline: Duration) -> Result<File, JoinError> {
    loop {
        match open(path) {
            Ok(file) => return Ok(file),
            Err(source) if source.kind() != ErrorKind::NotFound => {
                return Err(fault("opening", path, source));
            }
            Err(_) => {}
        }
        let waited = Ticks::now().since(start);
        if waited >= deadline {
            return Err(missing(vec![0], path, waited));
        }
        pause(LOOK_EVERY);
    }
}

/// Opens a window to read and write. It is never truncated.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Refuses a file with other content, which would be lost, and a window that leads to other machines without keys.
fn check(file: &File, path: &Path, rank: usize, keys: &Keys) -> Result<(), JoinError> {
    let kind = fstatfs(file).map_err(|source| fault("opening", path, source.into()))?.f_type;
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast, reason = "the type depends on the target")]
    if kind as i64 == SYSFS {
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

/// Meets all other ranks.
fn meet(
    joining: Joining<'_>,
    window: &Mapping,
    start: Ticks,
    deadline: Duration,
) -> Result<Vec<Option<Rings>>, JoinError> {
    let path = joining.path;
    let mut meetings = Meetings::begin(joining, window);
    loop {
        let absent = meetings.step(window)?;
        if absent.is_empty() {
            return Ok(meetings.finish());
        }
        let waited = Ticks::now().since(start);
        if waited >= deadline {
            return Err(missing(absent, path, waited));
        }
        pause(LOOK_EVERY);
    }
}

fn missing(missing: Vec<usize>, path: &Path, waited: Duration) -> JoinError {
    JoinError::Missing {
        missing,
        at: path.display().to_string(),
        waited,
        turned_away: 0,
        other_version: None,
    }
}
