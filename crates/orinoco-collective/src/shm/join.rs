//! Joining: ranks meet through a file that all name.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use super::process::{RankProcess, introduce};
use super::segment::{Segment, is_segment};
use super::sync::Ordering;
use crate::JoinError;
use crate::clock::{Ticks, pause};
use crate::meeting_file::{MeetingFile, find};
use crate::publish::fault;

/// Period in which a rank looks for the others.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Bounds of a group's waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Longest wait for another rank, in one call or when joining.
    pub deadline: Duration,
    /// Time without a sign of life after which a rank counts as dead. The end of a rank's process is noticed at once instead, where
    /// the kernel reports it: since Linux 5.3, among processes that share a PID namespace and see one another in `/proc`. At least
    /// [`SILENCE_MIN`](crate::SILENCE_MIN).
    pub silence: Duration,
    /// Whether ranks may read long messages, and the long vectors of an all-to-all, directly from one another's memory, where the kernel
    /// allows it.
    pub single_copy: bool,
}

impl Default for Settings {
    /// A minute, half a second, and single copies.
    fn default() -> Self {
        Self { deadline: Duration::from_secs(60), silence: Duration::from_millis(500), single_copy: true }
    }
}

/// Meeting of all ranks of a group.
pub(super) struct Meeting {
    pub(super) segment: Segment,
    /// By rank.
    pub(super) processes: Vec<RankProcess>,
    /// The file, on rank 0.
    pub(super) file: Option<MeetingFile>,
}

/// Meets the other ranks of a group at a file. Rank 0 makes the file, and removes it when it has joined.
pub(super) fn join(path: &Path, rank: usize, ranks: usize, deadline: Duration) -> Result<Meeting, JoinError> {
    join_unless(path, rank, ranks, deadline, || false)
}

/// Meets the other ranks of a group at a file. Gives up when it is over, unless all have come before.
pub(super) fn join_unless(
    path: &Path,
    rank: usize,
    ranks: usize,
    deadline: Duration,
    mut is_over: impl FnMut() -> bool,
) -> Result<Meeting, JoinError> {
    let start = Ticks::now();
    let (segment, file) = if rank == 0 {
        let (file, segment) = MeetingFile::publish(path, is_meeting, |file| fill(file, ranks))?;
        (segment, Some(file))
    } else {
        (open(path, ranks, start, deadline, &mut is_over)?, None)
    };
    introduce(segment.pulse(rank));
    let process = std::process::id();
    let taken = segment.pulse(rank).process.compare_exchange(0, process, Ordering::AcqRel, Ordering::Acquire);
    if let Err(process) = taken {
        return Err(JoinError::Taken { rank, path: path.to_owned(), process });
    }
    let processes = wait_for_all(&segment, path, ranks, start, deadline, &mut is_over)?;
    Ok(Meeting { segment, processes, file })
}

/// Whether a file is one of ours: a rank 0 of another version that was killed leaves one, too.
fn is_meeting(file: &File) -> bool {
    let mut beginning = [0; 8];
    file.read_exact_at(&mut beginning, 0).is_ok() && is_segment(beginning)
}

fn fill(file: &File, ranks: usize) -> io::Result<Segment> {
    // Its memory must be there before anybody writes to it: a full /dev/shm would kill the process later.
    rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, Segment::file_bytes(ranks) as u64)?;
    let segment = Segment::map(file, ranks)?;
    segment.publish(ranks);
    Ok(segment)
}

fn open(
    path: &Path,
    ranks: usize,
    start: Ticks,
    deadline: Duration,
    is_over: &mut impl FnMut() -> bool,
) -> Result<Segment, JoinError> {
    loop {
        if let Some(file) = find(path, is_meeting)? {
            return check(&file, path, ranks);
        }
        let waited = Ticks::now().since(start);
        if waited >= deadline || is_over() {
            return Err(JoinError::Missing {
                missing: vec![0],
                at: path.display().to_string(),
                waited,
                turned_away: 0,
                other_version: None,
            });
        }
        pause(LOOK_EVERY);
    }
}

fn check(file: &File, path: &Path, ranks: usize) -> Result<Segment, JoinError> {
    let foreign = |found: String| JoinError::Foreign { path: path.to_owned(), found };
    let segment = Segment::map(file, ranks).map_err(|source| match source.kind() {
        io::ErrorKind::InvalidData => foreign("it is too short".to_owned()),
        _ => fault("mapping", path, source),
    })?;
    match segment.found() {
        Some(found) if found == ranks as u64 => Ok(segment),
        Some(found) => Err(foreign(format!("{found} ranks, expected {ranks}"))),
        None => Err(foreign("it has another beginning".to_owned())),
    }
}

fn wait_for_all(
    segment: &Segment,
    path: &Path,
    ranks: usize,
    start: Ticks,
    deadline: Duration,
    is_over: &mut impl FnMut() -> bool,
) -> Result<Vec<RankProcess>, JoinError> {
    let mut processes: Vec<Option<RankProcess>> = vec![None; ranks];
    loop {
        let waited = Ticks::now().since(start);
        // Before the look at who has come: a rank that has met all others may leave at once.
        let is_over = waited >= deadline || is_over();
        for (rank, process) in processes.iter_mut().enumerate().filter(|(_, process)| process.is_none()) {
            let pulse = segment.pulse(rank);
            // Opened as soon as it is there: it may end while others are waited for.
            *process = (pulse.process.load(Ordering::Acquire) != 0).then(|| RankProcess::open(pulse));
        }
        let missing: Vec<usize> = (0..ranks).filter(|rank| processes[*rank].is_none()).collect();
        if missing.is_empty() {
            return Ok(processes.into_iter().flatten().collect());
        }
        if is_over {
            return Err(JoinError::Missing {
                missing,
                at: path.display().to_string(),
                waited,
                turned_away: 0,
                other_version: None,
            });
        }
        pause(LOOK_EVERY);
    }
}
