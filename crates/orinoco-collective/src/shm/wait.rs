//! Waiting for another rank's flag: first look again and again, then give way, then sleep.

use std::sync::atomic::{AtomicU64, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Settings;
use super::arm;
use super::deadlock::{Opposite, Sleep};
use super::heartbeat::Watch;
use super::process::RankProcess;
use super::segment::{Line, Segment};
use super::sync::{self, Ordering};
use crate::call::Call;
use crate::clock::Ticks;
use crate::recorder::Recorder;
use crate::{CollectiveError, FailureCause};

/// Looks at a flag before anything else, where each rank has a core: about 20 us, several times an exchange of short vectors.
const LOOKS: u32 = if cfg!(shuttle) { 2 } else { 20_000 };
/// The same where ranks share cores: the other rank may be waiting for this one's core.
const LOOKS_SHARED: u32 = if cfg!(shuttle) { 2 } else { 4 };
/// The same before a rank rests until the flag is written, where processors have that.
const LOOKS_BEFORE_REST: u32 = 200;
/// Rests before anything else, where each rank has a core: 6 ms if nothing is written. Writes near the flag end them, too.
const RESTS: u32 = 64;
/// Times of giving way to other threads before sleeping, where ranks share cores.
const YIELDS_SHARED: u32 = if cfg!(shuttle) { 1 } else { 2_000 };
/// The first of them, which are timed by signs of life only: an exchange of short vectors takes fewer.
const YIELDS_UNTIMED: u32 = if cfg!(shuttle) { 1 } else { 32 };
/// Longest time of the others. Other programs may need the cores for milliseconds each time.
const YIELD_TIME: Duration = Duration::from_millis(20);
const _: () = assert!(YIELDS_UNTIMED <= YIELDS_SHARED, "they are a part of them");
/// Longest sleep. A rank that raises its flag just as another goes to sleep may miss it, and then this is the delay.
const SLEEP: Duration = Duration::from_millis(1);
/// Longest time between two looks at ranks that are not awaited. A look asks the kernel about each of their processes. Under shuttle,
/// where time stands still, each wait looks.
const OTHERS_EVERY: Duration = if cfg!(shuttle) { Duration::ZERO } else { Duration::from_millis(10) };
/// Looks at them in the time after which a rank counts as dead: if this rank looks too seldom, it takes itself for the one that was
/// stopped.
const OTHERS_LOOKS: u32 = 8;

/// Bounds of this rank's waits.
pub(super) struct Waiting {
    shares_cores: bool,
    /// Whether this rank rests between looks.
    rests: bool,
    settings: Settings,
    /// By rank.
    processes: Vec<RankProcess>,
    /// Watches of long waits, by rank. They are kept from one wait to the next: a rank that is silent is noticed as soon if others
    /// are awaited one after the other meanwhile.
    watches: Mutex<Vec<Watch>>,
    rank: usize,
    /// Time of this rank's last sign of life, in ms.
    clock_ms: Arc<AtomicU64>,
    pub(super) recorder: Recorder,
}

/// Pieces of another rank for which this one waits.
pub(super) struct Awaited<'a> {
    pub(super) segment: &'a Segment,
    /// The other rank.
    pub(super) rank: usize,
    pub(super) line: &'a Line,
    /// Number of pieces that it must have published.
    pub(super) pieces: u32,
    pub(super) call: Call,
    /// Operation of all ranks in which it is awaited, if it is in one.
    pub(super) operation: Option<&'a RunningOperation<'a>>,
}

/// Operation of all ranks that is under way.
pub(super) struct RunningOperation<'a> {
    pub(super) number: u32,
    /// Number of pieces that a rank has published once it has done its part.
    pub(super) pieces: u32,
    /// Whether this rank needs something from a rank.
    pub(super) is_needed: &'a dyn Fn(usize) -> bool,
}

