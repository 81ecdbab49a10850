//! Agreement of the ranks of a [`Uniform`] group on the outcome of the operation in which one of them failed. Time and messages are
//! arguments.
//!
//! Each rank has a [`Position`]. After an operation come two barriers. A rank that passes the first knows that all ranks have the
//! result: the operation is *precommitted*. A rank that passes the second knows that all ranks know that, and returns.
//!
//! When a rank learns of a failure, its position stays as it is. It sends all ranks a [`Vote`]: its position, and the ranks that it
//! excludes because they are gone or silent. A rank that receives a vote adopts its exclusions and, if it has the result, its precommit,
//! and votes again if its own vote changed. It decides once every rank that it has not excluded has voted with the same exclusions and,
//! if it has precommitted, with the precommit: so every rank of the majority knows the outcome before any rank returns it, and any later
//! majority has one of these ranks. The outcome is the result if the operation is precommitted, otherwise the error. The rank then sends
//! a final vote, on which the others decide too. A rank that leaves between two operations sends one too: all earlier operations have
//! completed on it, and no other can complete without it.

use std::fmt;
use std::time::Duration;

/// Setting of a group whose ranks agree on the outcome of every operation of all ranks.
///
/// If a rank fails during an operation, every surviving rank that can reach more than half of the group (counting itself) returns the
/// same outcome: either all return the result, or all return an error. The other survivors return
/// [`CollectiveError::Isolated`](crate::CollectiveError::Isolated): they cannot know what the others return. If exactly half can be
/// reached, the half with the witness counts as the majority. This adds two barriers to every operation.
///
/// Messages between two ranks ([`send`](crate::Communicator::send), [`recv`](crate::Communicator::recv)) have no such agreement, and
/// neither has a [`ShmGroup`](crate::ShmGroup).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Uniform {
    /// The rank with which exactly half of the ranks is enough. Without one, or if the group does not have that rank, each half counts
    /// as isolated. In a group that is split off, or of an epoch of a cluster, it is a rank of that group.
    pub witness: Option<usize>,
}

impl Uniform {
    /// Whether some ranks of so many are the majority.
    pub(super) fn is_majority(self, some: RankSet, ranks: usize) -> bool {
        let is_half = 2 * some.len() == ranks;
        2 * some.len() > ranks || is_half && self.witness.is_some_and(|witness| some.contains(witness))
    }
}

/// Most ranks of a uniform group: a vote has a bit for each.
pub(crate) const VOTING_RANKS_MAX: usize = u64::BITS as usize;

/// A set of ranks of a group.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct RankSet(u64);

impl RankSet {
    /// The set with these bits, rank 0 in the lowest.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits of the set, rank 0 in the lowest.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Whether a rank is in the set.
    pub fn contains(self, rank: usize) -> bool {
        rank < VOTING_RANKS_MAX && self.0 >> rank & 1 == 1
    }

    /// Ranks of the set, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..VOTING_RANKS_MAX).filter(move |rank| self.contains(*rank))
    }

    fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) fn with(self, rank: usize) -> Self {
        assert!(rank < VOTING_RANKS_MAX, "rank {rank} of at most {VOTING_RANKS_MAX}");
        Self(self.0 | 1 << rank)
    }

    pub(super) fn union(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// The ranks below `ranks` that are not in the set.
    pub(super) fn others_of(self, ranks: usize) -> Self {
        (0..ranks).filter(|rank| !self.contains(*rank)).fold(Self::default(), Self::with)
    }
}

impl fmt::Debug for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Progress of a rank: 3 times the completed operations, plus 1 if it has the result of the next one, or plus 2 if it also knows that all
/// ranks have it.
///
/// A group that carries out an operation each nanosecond comes to the largest one after two centuries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position(pub u64);

/// Positions of an operation.
const PHASES: u64 = 3;

/// Progress of a rank in an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It does not have the result.
    Pending,
    /// It has the result.
    Done,
    /// It knows that all ranks have the result.
    Precommitted,
}

impl Position {
    fn operation(self) -> u64 {
        self.0 / PHASES
    }

    fn phase(self) -> Phase {
        match self.0 % PHASES {
            0 => Phase::Pending,
            1 => Phase::Done,
            _ => Phase::Precommitted,
        }
    }

    fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Whether an operation is precommitted, or returned already.
    fn has_precommitted(self, operation: u64) -> bool {
        self.operation() > operation || self.operation() == operation && self.phase() == Phase::Precommitted
    }
}

/// Vote of a rank after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vote {
    /// Its position, at which it stays.
    pub position: Position,
    /// Ranks that are gone or silent, as far as it knows.
    pub excluded: RankSet,
    /// Whether the position tells the outcome of every operation: its sender has decided, or has left between two operations.
    pub is_final: bool,
}

/// Outcome of an operation in a group with a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All ranks have the result.
    Done,
    /// No rank returns a result.
    Failed,
    /// This rank is not in the majority, and cannot know what the others return.
    Isolated {
        /// Ranks that it can reach, itself included.
        reachable: RankSet,
    },
}

/// End of the agreement as this rank sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Positions tell the outcome of each operation.
    Decided,
    Isolated,
}

/// Time for one round of votes, as a multiple of the silence after which a rank counts as dead: a rank that gives signs of life has
/// learnt after one silence of whatever the others know. A rank that does not vote within it is excluded.
const ROUND_SILENCES: u32 = 2;

/// Longest time for the agreement of so many ranks: each round but the last excludes a rank. One silence more for each round, in which
/// the thread that looks at the time may lack a core.
pub(super) fn time_max(ranks: usize, silence: Duration) -> Duration {
    silence.saturating_mul((ROUND_SILENCES + 1) * u32::try_from(ranks).expect("few ranks"))
}

/// One rank's part in the agreement.
pub(super) struct Agreement {
    rank: usize,
    ranks: usize,
    uniform: Uniform,
    position: Position,
    excluded: RankSet,
    /// Ranks that exclude this one. This rank treats them as unreachable, but does not spread that: other ranks may still reach them, and
    /// one broken link would otherwise split the group.
    excluded_by: RankSet,
    /// Last vote of each rank that was not excluded when it came.
    votes: Vec<Option<Vote>>,
    /// Whether there is a failure. The position only changes by the votes of others from then on.
    is_voting: bool,
    /// A final vote was received.
    has_final_vote: bool,
    verdict: Option<Verdict>,
    /// The vote that the others were told last.
    sent: Option<Vote>,
    /// Time at which the current round began; set at its first timeout check.
    round_since: Option<Duration>,
}

impl Agreement {
    /// The agreement of a rank before the first operation.
    ///
    /// # Panics
    /// If there are more than [`VOTING_RANKS_MAX`] ranks.
    pub(super) fn new(rank: usize, ranks: usize, uniform: Uniform) -> Self {
        assert!(ranks <= VOTING_RANKS_MAX, "{ranks} ranks; a uniform group has at most {VOTING_RANKS_MAX}");
        Self {
            rank,
            ranks,
            uniform,
            position: Position::default(),
            excluded: RankSet::default(),
            excluded_by: RankSet::default(),
            votes: vec![None; ranks],
            is_voting: false,
            has_final_vote: false,
            verdict: None,
            sent: None,
            round_since: None,
        }
    }

    /// This rank has come to the next position. Returns whether it may: the first vote has told the others where it stays.
    pub(super) fn advance(&mut self) -> bool {
        if !self.is_voting {
            self.position = self.position.next();
        }
        !self.is_voting
    }

    /// There is a failure: this rank votes from now on.
    pub(super) fn start(&mut self) {
        if !self.is_voting {
            self.is_voting = true;
            // A rank that left before the failure may have returned the operation.
            self.votes.clone().into_iter().flatten().for_each(|vote| self.adopt(vote.position));
            self.settle();
        }
    }

    /// A rank is gone or silent, or cannot vote.
    pub(super) fn exclude(&mut self, rank: usize) {
        if self.verdict.is_none() && rank != self.rank {
            self.excluded = self.excluded.with(rank);
            self.settle();
        }
    }

