//! Agreement of the ranks that are left of a group on the members of a smaller one. Messages are arguments; the caller keeps the time.
//!
//! Each rank that takes part sends all others a [`ShrinkNotice`]: the ranks that it excludes, and the port at which the others reach it
//! for the new group. It excludes the ranks that it has lost, and those that a rank excludes with which it would go on; it never takes an
//! exclusion back. When all ranks that it does not exclude have sent the same set as its own, it connects with them. Then it sends that
//! it is connected. A rank that has heard that from all members, while its own set is still the same, has formed the group, and sends
//! that as its last notice. Another member that is connected has formed the group then, too, whatever it has learnt meanwhile.
//!
//! A group is formed only by ranks of which every other member has said that it is connected in that same group. Sets only grow, and of
//! two groups each rank is connected with the larger one first. So no two ranks form different groups that both contain both. If one of
//! the members that are still there has formed a group, none of them can form a later one without it, and all learn of it: the notice that
//! a group is formed comes before that of the end of its sender.

use super::agreement::{RankSet, Uniform, VOTING_RANKS_MAX};

/// Stage of a rank that makes a smaller group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShrinkStage {
    /// It waits for ranks that exclude the same ranks, or connects with them.
    Proposed,
    /// It is connected with all members of the group.
    Connected,
    /// It knows that all members are connected.
    Formed,
    /// Its call has failed.
    Withdrawn,
}

/// Notice of a rank that makes a smaller group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShrinkNotice {
    /// Its stage.
    pub stage: ShrinkStage,
    /// Ranks that are not to be in the group.
    pub excluded: RankSet,
    /// Port at which it listens, or 0 if it shares the port of a daemon.
    pub port: u16,
    /// Random number of its call.
    pub number: u32,
    /// Number of the group if it is connected with its members, otherwise 0.
    pub group: u32,
}

/// A rank of the group to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Survivor {
    /// Its number in the old group.
    pub(crate) rank: usize,
    /// Port at which it listens, or 0.
    pub(crate) port: u16,
    /// Random number of its call.
    pub(crate) number: u32,
}

/// Ranks that form a smaller group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Survivors {
    /// Number of the group, which all members compute alike.
    pub(crate) group: u32,
    /// In the order of their ranks.
    pub(crate) members: Vec<Survivor>,
    excluded: RankSet,
}

impl Survivors {
    /// Returns the members by their ranks in the old group.
    pub(crate) fn old_ranks(&self) -> Vec<usize> {
        self.members.iter().map(|member| member.rank).collect()
    }

    /// Returns the rank in the new group of a rank of the old one; `None` if it is no member.
    pub(crate) fn new_rank(&self, old: usize) -> Option<usize> {
        self.members.iter().position(|member| member.rank == old)
    }
}

/// Progress of a rank's call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ShrinkState {
    /// These ranks have not sent the same set yet, or are not connected.
    Waiting(Vec<usize>),
    /// All members have sent the same set: this rank is to connect with them.
    Ready(Survivors),
    /// The group with which this rank is connected is formed.
    Formed,
    /// That rank goes on without this one.
    Excluded { by: usize },
    /// The group is uniform, and this rank reaches no majority of it.
    Isolated { reachable: RankSet },
}

/// One rank's part in the agreement, over all its calls.
pub(super) struct ShrinkAgreement {
    rank: usize,
    ranks: usize,
    uniform: Option<Uniform>,
    excluded: RankSet,
    /// Last notice of each rank that was not excluded when it came.
    notices: Vec<Option<ShrinkNotice>>,
    /// This rank in its last call.
    own: Option<Survivor>,
    is_withdrawn: bool,
    /// Group with whose members this rank is connected.
    connected: Option<Survivors>,
    has_formed: bool,
    /// The notice that the others were sent last.
    sent: Option<ShrinkNotice>,
}

impl ShrinkAgreement {
    pub(super) fn new(rank: usize, ranks: usize) -> Self {
        Self {
            rank,
            ranks,
            uniform: None,
            excluded: RankSet::default(),
            notices: vec![None; ranks],
            own: None,
            is_withdrawn: false,
            connected: None,
            has_formed: false,
            sent: None,
        }
    }