impl RunningOperation<'_> {
    /// Whether a rank has published all of its pieces: nobody waits for it in this operation.
    fn is_done_by(&self, segment: &Segment, rank: usize) -> bool {
        has_reached(segment.line(rank, self.number).flag.load(Ordering::Acquire), self.pieces)
    }
}

impl Awaited<'_> {
    #[inline]
    fn has_come(&self) -> bool {
        has_reached(self.line.flag.load(Ordering::Acquire), self.pieces)
    }
}

/// Whether a count that wraps around has come to `wanted`. The two are less than 2^31 apart.
#[inline]
fn has_reached(count: u32, wanted: u32) -> bool {
    count.wrapping_sub(wanted) < 1 << 31
}

impl Waiting {
    /// Bounds of a rank whose group has these processes on so many cores.
    pub(super) fn new(
        segment: &Segment,
        rank: usize,
        processes: Vec<RankProcess>,
        cores: usize,
        settings: Settings,
        clock_ms: Arc<AtomicU64>,
    ) -> Self {
        let ranks = processes.len();
        let shares_cores = ranks > cores;
        let rests = !shares_cores && arm::can_rest();
        let now = Ticks::now();
        let watch =
            |(rank, process): (usize, &RankProcess)| Watch::new(process.clone(), segment.pulse(rank), now);
        let watches = Mutex::new(processes.iter().enumerate().map(watch).collect());
        let recorder = Recorder::new(rank, ranks);
        Self { shares_cores, rests, settings, processes, watches, rank, clock_ms, recorder }
    }

    /// Time since the group was joined, in ms, without a look at the clock: that of the last sign of life.
    #[inline]
    pub(super) fn now_ms(&self) -> u64 {
        self.clock_ms.load(Ordering::Relaxed)
    }

    pub(super) fn settings(&self) -> Settings {
        self.settings
    }

    /// Begins to watch a rank.
    pub(super) fn watch(&self, segment: &Segment, rank: usize, now: Ticks) -> Watch {
        Watch::new(self.processes[rank].clone(), segment.pulse(rank), now)
    }

    /// Whether there are more ranks than cores, as far as this rank sees.
    pub(super) fn shares_cores(&self) -> bool {
        self.shares_cores
    }

    /// Waits until a rank has published its pieces.
    #[inline]
    pub(super) fn wait(&self, awaited: &Awaited<'_>) -> Result<(), CollectiveError> {
        let looks = match (self.shares_cores, self.rests) {
            (true, _) => LOOKS_SHARED,
            (false, true) => LOOKS_BEFORE_REST,
            (false, false) => LOOKS,
        };
        for _ in 0..looks {
            if awaited.has_come() {
                return Ok(());
            }
            sync::hint();
        }
        self.wait_long(awaited)
    }

