//! Health of a group as one rank sees it: who gives signs of life, the first failure, and the agreement that follows it in a uniform
//! group. Time is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use super::agreement::{Agreement, Outcome, Uniform, Vote};
use super::notice::{Failure, Notice, NumberedCall};
use super::shrink::{ShrinkAgreement, ShrinkNotice, ShrinkState, Survivors};
use super::waits::{WaitEnd, Waits};
use crate::{Call, FailureCause};

/// Signs of life in the time after which a rank counts as dead: several may come late on a busy machine.
const BEATS: u32 = 10;

/// Health of a group as one rank sees it.
///
/// A transport carries [notices](Notice) over links of their own, next to those of the messages, and tells when a link closes. The
/// first failure ends the group: it is said to all ranks, and every operation fails from then on.
pub struct Health {
    rank: usize,
    silence: Duration,
    peers: Vec<Peer>,
    /// Operation under way, for failures that are noticed during it.
    call: Call,
    /// Rank for which the operation waits, if it does not go on.
    awaited: Option<usize>,
    /// That operation, if it is one of all ranks.
    waiting_in: Option<NumberedCall>,
    /// Waits of all ranks for messages of one another.
    waits: Waits,
    /// Whether all ranks know notices of waits.
    tells_waits: bool,
    failure: Option<Failure>,
    /// By rank, its silence when it first was too long.
    silent: Vec<Option<Duration>>,
    /// Said to all peers, in order.
    notices: VecDeque<Notice>,
    next_beat: Duration,
    looked: Duration,
    /// Agreement on the outcomes of operations, if the group is uniform.
    agreement: Option<Agreement>,
    /// Agreement on a smaller group.
    shrink: ShrinkAgreement,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// Time of its last sign of life, the rank that it awaited then, and in which operation.
    Alive { heard: Duration, awaited: Option<usize>, waiting_in: Option<NumberedCall> },
    /// It said that it leaves, or its link is closed.
    Gone { cause: FailureCause },
}

impl Health {
    /// Health of a group in which all ranks were heard of just now. A rank that is not heard of for `silence` counts as dead.
    pub fn new(rank: usize, ranks: usize, silence: Duration, now: Duration) -> Self {
        Self {
            rank,
            silence,
            peers: vec![Peer::Alive { heard: now, awaited: None, waiting_in: None }; ranks],
            call: Call::from_code(0),
            awaited: None,
            waiting_in: None,
            waits: Waits::new(rank, ranks),
            tells_waits: true,
            failure: None,
            silent: vec![None; ranks],
            notices: VecDeque::new(),
            next_beat: now,
            looked: now,
            agreement: None,
            shrink: ShrinkAgreement::new(rank, ranks),
        }
    }

    /// The health of a group with this setting.
    ///
    /// # Panics
    /// If the group is uniform and has more than 64 ranks.
    #[must_use]
    pub fn with_uniform(mut self, uniform: Option<Uniform>) -> Self {
        self.agreement = uniform.map(|uniform| Agreement::new(self.rank, self.peers.len(), uniform));
        self.shrink = ShrinkAgreement::new(self.rank, self.peers.len()).with_uniform(uniform);
        self
    }

    /// The health of a group of which not all ranks may know notices of waits.
    #[must_use]
    pub(crate) fn with_waits(mut self, tells_waits: bool) -> Self {
        self.tells_waits = tells_waits;
        self
    }

    /// Notes the operation that this rank calls.
    pub fn begin(&mut self, call: Call) {
        self.call = call;
    }

    /// Notes the rank for which the operation waits, and the operation if it is one of all ranks.
    pub fn waits_for(&mut self, rank: Option<usize>, operation: Option<NumberedCall>) {
        self.awaited = rank;
        self.waiting_in = operation;
    }

    /// Notes this rank's waits for messages. `blocks` returns its end of the wait of another rank, if it blocks that one.
    pub fn waits_for_messages(
        &mut self,
        waiting: impl Iterator<Item = WaitEnd>,
        blocks: impl Fn(usize, &WaitEnd) -> Option<WaitEnd>,
    ) {
        self.waits.set(waiting, blocks);
    }

    /// Notes that the operation goes on.
    pub fn goes_on(&mut self) {
        self.waits_for(None, None);
        self.waits.clear(self.rank);
    }

    /// Operations in which other ranks wait, as far as this rank knows.
    pub fn waiting_ranks(&self) -> impl Iterator<Item = (usize, NumberedCall)> {
        self.peers.iter().enumerate().filter_map(|(rank, peer)| match peer {
            Peer::Alive { waiting_in, .. } => Some((rank, (*waiting_in)?)),
            Peer::Gone { .. } => None,
        })
    }