    /// A vote came from another rank.
    pub(super) fn accept(&mut self, voter: usize, vote: Vote) {
        if self.verdict.is_some() || self.unreachable().contains(voter) {
            return;
        }
        if vote.excluded.contains(self.rank) {
            self.excluded_by = self.excluded_by.with(voter);
            return self.settle();
        }
        self.excluded = self.excluded.union(vote.excluded);
        self.votes[voter] = Some(vote);
        self.has_final_vote |= vote.is_final;
        if self.is_voting {
            self.adopt(vote.position);
            self.settle();
        }
    }

    /// This rank leaves, between two operations. Whatever the others do, they have precommitted all that it has returned, and
    /// cannot precommit anything else without it.
    pub(super) fn leave(&mut self) {
        if self.verdict.is_none() && self.position.phase() == Phase::Pending {
            self.is_voting = true;
            self.verdict = Some(Verdict::Decided);
        }
    }

    /// Restarts the round after this process was suspended, since no votes could be handled meanwhile.
    pub(super) fn restart_round(&mut self) {
        self.round_since = None;
    }

    /// Excludes the ranks that have not voted for too long.
    pub(super) fn handle_timeout(&mut self, now: Duration, silence: Duration) {
        if !self.is_voting || self.verdict.is_some() {
            return;
        }
        let since = *self.round_since.get_or_insert(now);
        if now.saturating_sub(since) >= silence.saturating_mul(ROUND_SILENCES) {
            let missing: Vec<usize> = self.voters().filter(|voter| !self.agrees(*voter)).collect();
            missing.into_iter().for_each(|voter| self.exclude(voter));
        }
    }

    /// Gives up: this rank counts as isolated, unless it has decided.
    pub(super) fn give_up(&mut self) {
        self.start();
        let voters: Vec<usize> = self.voters().collect();
        voters.into_iter().for_each(|voter| self.exclude(voter));
        self.verdict.get_or_insert(Verdict::Isolated);
    }

    /// Returns this rank's vote if the others do not know it.
    pub(super) fn next_vote(&mut self) -> Option<Vote> {
        let is_final = self.verdict == Some(Verdict::Decided);
        let vote = Vote { position: self.position, excluded: self.excluded, is_final };
        let is_new = self.is_voting && self.sent != Some(vote);
        if is_new {
            self.sent = Some(vote);
            self.round_since = None;
        }
        is_new.then_some(vote)
    }

    /// Returns the outcome of an operation, once it is decided. Operations are numbered from 0.
    pub(super) fn outcome(&self, operation: u64) -> Option<Outcome> {
        Some(match self.verdict? {
            Verdict::Isolated => Outcome::Isolated { reachable: self.unreachable().others_of(self.ranks) },
            Verdict::Decided if self.position.has_precommitted(operation) => Outcome::Done,
            Verdict::Decided => Outcome::Failed,
        })
    }

    /// Takes over from another rank that the operation is precommitted. A rank that does not have the result adopts nothing,
    /// whatever others claim.
    fn adopt(&mut self, position: Position) {
        if self.position.phase() == Phase::Done && position > self.position {
            self.position = self.position.next();
        }
    }

    /// Decides if that is possible.
    fn settle(&mut self) {
        if !self.is_voting || self.verdict.is_some() {
            return;
        }
        // What a final vote tells holds on both sides. The set of reachable ranks only shrinks, so a minority cannot become a
        // majority.
        let verdict = match () {
            () if self.has_final_vote => Verdict::Decided,
            () if !self.is_majority() => Verdict::Isolated,
            () if self.voters().all(|voter| self.agrees(voter)) => Verdict::Decided,
            () => return,
        };
        self.verdict = Some(verdict);
    }

    fn unreachable(&self) -> RankSet {
        self.excluded.union(self.excluded_by)
    }

    /// The other ranks that are not excluded.
    fn voters(&self) -> impl Iterator<Item = usize> {
        let excluded = self.excluded.with(self.rank);
        (0..self.ranks).filter(move |rank| !excluded.contains(*rank))
    }

    /// Whether a rank has voted as this one does. Of a precommitted operation all ranks must know before one returns: this one may
    /// be cut off next, and the others decide without it.
    fn agrees(&self, voter: usize) -> bool {
        let is_precommitted = self.position.phase() == Phase::Precommitted;
        self.votes[voter].is_some_and(|vote| {
            vote.excluded == self.excluded && (!is_precommitted || vote.position >= self.position)
        })
    }