    /// Waits until one of several ranks has published its pieces. There is one at least.
    #[inline]
    pub(super) fn wait_for_any(&self, awaited: &[&Awaited<'_>]) -> Result<(), CollectiveError> {
        let looks = if self.shares_cores { LOOKS_SHARED } else { LOOKS };
        for _ in 0..looks {
            if awaited.iter().any(|awaited| awaited.has_come()) {
                return Ok(());
            }
            sync::hint();
        }
        self.wait_long_for_any(awaited, Duration::ZERO)
    }

    #[cold]
    fn wait_long(&self, awaited: &Awaited<'_>) -> Result<(), CollectiveError> {
        match self.rest(awaited) {
            None => Ok(()),
            Some(rested) => self.wait_long_for_any(&[awaited], rested),
        }
    }

    /// Rests some times until the flag is written, where processors have that. Returns for how long, unless the rank has published its
    /// pieces meanwhile.
    fn rest(&self, awaited: &Awaited<'_>) -> Option<Duration> {
        if !self.rests {
            return Some(Duration::ZERO);
        }
        let start = Ticks::now();
        let has_come = (0..RESTS).any(|_| {
            let seen = awaited.line.flag.load(Ordering::Acquire);
            let has_come = has_reached(seen, awaited.pieces);
            if !has_come {
                arm::rest_until_written(&awaited.line.flag, seen);
            }
            has_come
        });
        let rested = Ticks::now().since(start);
        if has_come {
            self.recorder.waited(awaited.rank, rested);
            return None;
        }
        Some(rested)
    }

    #[cold]
    fn wait_long_for_any(&self, awaited: &[&Awaited<'_>], rested: Duration) -> Result<(), CollectiveError> {
        let before_ms = self.now_ms();
        let has_come = self.yield_until_any(YIELDS_UNTIMED, || false, awaited);
        // On a busy machine even a few turns take long.
        let mut waited = rested + Duration::from_millis(self.now_ms().saturating_sub(before_ms));
        let mut result = Ok(());
        if !has_come {
            let start = Ticks::now();
            let is_over = || Ticks::now().since(start) >= YIELD_TIME;
            if !self.yield_until_any(YIELDS_SHARED - YIELDS_UNTIMED, is_over, awaited) {
                result = self.sleep_until_any(awaited, start);
            }
            waited += Ticks::now().since(start);
        }
        if !waited.is_zero() {
            let first = awaited.iter().find(|awaited| awaited.has_come()).unwrap_or(&awaited[0]);
            self.recorder.waited(first.rank, waited);
        }
        result
    }

    /// Gives way to other threads so many times, or until it is over, where ranks share cores. Returns whether one of the ranks has
    /// published its pieces meanwhile.
    fn yield_until_any(&self, yields: u32, is_over: impl Fn() -> bool, awaited: &[&Awaited<'_>]) -> bool {
        for _ in 0..if self.shares_cores { yields } else { 0 } {
            sync::yield_now();
            if awaited.iter().any(|awaited| awaited.has_come()) {
                return true;
            }
            if is_over() {
                return false;
            }
        }
        false
    }

    fn sleep_until_any(&self, awaited: &[&Awaited<'_>], start: Ticks) -> Result<(), CollectiveError> {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let others_every = OTHERS_EVERY.min(self.settings.silence / OTHERS_LOOKS);
        let mut looked_at_others = Ticks::now();
        let Awaited { segment, call, .. } = *awaited[0];
        let has_come = || awaited.iter().any(|awaited| awaited.has_come());
        let mut sleep = Sleep::begin(segment, self.rank, call, awaited.iter().map(|awaited| awaited.rank));
        while !has_come() {
            sleep.looked();
            sleep_until_raised(awaited[0]);
            let now = Ticks::now();
            if now.since(looked_at_others) >= others_every {
                looked_at_others = now;
                self.check_others(awaited, &mut watches, now)?;
            }
            for awaited in awaited {
                self.check(awaited, &mut watches[awaited.rank], start, now)?;
            }
            if !has_come()
                && let Some(Opposite { rank, call: theirs }) = sleep.find()
            {
                fail(segment, rank, FailureCause::Mismatch);
                return Err(CollectiveError::Mismatch { rank, theirs, ours: call });
            }
        }
        Ok(())
    }

    /// Fails if a rank that is not awaited now has failed. The group has failed with it, however long the awaited ones take.
    fn check_others(
        &self,
        awaited: &[&Awaited<'_>],
        watches: &mut [Watch],
        now: Ticks,
    ) -> Result<(), CollectiveError> {
        let Awaited { segment, call, operation, .. } = *awaited[0];
        let is_done_by = |rank| operation.is_some_and(|operation| operation.is_done_by(segment, rank));
        for (rank, watch) in watches.iter_mut().enumerate() {
            let is_awaited = awaited.iter().any(|awaited| awaited.rank == rank);
            if rank == self.rank || is_awaited || is_done_by(rank) {
                continue;
            }
            let cause = match watch.absence(segment.pulse(rank), now, self.settings.silence) {
                // It may leave if this rank needs nothing of it.
                Some(FailureCause::Left) => operation
                    .is_some_and(|operation| (operation.is_needed)(rank))
                    .then_some(FailureCause::Left),
                cause => cause,
            };
            // It may have done its part just before it left or ended.
            if let Some(cause) = cause.filter(|_| !is_done_by(rank)) {
                fail(segment, rank, cause);
                return check_group(segment, call);
            }
        }
        Ok(())
    }

    /// Fails if the rank will not come: it failed, any other failed, or time is up.
    fn check(
        &self,
        awaited: &Awaited<'_>,
        watch: &mut Watch,
        start: Ticks,
        now: Ticks,
    ) -> Result<(), CollectiveError> {
        if awaited.has_come() {
            return Ok(());
        }
        let pulse = awaited.segment.pulse(awaited.rank);
        let is_late = now.since(start) >= self.settings.deadline;
        let late = is_late.then_some(FailureCause::Late(self.settings.deadline));
        let Some(cause) = watch.absence(pulse, now, self.settings.silence).or(late) else {
            return check_group(awaited.segment, awaited.call);
        };
        // It may have come just before it left or ended.
        if awaited.has_come() {
            return Ok(());
        }
        fail(awaited.segment, awaited.rank, cause);
        check_group(awaited.segment, awaited.call)
    }
}

/// Raises a rank's flag.
#[inline]
pub(super) fn raise(line: &Line, pieces: u32) {
    line.flag.store(pieces, Ordering::Release);
    if line.sleepers.load(Ordering::Relaxed) != 0 {
        sync::wake(&line.flag);
    }
}

/// Sleeps until the flag is raised, or a short time.
fn sleep_until_raised(awaited: &Awaited<'_>) {
    let line = awaited.line;
    // The number that is compared with what is awaited is the one at which this rank sleeps: it may change at any time.
    let seen = line.flag.load(Ordering::Acquire);
    if has_reached(seen, awaited.pieces) {
        return;
    }
    // They are counted by themselves: if a rank that wakes others took the mark away, it could be that of the next sleep.
    line.sleepers.fetch_add(1, Ordering::Relaxed);
    sync::sleep(&line.flag, seen, SLEEP);
    line.sleepers.fetch_sub(1, Ordering::Relaxed);
}

/// Notes a rank's failure, unless one is noted. This rank's vectors may change from then on.
pub(super) fn fail(segment: &Segment, rank: usize, cause: FailureCause) {
    let code = (rank as u64 + 1) << 32 | u64::from(cause.to_code());
    // The first failure stays: what follows from it is no news.
    let _ = segment.header().failure.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
    fence(Ordering::SeqCst);
}

/// Fails if a failure is noted, after vectors of other ranks were read. Where none is, no rank had returned from the operation because
/// of one, so all vectors were those of the operation while they were read.
pub(super) fn check_reads(segment: &Segment, call: Call) -> Result<(), CollectiveError> {
    fence(Ordering::SeqCst);
    check_group(segment, call)
}

/// Fails if a failure is noted.
#[inline]
pub(super) fn check_group(segment: &Segment, call: Call) -> Result<(), CollectiveError> {
    match segment.header().failure.load(Ordering::Acquire) {
        0 => Ok(()),
        code => Err(failure(code, call)),
    }
}

/// The rank that failed first and the reason, if one has. Other processes write them: the rank may be none of the group.
pub(super) fn failed(segment: &Segment) -> Option<(usize, FailureCause)> {
    match segment.header().failure.load(Ordering::Acquire) {
        0 => None,
        code => Some(parts(code)),
    }
}

#[cold]
fn failure(code: u64, call: Call) -> CollectiveError {
    let (rank, cause) = parts(code);
    CollectiveError::EpochFailed { epoch: 0, rank, cause, call }
}

fn parts(code: u64) -> (usize, FailureCause) {
    let rank = usize::try_from(code >> 32).map_or(0, |rank| rank.saturating_sub(1));
    (rank, FailureCause::from_code(code as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_compared_across_their_end() {
        assert!(has_reached(5, 5) && has_reached(6, 5) && !has_reached(4, 5));
        assert!(has_reached(2, u32::MAX) && !has_reached(u32::MAX, 2));
    }
}