    /// A rank for which this one waits in a circle of ranks that wait for one another without end, and its call. `holds_up` says whether
    /// another rank waits in an operation of all ranks that cannot end before this rank calls it, which it has not.
    pub fn circle(&self, holds_up: impl Fn(usize, NumberedCall) -> bool) -> Option<(usize, Call)> {
        self.waits.circle(|rank, call| match self.peers[rank] {
            Peer::Alive { waiting_in: Some(numbered), .. } => {
                numbered.call == call && holds_up(rank, numbered)
            }
            _ => false,
        })
    }

    /// The operation has waited for `rank` for too long. If that rank waits itself, the one for which it waits is late, and so on.
    pub fn late(&mut self, rank: usize, waited: Duration) {
        let mut late = rank;
        // The chain is no longer than the group, unless it is a circle.
        for _ in 0..self.peers.len() {
            match self.peers[late] {
                Peer::Alive { awaited: Some(next), .. } if next < self.peers.len() && next != self.rank => {
                    late = next
                }
                _ => break,
            }
        }
        self.fail(late, FailureCause::Late(waited));
    }

    /// The failure that ended the group.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Reason for which a rank is gone, if it is.
    pub fn gone(&self, rank: usize) -> Option<FailureCause> {
        match self.peers[rank] {
            Peer::Gone { cause } => Some(cause),
            Peer::Alive { .. } => None,
        }
    }

    /// Reason for which nothing can be expected of a rank any more, if so. Other ranks may have failed before.
    pub(crate) fn lost(&self, rank: usize) -> Option<FailureCause> {
        let failed = self.failure.filter(|failure| failure.rank == rank).map(|failure| failure.cause);
        self.gone(rank).or(failed).or(self.silent[rank].map(FailureCause::Silent))
    }

    /// Number of ranks that are lost.
    pub(crate) fn lost_ranks(&self) -> usize {
        (0..self.peers.len()).filter(|rank| self.lost(*rank).is_some()).count()
    }

    /// A rank that has failed or left, and the reason: the failure that ended the group, or else any rank that is gone.
    pub fn lost_rank(&self) -> Option<(usize, FailureCause)> {
        let failed = self.failure.map(|failure| (failure.rank, failure.cause));
        failed.or_else(|| (0..self.peers.len()).find_map(|rank| Some((rank, self.gone(rank)?))))
    }

    /// Notes a failure, and has it said to all. Only the first counts: what follows from it is no news, except for the agreement.
    pub fn fail(&mut self, rank: usize, cause: FailureCause) {
        if cause.is_absence() {
            self.exclude(rank);
        }
        if matches!(cause, FailureCause::Late(_)) && self.failure.is_none() {
            // It is alive, and may learn that the others go on without it.
            self.shrink.exclude(rank);
            self.announce();
        }
        self.note(Failure { rank, cause, call: self.call });
    }

    /// Says the first failure to all, also if this rank was told: it may leave next, and must not be blamed for that.
    fn note(&mut self, failure: Failure) {
        if self.failure.is_none() {
            self.failure = Some(failure);
            self.notices.push_back(Notice::Failed(failure));
            if let Some(agreement) = &mut self.agreement {
                agreement.start();
            }
        }
        self.vote();
    }

    /// This rank has come one step further in the operation: it has the result, or has passed a barrier after it.
    ///
    /// # Errors
    /// The failure after which no rank goes on. The outcome is that on which the ranks agree.
    pub(super) fn advance(&mut self) -> Result<(), Failure> {
        let may = self.agreement.as_mut().is_none_or(Agreement::advance);
        // A rank that leaves votes, too, but calls nothing more.
        if may { Ok(()) } else { Err(self.failure.expect("ranks vote after a failure")) }
    }

    /// Returns the outcome of an operation of a uniform group with a failure, once it is decided. Operations of all ranks are
    /// numbered from 0.
    pub(super) fn outcome(&self, operation: u64) -> Option<Outcome> {
        self.agreement.as_ref().and_then(|agreement| agreement.outcome(operation))
    }

    /// The agreement takes too long: this rank counts as isolated.
    pub(super) fn give_up(&mut self) {
        if let Some(agreement) = &mut self.agreement {
            agreement.give_up();
        }
        self.vote();
    }

    /// A rank takes no part in agreements any more.
    fn exclude(&mut self, rank: usize) {
        if let Some(agreement) = &mut self.agreement {
            agreement.exclude(rank);
        }
        self.vote();
        self.shrink.exclude(rank);
        self.announce();
    }

    /// This rank begins to make a smaller group, with a port at which it listens and a random number. Returns whether it may: a rank
    /// forms one smaller group at most.
    pub(crate) fn begin_shrink(&mut self, port: u16, number: u32) -> bool {
        let may = self.shrink.begin(port, number);
        self.announce();
        may
    }