    fn is_majority(&self) -> bool {
        self.uniform.is_majority(self.unreachable().others_of(self.ranks), self.ranks)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicU64, Ordering};

    use orinoco_core::Rng;
    use orinoco_sim::check_seeds;

    use super::*;

    const SILENCE: Duration = Duration::from_millis(500);

    #[test]
    fn without_a_bound_of_the_silence_a_round_has_none() {
        let mut one = Agreement::new(0, 3, Uniform { witness: None });
        one.start();
        for now in [Duration::ZERO, Duration::from_secs(1 << 40)] {
            one.handle_timeout(now, Duration::MAX);
            assert!(one.excluded.bits() == 0 && one.verdict.is_none(), "{now:?}");
        }
        assert_eq!(time_max(64, Duration::MAX), Duration::MAX);
    }

    /// Ranks that are so many steps in their first operation.
    fn ranks_at<const RANKS: usize>(steps: [u64; RANKS], witness: Option<usize>) -> [Agreement; RANKS] {
        std::array::from_fn(|rank| {
            let mut one = Agreement::new(rank, RANKS, Uniform { witness });
            assert!((0..steps[rank]).all(|_| one.advance()));
            one
        })
    }

    /// The ranks in `alive` notice that the others are gone, and vote until nobody has anything new to say.
    fn vote(all: &mut [Agreement], alive: &[usize]) {
        for rank in alive {
            let gone = (0..all.len()).filter(|rank| !alive.contains(rank));
            gone.for_each(|gone| all[*rank].exclude(gone));
            all[*rank].start();
        }
        loop {
            let votes: Vec<(usize, Vote)> =
                alive.iter().filter_map(|rank| Some((*rank, all[*rank].next_vote()?))).collect();
            if votes.is_empty() {
                return;
            }
            for ((voter, vote), receiver) in
                votes.iter().flat_map(|vote| alive.iter().map(move |rank| (vote, rank)))
            {
                if voter != receiver {
                    all[*receiver].accept(*voter, *vote);
                }
            }
        }
    }

    fn outcomes(all: &[Agreement], of: &[usize]) -> Vec<Option<Outcome>> {
        of.iter().map(|rank| all[*rank].outcome(0)).collect()
    }

    fn isolated(reachable: &[usize]) -> Option<Outcome> {
        let reachable = reachable.iter().copied().fold(RankSet::default(), RankSet::with);
        Some(Outcome::Isolated { reachable })
    }

    fn a_vote(position: u64, excluded: u64) -> Vote {
        Vote { position: Position(position), excluded: RankSet::from_bits(excluded), is_final: false }
    }

    #[test]
    fn an_operation_that_one_rank_has_precommitted_is_done_on_all() {
        let mut all = ranks_at([2, 1, 1], None);
        vote(&mut all, &[0, 1]);
        assert_eq!(outcomes(&all, &[0, 1]), [Some(Outcome::Done); 2]);
        assert_eq!(all[1].outcome(1), Some(Outcome::Failed), "the next operation");
    }

    #[test]
    fn an_operation_that_no_rank_has_precommitted_fails_on_all() {
        let mut all = ranks_at([1, 0, 1, 2, 1], None);
        vote(&mut all, &[0, 1, 2]);
        assert_eq!(outcomes(&all, &[0, 1, 2]), [Some(Outcome::Failed); 3]);
    }

    #[test]
    fn a_minority_is_isolated_and_the_witness_decides_for_half() {
        for (witness, expected) in
            [(None, isolated(&[0, 1])), (Some(1), Some(Outcome::Failed)), (Some(9), isolated(&[0, 1]))]
        {
            let mut all = ranks_at([0; 4], witness);
            vote(&mut all, &[0, 1]);
            assert_eq!(outcomes(&all, &[0, 1]), [expected; 2], "{witness:?}");
        }
        let mut all = ranks_at([2; 5], None);
        vote(&mut all, &[3, 4]);
        assert_eq!(outcomes(&all, &[3, 4]), [isolated(&[3, 4]); 2]);
    }