    /// The agreement of a group with this setting.
    pub(super) fn with_uniform(self, uniform: Option<Uniform>) -> Self {
        Self { uniform, ..self }
    }

    /// Begins a call of this rank, which listens at a port and has drawn a number. Returns whether it may: this rank belongs to one
    /// smaller group at most.
    ///
    /// # Panics
    /// If the group has more than [`VOTING_RANKS_MAX`] ranks.
    pub(super) fn begin(&mut self, port: u16, number: u32) -> bool {
        assert!(self.ranks <= VOTING_RANKS_MAX, "{} ranks, of at most {VOTING_RANKS_MAX}", self.ranks);
        if self.has_formed {
            return false;
        }
        self.own = Some(Survivor { rank: self.rank, port, number });
        self.is_withdrawn = false;
        true
    }

    /// Ends the call without a group. Returns whether it has ended: the group may have been formed meanwhile.
    pub(super) fn withdraw(&mut self) -> bool {
        if self.has_formed {
            return false;
        }
        self.is_withdrawn = true;
        self.connected = None;
        true
    }

    /// A rank is lost.
    pub(super) fn exclude(&mut self, rank: usize) {
        if rank != self.rank && rank < VOTING_RANKS_MAX && !self.has_formed {
            self.excluded = self.excluded.with(rank);
            self.settle();
        }
    }

    /// A notice came from another rank.
    pub(super) fn accept(&mut self, peer: usize, notice: ShrinkNotice) {
        if self.has_formed || self.excluded.contains(peer) {
            return;
        }
        self.notices[peer] = Some(notice);
        if notice.excluded.contains(self.rank) {
            return;
        }
        self.excluded = self.excluded.union(notice.excluded);
        let is_connected = self.connected.as_ref().is_some_and(|connected| connected.group == notice.group);
        self.has_formed = is_connected && notice.stage == ShrinkStage::Formed;
        self.settle();
    }

    /// This rank is connected with all members of a group. Returns whether it still is to be.
    pub(super) fn connect(&mut self, survivors: &Survivors) -> bool {
        let is_right = matches!(self.state(), ShrinkState::Ready(ready) if ready == *survivors);
        if is_right {
            self.connected = Some(survivors.clone());
            self.settle();
        }
        is_right
    }

    /// Whether this rank is connected with the members of this group, and waits for the others to say the same.
    pub(super) fn awaits(&self, survivors: &Survivors) -> bool {
        !self.has_formed
            && self.connected.as_ref() == Some(survivors)
            && self.survivors().as_ref() == Ok(survivors)
    }

    /// Returns the progress of this rank's call.
    pub(super) fn state(&self) -> ShrinkState {
        if self.has_formed {
            return ShrinkState::Formed;
        }
        if let Some(by) = self.excluded_by() {
            return ShrinkState::Excluded { by };
        }
        if !self.is_majority() && !self.may_be_formed() {
            return ShrinkState::Isolated { reachable: self.reachable() };
        }
        match self.survivors() {
            Err(missing) => {
                // Ranks that have given up have done so for those that have not called at all.
                let silent: Vec<usize> =
                    missing.iter().copied().filter(|rank| self.notices[*rank].is_none()).collect();
                ShrinkState::Waiting(if silent.is_empty() { missing } else { silent })
            }
            Ok(survivors) if self.connected.as_ref() == Some(&survivors) => ShrinkState::Waiting(
                self.others().filter(|rank| !self.is_connected(*rank, &survivors)).collect(),
            ),
            Ok(survivors) => ShrinkState::Ready(survivors),
        }
    }