    /// Returns how far this rank is in making a smaller group.
    pub(crate) fn shrink_state(&self) -> ShrinkState {
        self.shrink.state()
    }

    /// Reason for which the other ranks count this one as failed, if they have sent it.
    pub(crate) fn blamed(&self) -> Option<FailureCause> {
        self.failure.filter(|failure| failure.rank == self.rank).map(|failure| failure.cause)
    }

    /// This rank is connected with all members of the smaller group. Returns whether they are still those.
    pub(crate) fn connect_shrunk(&mut self, survivors: &Survivors) -> bool {
        let is_right = self.shrink.connect(survivors);
        self.announce();
        is_right
    }

    /// Whether this rank is connected with the members of this group, and waits for the others to say the same.
    pub(crate) fn awaits_shrunk(&self, survivors: &Survivors) -> bool {
        self.shrink.awaits(survivors)
    }

    /// This rank makes no smaller group any more. Returns whether it does not: the group may have been formed meanwhile.
    pub(crate) fn withdraw_shrink(&mut self) -> bool {
        let has_withdrawn = self.shrink.withdraw();
        self.announce();
        has_withdrawn
    }

    fn shrinks(&mut self, peer: usize, notice: ShrinkNotice) {
        if notice.excluded.iter().all(|rank| rank < self.peers.len()) {
            self.shrink.accept(peer, notice);
            self.announce();
        } else {
            self.exclude(peer);
            self.fail(peer, FailureCause::Unexpected);
        }
    }

    /// Has this rank's part in making a smaller group said to all if it has changed.
    fn announce(&mut self) {
        let notice = self.shrink.next_notice();
        self.notices.extend(notice.map(Notice::Shrink));
    }

    fn voted(&mut self, peer: usize, vote: Vote) {
        let is_of_group = vote.excluded.iter().all(|rank| rank < self.peers.len());
        if self.agreement.is_none() || !is_of_group {
            self.exclude(peer);
            return self.fail(peer, FailureCause::Unexpected);
        }
        if self.failure.is_none() && !vote.is_final {
            // It says the failure first.
            self.fail(peer, FailureCause::Unexpected);
        }
        if let Some(agreement) = &mut self.agreement {
            agreement.accept(peer, vote);
        }
        self.vote();
    }

    /// Has this rank's vote said to all if it is a new one.
    fn vote(&mut self) {
        let vote = self.agreement.as_mut().and_then(Agreement::next_vote);
        self.notices.extend(vote.map(Notice::Vote));
    }

    /// This rank calls no further operation.
    pub fn leave(&mut self) {
        if let Some(agreement) = &mut self.agreement {
            agreement.leave();
        }
        self.vote();
        self.notices.push_back(Notice::Leaving);
    }

    /// A notice came from a peer.
    pub fn received(&mut self, peer: usize, notice: Notice, now: Duration) {
        if let Peer::Alive { heard, .. } = &mut self.peers[peer] {
            *heard = now;
        }
        match notice {
            Notice::Alive { awaited: rank, call } => {
                if let Peer::Alive { awaited, waiting_in, .. } = &mut self.peers[peer] {
                    (*awaited, *waiting_in) = (rank, call);
                }
                self.waits.clear(peer);
            }
            Notice::Waiting(end) => self.waits.add_waiting(peer, end),
            Notice::Blocking(end) => self.waits.add_blocking(peer, end),
            Notice::Leaving => {
                self.peers[peer] = Peer::Gone { cause: FailureCause::Left };
                self.exclude(peer);
            }
            Notice::Vote(vote) => self.voted(peer, vote),
            Notice::Shrink(notice) => self.shrinks(peer, notice),
            Notice::Failed(failure) if failure.rank < self.peers.len() => {
                self.note(failure);
            }
            Notice::Failed(_) => self.fail(peer, FailureCause::Unexpected),
        }
    }

    /// The link with a peer is closed. Unless it said that it leaves, its process has ended.
    pub fn closed(&mut self, peer: usize) {
        if let Peer::Alive { .. } = self.peers[peer] {
            self.peers[peer] = Peer::Gone { cause: FailureCause::Ended };
            self.fail(peer, FailureCause::Ended);
        }
    }

    /// A peer sent what is no notice.
    pub fn refused(&mut self, peer: usize) {
        // It may have been a vote.
        self.exclude(peer);
        self.fail(peer, FailureCause::Damaged);
    }

    /// Whether there is a notice to send.
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// The next notice for all peers.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Time at which [`Health::handle_timeout`] is to be called next.
    pub fn poll_timeout(&self) -> Duration {
        self.next_beat
    }