    #[test]
    fn a_rank_stays_where_its_first_vote_says() {
        let [mut one, ..] = ranks_at([1, 1, 1], None);
        assert!(one.next_vote().is_none(), "nothing has failed");
        one.exclude(2);
        assert!(one.next_vote().is_none(), "nothing has failed");
        one.start();
        assert_eq!(one.next_vote(), Some(a_vote(1, 0b100)));
        assert!(!one.advance());
        assert!(one.next_vote().is_none(), "it says nothing twice");
    }

    #[test]
    fn a_rank_without_the_result_believes_no_claim() {
        for (position, is_final) in [(2, false), (u64::MAX, false), (u64::MAX, true)] {
            let [mut one, ..] = ranks_at([0, 0, 0], None);
            one.start();
            one.exclude(2);
            one.accept(1, Vote { is_final, ..a_vote(position, 0b100) });
            assert_eq!(one.outcome(0), Some(Outcome::Failed));
        }
    }

    #[test]
    fn a_result_is_returned_only_when_the_others_know_of_it() {
        let [mut one, ..] = ranks_at([2, 1, 1], None);
        one.start();
        one.exclude(2);
        one.accept(1, a_vote(1, 0b100));
        assert_eq!(one.outcome(0), None);
        one.accept(1, a_vote(2, 0b100));
        assert_eq!(one.outcome(0), Some(Outcome::Done));
    }

    #[test]
    fn votes_of_excluded_ranks_are_ignored() {
        let [mut one, ..] = ranks_at([1; 5], None);
        one.start();
        one.exclude(4);
        one.accept(4, Vote { is_final: true, ..a_vote(2, 0b1000) });
        assert_eq!((one.next_vote(), one.outcome(0)), (Some(a_vote(1, 0b1_0000)), None));
    }

    #[test]
    fn a_rank_that_excludes_this_one_is_out_of_its_reach_alone() {
        let [mut one, ..] = ranks_at([1; 3], None);
        one.start();
        one.accept(1, a_vote(2, 0b1));
        assert_eq!((one.next_vote(), one.outcome(0)), (Some(a_vote(1, 0)), None));
        one.accept(2, a_vote(2, 0b1));
        assert_eq!((one.next_vote(), one.outcome(0)), (None, isolated(&[0])));
    }

    #[test]
    fn a_rank_that_leaves_between_operations_tells_what_it_has_returned() {
        let [mut leaver, mut other] = ranks_at([3, 2], None);
        leaver.leave();
        let last = leaver.next_vote().expect("its last vote");
        assert!(last.is_final);
        other.accept(0, last);
        other.exclude(0);
        assert!(other.advance(), "there is no failure");
        other.start();
        assert_eq!((other.outcome(0), other.outcome(1)), (Some(Outcome::Done), Some(Outcome::Failed)));
        // It would have, too, if the failure had come before the barrier had passed.
        let [_, mut other] = ranks_at([3, 1], None);
        other.accept(0, last);
        other.start();
        assert_eq!(other.outcome(0), Some(Outcome::Done));
        let [mut early, _] = ranks_at([1, 1], None);
        early.leave();
        assert!(early.next_vote().is_none(), "in the middle of an operation it does not know");
    }

    #[test]
    fn a_rank_that_does_not_vote_is_excluded_after_a_while() {
        let [mut one, ..] = ranks_at([1; 4], None);
        one.start();
        one.exclude(3);
        one.accept(1, a_vote(1, 0b1000));
        one.next_vote();
        one.handle_timeout(SILENCE, SILENCE);
        one.handle_timeout(SILENCE * (1 + ROUND_SILENCES) - Duration::from_millis(1), SILENCE);
        assert_eq!((one.next_vote(), one.outcome(0)), (None, None));
        one.handle_timeout(SILENCE * (1 + ROUND_SILENCES), SILENCE);
        assert_eq!((one.next_vote(), one.outcome(0)), (Some(a_vote(1, 0b1100)), isolated(&[0, 1])));
    }

    #[test]
    fn a_rank_that_gives_up_is_isolated_unless_it_has_decided() {
        let mut all = ranks_at([2, 1, 1], None);
        all[2].give_up();
        assert_eq!(all[2].outcome(0), isolated(&[2]));
        vote(&mut all, &[0, 1]);
        all[0].give_up();
        assert_eq!(all[0].outcome(0), Some(Outcome::Done));
    }

