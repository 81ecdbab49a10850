//! Groups of the ranks that are left after a failure. Once ranks agree on them (`agreement.rs`), they meet in a new segment.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::ShmGroup;
use super::agreement::Agreement;
use super::join::{self, Meeting, Settings};
use super::process::RankProcess;
use super::segment::Segment;
use crate::clock::{Ticks, pause};
use crate::message::{ShrinkState, Survivors};
use crate::recorder::Recorder;
use crate::{JoinError, KeyError};

/// Period in which a rank looks at the notices of the others.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Time between two attempts to meet the same ranks.
const RETRY: Duration = Duration::from_millis(20);

impl ShmGroup {
    /// Makes a group of the ranks that are left, as `ncclCommShrink` and `MPIX_Comm_shrink` do: in the order of their ranks here, with the
    /// settings of this group, and independent of it. All ranks that are left must call it, usually after an operation has failed.
    /// Ranks that have ended or left, give no signs of life or were too late for an operation ([`FailureCause::Late`](crate::FailureCause::Late)) are left out, also
    /// if other ranks only know of it.
    ///
    /// All ranks that are left get the same group, or an error: also if more of them fail meanwhile. If one fails when the new group is
    /// there already, the operations of the new group fail, and it can be shrunk in turn. A group is shrunk once: the old one is of no
    /// use any more, and can be dropped. The new group has memory of its own, and a file next to that of this group while its ranks meet.
    ///
    /// # Errors
    /// [`JoinError::Excluded`] if the other ranks go on without this one, and [`JoinError::AlreadyShrunk`] if there is a smaller group
    /// already: calling it again is of no use then. If ranks that give signs of life do not call it before the deadline of the settings
    /// ([`JoinError::NotShrunk`]), or if the ranks cannot meet, it can be called again.
    pub fn shrink(&mut self) -> Result<Self, JoinError> {
        let settings = self.waiting.settings();
        let mut agreement = match self.shrinking.take() {
            Some(agreement) => agreement,
            None => {
                let (segment, now) = (Arc::clone(&self.segment), Ticks::now());
                let watches = (0..self.ranks).map(|rank| self.waiting.watch(&segment, rank, now)).collect();
                Box::new(Agreement::new(segment, self.rank, watches, now, settings.silence))
            }
        };
        let met = ShrinkCall::begin(&mut agreement, self.path.clone(), settings).and_then(ShrinkCall::run);
        self.shrinking = Some(agreement);
        let Met { survivors, segment, processes, path } = met?;
        let rank = survivors.new_rank(self.rank);
        let (rank, ranks) = (rank.expect("this rank is a member"), survivors.members.len());
        let mut group = Self::start(Arc::new(segment), processes, path, rank, settings);
        if settings.single_copy {
            // If a rank fails meanwhile, the next operation says so, and the new group can be shrunk.
            let _ = group.probe_single_copy();
            group.waiting.recorder = Recorder::new(rank, ranks);
        }
        Ok(group)
    }
}

/// A rank's call.
struct ShrinkCall<'g> {
    agreement: &'g mut Agreement,
    /// File through which the ranks of the old group met.
    old_path: PathBuf,
    settings: Settings,
    start: Ticks,
    /// Members of the group with which this rank is connected in the agreement: the last ones that it has met, also while it meets others.
    met: Option<Met>,
    /// Reason for which this rank could not meet the others last.
    fault: Option<JoinError>,
}

/// Members that have met in a segment.
struct Met {
    survivors: Survivors,
    segment: Segment,
    /// By rank.
    processes: Vec<RankProcess>,
    path: PathBuf,
}

impl<'g> ShrinkCall<'g> {
    fn begin(agreement: &'g mut Agreement, old_path: PathBuf, settings: Settings) -> Result<Self, JoinError> {
        let mut number = [0; 4];
        getrandom::fill(&mut number).map_err(|error| KeyError::Randomness(error.to_string()))?;
        match agreement.begin(u32::from_le_bytes(number)) {
            true => Ok(Self { agreement, old_path, settings, start: Ticks::now(), met: None, fault: None }),
            false => Err(JoinError::AlreadyShrunk),
        }
    }

    fn run(mut self) -> Result<Met, JoinError> {
        loop {
            self.agreement.look();
            let rest = self.settings.deadline.saturating_sub(Ticks::now().since(self.start));
            let error = match self.agreement.state() {
                ShrinkState::Formed => return Ok(self.met.expect("a rank forms what it has met")),
                ShrinkState::Waiting(_) if !rest.is_zero() => {
                    pause(LOOK_EVERY);
                    continue;
                }
                ShrinkState::Ready(survivors) if !rest.is_zero() => {
                    self.meet(survivors, rest);
                    continue;
                }
                ShrinkState::Waiting(missing) => self.late(missing),
                ShrinkState::Ready(survivors) => self.late(survivors.old_ranks()),
                ShrinkState::Excluded { by } => JoinError::Excluded { by, cause: self.agreement.blamed() },
                ShrinkState::Isolated { reachable } => JoinError::Isolated {
                    reachable: reachable.iter().collect(),
                    ranks: self.agreement.ranks(),
                },
            };
            // All may have formed the group in this moment.
            if self.agreement.withdraw() {
                return Err(error);
            }
        }
    }

    /// Meets the other members in a new segment, unless they turn out to be others.
    fn meet(&mut self, survivors: Survivors, rest: Duration) {
        // The random numbers of the members make a name that nobody else can guess.
        let numbers = survivors.members.iter().map(|member| member.number);
        let numbers: String = numbers.take(3).map(|number| format!("{number:08x}")).collect();
        let path = self.old_path.with_file_name(format!("orinoco-{:08x}{numbers}", survivors.group));
        let rank = survivors.new_rank(self.agreement.rank());
        let (rank, ranks) = (rank.expect("this rank is a member"), survivors.members.len());
        let mut is_over = false;
        let joined = join::join_unless(&path, rank, ranks, rest, || {
            is_over = !self.agreement.is_ready(&survivors);
            is_over
        });
        match joined {
            Ok(Meeting { segment, processes, file }) => {
                // All have mapped it, so nobody comes any more. Nobody else would remove the file of a rank that is killed later: no other
                // group meets at this name. If it cannot be removed, it stays, and takes part of the memory until somebody removes it.
                drop(file);
                if self.agreement.connect(&survivors) {
                    (self.met, self.fault) = (Some(Met { survivors, segment, processes, path }), None);
                }
            }
            Err(why) if !is_over => {
                let members = survivors.old_ranks();
                self.fault = Some(JoinError::Shrink { members, source: Box::new(why) });
                pause(RETRY.min(rest));
            }
            Err(_) => {}
        }
    }

    /// Error of a rank whose time is up.
    fn late(&mut self, missing: Vec<usize>) -> JoinError {
        let waited = Ticks::now().since(self.start);
        self.fault.take().unwrap_or(JoinError::NotShrunk { missing, waited })
    }
}