    /// Has a sign of life said to all, with this rank's ends of waits.
    pub(super) fn give_sign(&mut self) {
        self.notices.push_back(Notice::Alive { awaited: self.awaited, call: self.waiting_in });
        // After a failure, nobody compares waits any more.
        if self.tells_waits && self.failure.is_none() {
            self.notices.extend(self.waits.waiting().iter().copied().map(Notice::Waiting));
            self.notices.extend(self.waits.blocking().iter().copied().map(Notice::Blocking));
        }
    }

    /// This rank's ends of waits.
    #[cfg(test)]
    pub(super) fn wait_ends(&self) -> [&[WaitEnd]; 2] {
        [self.waits.waiting(), self.waits.blocking()]
    }

    /// Time between two signs of life.
    pub(super) fn beat(&self) -> Duration {
        self.silence / BEATS
    }

    /// Gives a sign of life when it is time, and notes who has given none for too long.
    pub fn handle_timeout(&mut self, now: Duration) {
        if now < self.next_beat {
            return;
        }
        let beat = self.beat();
        self.next_beat = now + beat;
        self.give_sign();
        // Time in which this rank did not look does not count: it may have been stopped itself.
        let was_stopped = now.saturating_sub(self.looked) > self.silence / 4;
        self.looked = now;
        for rank in 0..self.peers.len() {
            let Peer::Alive { heard, .. } = &mut self.peers[rank] else { continue };
            if was_stopped || rank == self.rank {
                *heard = now;
            } else if now.saturating_sub(*heard) + beat > self.silence {
                // At the next look it would be too late.
                let silent = now.saturating_sub(*heard);
                self.silent[rank].get_or_insert(silent);
                self.fail(rank, FailureCause::Silent(silent));
            }
        }
        if let Some(agreement) = &mut self.agreement {
            if was_stopped {
                agreement.restart_round();
            }
            agreement.handle_timeout(now, self.silence);
        }
        self.vote();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Operation;

    #[test]
    fn ends_of_waits_are_told_to_groups_that_know_them_until_the_operation_goes_on() {
        let millis = Duration::from_millis;
        let call = |root| Call::new(Operation::Send, None, None, root, 3);
        let waiting = WaitEnd { peer: 1, call: call(1), number: 5, messages: 7 };
        let theirs = WaitEnd { peer: 0, call: call(0), number: 2, messages: 8 };
        let blocking = WaitEnd { number: 5, call: call(1), ..theirs };
        for tells_waits in [true, false] {
            let mut health = Health::new(0, 3, millis(500), Duration::ZERO).with_waits(tells_waits);
            let wait = |health: &mut Health| {
                health.waits_for(Some(1), None);
                health.waits_for_messages(std::iter::once(waiting), |_, _| Some(blocking));
            };
            wait(&mut health);
            health.handle_timeout(Duration::ZERO);
            health.received(2, Notice::Waiting(theirs), Duration::ZERO);
            wait(&mut health);
            health.handle_timeout(millis(50));
            health.goes_on();
            health.handle_timeout(millis(100));
            let notices: Vec<Notice> = std::iter::from_fn(|| health.next_notice()).collect();
            let waits = Notice::Alive { awaited: Some(1), call: None };
            let goes_on = Notice::Alive { awaited: None, call: None };
            match tells_waits {
                true => assert_eq!(
                    notices,
                    [
                        waits,
                        Notice::Waiting(waiting),
                        waits,
                        Notice::Waiting(waiting),
                        Notice::Blocking(blocking),
                        goes_on
                    ]
                ),
                false => assert_eq!(notices, [waits, waits, goes_on]),
            }
        }
    }

    #[test]
    fn ranks_that_are_silent_after_the_first_failure_are_lost_too() {
        let millis = Duration::from_millis;
        let mut health = Health::new(0, 4, millis(500), Duration::ZERO);
        let alive = Notice::Alive { awaited: None, call: None };
        for now in (0..2000).step_by(50).map(millis) {
            // Rank 1 is silent from the beginning, rank 2 after a second, rank 3 never.
            if now < millis(1000) {
                health.received(2, alive, now);
            }
            health.received(3, alive, now);
            health.handle_timeout(now);
            let lost = [1, 2, 3].map(|rank| health.lost(rank).is_some());
            assert_eq!(lost, [now >= millis(500), now >= millis(1450), false], "after {now:?}");
            assert_eq!(health.lost_ranks(), lost.into_iter().filter(|is_lost| *is_lost).count());
        }
        assert!(health.failure().is_some_and(|failure| failure.rank == 1), "the first one ends the group");
        assert!(matches!(health.lost(2), Some(FailureCause::Silent(_))));
        health.received(3, Notice::Leaving, millis(2000));
        assert_eq!(health.lost(3), Some(FailureCause::Left));
    }
}