    /// A group whose votes wait on their links.
    struct Network {
        all: Vec<Agreement>,
        /// By sender and receiver.
        links: Vec<Vec<VecDeque<Vote>>>,
        is_dead: Vec<bool>,
        /// Operations that each rank has returned without a failure.
        returned: Vec<u64>,
    }

    impl Network {
        fn new(ranks: usize, witness: Option<usize>) -> Self {
            let all = (0..ranks).map(|rank| Agreement::new(rank, ranks, Uniform { witness })).collect();
            let links = vec![vec![VecDeque::new(); ranks]; ranks];
            Self { all, links, is_dead: vec![false; ranks], returned: vec![0; ranks] }
        }

        /// Something happens to a rank. What it says then is on its way.
        fn step(&mut self, rng: &mut Rng) {
            let ranks = self.all.len();
            let rank = rng.usize(..ranks);
            let other = (rank + rng.usize(1..ranks)) % ranks;
            if self.is_dead[rank] {
                return;
            }
            match rng.u32(..100) {
                0 => self.all[rank].start(),
                1 | 2 => {
                    self.all[rank].start();
                    self.all[rank].exclude(other);
                }
                3 => self.die(rank, rng),
                4 if rng.u32(..4) == 0 => self.all[rank].leave(),
                5..40 => self.advance(rank),
                _ => {
                    if let Some(vote) = self.links[other][rank].pop_front() {
                        self.all[rank].start();
                        self.all[rank].accept(other, vote);
                    }
                }
            }
            if let Some(vote) = self.all[rank].next_vote() {
                self.links[rank].iter_mut().for_each(|link| link.push_back(vote));
            }
        }

        /// The rank goes on, if no barrier keeps it.
        fn advance(&mut self, rank: usize) {
            let position = self.all[rank].position;
            let is_behind = |one: &Agreement| one.position < position;
            let is_free = position.phase() == Phase::Pending || !self.all.iter().any(is_behind);
            if is_free && self.all[rank].advance() {
                self.returned[rank] = self.all[rank].position.operation();
            }
        }

        /// The rank ends, and some of what it has said is lost.
        fn die(&mut self, rank: usize, rng: &mut Rng) {
            self.is_dead[rank] = true;
            self.links[rank].iter_mut().for_each(|link| link.truncate(rng.usize(..=link.len())));
        }
    }

    /// Votes travel at any speed, and ranks exclude one another whenever they like: still, no rank returns a result of an operation for
    /// which another one returns an error.
    #[test]
    fn no_two_ranks_decide_differently() {
        const STEPS: usize = 1500;
        let differing_sets = AtomicU64::new(0);
        let seeds = check_seeds(10_000, |simulator| {
            let rng = simulator.rng();
            let ranks = rng.usize(2..8);
            let witness = rng.bool().then(|| rng.usize(..ranks));
            let mut network = Network::new(ranks, witness);
            (0..STEPS).for_each(|_| network.step(rng));
            let Network { all, returned, .. } = network;
            // Results of all operations that a rank returns, if it decides.
            let results = |rank: usize| match all[rank].outcome(returned[rank])? {
                Outcome::Done => Some(returned[rank] + 1),
                Outcome::Failed => Some(returned[rank]),
                Outcome::Isolated { .. } => None,
            };
            let decided: Vec<usize> = (0..ranks).filter(|rank| results(*rank).is_some()).collect();
            for rank in &decided {
                let most = (0..ranks).map(|rank| results(rank).unwrap_or(returned[rank])).max();
                assert_eq!(results(*rank), most, "rank {rank} of {ranks}, {witness:?}: {returned:?}");
            }
            let sets = decided.windows(2).any(|pair| all[pair[0]].excluded != all[pair[1]].excluded);
            differing_sets.fetch_add(u64::from(sets), Ordering::Relaxed);
        });
        let differing_sets = differing_sets.into_inner();
        assert!(seeds < 1000 || differing_sets > seeds / 100, "in {differing_sets} of {seeds} seeds");
    }
}