    /// Returns this rank's notice if the others do not know it.
    pub(super) fn next_notice(&mut self) -> Option<ShrinkNotice> {
        let Survivor { port, number, .. } = self.own?;
        let stage = match () {
            () if self.has_formed => ShrinkStage::Formed,
            () if self.is_withdrawn => ShrinkStage::Withdrawn,
            () if self.connected.is_some() && self.survivors().ok() == self.connected => {
                ShrinkStage::Connected
            }
            () => ShrinkStage::Proposed,
        };
        let group = match (stage, &self.connected) {
            (ShrinkStage::Connected | ShrinkStage::Formed, Some(connected)) => connected.group,
            _ => 0,
        };
        let notice = ShrinkNotice { stage, excluded: self.excluded, port, number, group };
        let is_new = self.sent != Some(notice);
        self.sent = Some(notice);
        is_new.then_some(notice)
    }

    /// Notes that the group is formed, once all members are connected.
    fn settle(&mut self) {
        let Some(connected) = self.connected.as_ref().filter(|_| !self.has_formed) else { return };
        self.has_formed = self.survivors().as_ref() == Ok(connected)
            && self.is_majority()
            && self.others().all(|rank| self.is_connected(rank, connected));
    }

    /// The ranks that are left, if all have sent the same set as this one; otherwise those that have not.
    fn survivors(&self) -> Result<Survivors, Vec<usize>> {
        let own = self.own.filter(|_| !self.is_withdrawn).ok_or_else(Vec::new)?;
        let survivor = |rank: usize| {
            let is_calling = |stage| matches!(stage, ShrinkStage::Proposed | ShrinkStage::Connected);
            let notice = self.notices[rank].filter(|notice| is_calling(notice.stage));
            let notice = notice.filter(|notice| notice.excluded == self.excluded).ok_or(rank)?;
            Ok(Survivor { rank, port: notice.port, number: notice.number })
        };
        let (members, missing): (Vec<_>, Vec<_>) = (0..self.ranks)
            .filter(|rank| !self.excluded.contains(*rank))
            .map(|rank| if rank == self.rank { Ok(own) } else { survivor(rank) })
            .partition(Result::is_ok);
        let missing: Vec<usize> = missing.into_iter().filter_map(Result::err).collect();
        if !missing.is_empty() {
            return Err(missing);
        }
        let members: Vec<Survivor> = members.into_iter().filter_map(Result::ok).collect();
        let numbers = members.iter().flat_map(|member| member.number.to_le_bytes());
        let bytes: Vec<u8> = self.excluded.bits().to_le_bytes().into_iter().chain(numbers).collect();
        Ok(Survivors { group: crc32c::crc32c(&bytes), members, excluded: self.excluded })
    }

    /// A rank that goes on without this one. One that was lost before it formed a group does not go on.
    fn excluded_by(&self) -> Option<usize> {
        let excludes = |rank: &usize| {
            self.notices[*rank].is_some_and(|notice| {
                let goes_on = notice.stage == ShrinkStage::Formed || !self.excluded.contains(*rank);
                goes_on && notice.excluded.contains(self.rank)
            })
        };
        (0..self.ranks).find(excludes)
    }

    /// Whether another rank may have formed the group with which this one is connected: it was to be a member, as far as this rank knows.
    /// Its next notice will tell.
    fn may_be_formed(&self) -> bool {
        self.connected.as_ref().is_some_and(|group| {
            let is_member = |notice: ShrinkNotice| {
                notice.excluded == group.excluded && notice.stage != ShrinkStage::Withdrawn
            };
            self.others().any(|rank| self.notices[rank].is_some_and(is_member))
        })
    }

    /// Whether a rank is connected with all members of a group.
    fn is_connected(&self, rank: usize, group: &Survivors) -> bool {
        self.notices[rank].is_some_and(|notice| {
            matches!(notice.stage, ShrinkStage::Connected | ShrinkStage::Formed)
                && notice.group == group.group
        })
    }

    /// The other ranks that are not excluded.
    fn others(&self) -> impl Iterator<Item = usize> {
        let excluded = self.excluded.with(self.rank);
        (0..self.ranks).filter(move |rank| !excluded.contains(*rank))
    }

    fn reachable(&self) -> RankSet {
        self.excluded.others_of(self.ranks)
    }

    /// Whether enough ranks are left.
    fn is_majority(&self) -> bool {
        self.uniform.is_none_or(|uniform| uniform.is_majority(self.reachable(), self.ranks))
    }
}
