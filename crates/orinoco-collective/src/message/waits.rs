//! Ranks that wait for messages of one another without end, because their calls do not match: a deadlock, in MPI's terms.
//!
//! With its signs of life, a rank tells all others for whose messages it waits, and how many it has received from each. A rank that hears that
//! another one waits for it tells if it *blocks* that one: it is in another call, and has sent just as many messages as the other one has
//! received, so none is under way. A wait thus has two ends, and a rank that knows both follows the wait from one rank to the next.
//!
//! **A circle of such waits never ends.** A rank that blocks another one can send it only messages of its own call until that
//! call ends, and the one that waits needs a message of another call. So the blocking call would have to end before the waiting one, and around a
//! circle, each call before itself. That holds however old the notices are: a rank does not leave a call in which it waits for a peer
//! without one more message of that peer, so two ends with equal numbers of messages are of the same wait. A rank that blocks the one before
//! is followed only in the call in which it does (`number`).
//!
//! **A rank of the chain may also wait in an operation of all ranks** that cannot end before this rank calls it. This rank has not, and cannot
//! before its own call ends, so that closes a circle, too, whatever messages have gone.
//!
//! Waits of ranks in the same call prove nothing: a rank may send what is awaited before it has received what it awaits. So
//! a circle that leads through two ranks in one operation of all ranks is found only in the second way.
//!
//! The method is edge chasing, as in Chandy, Misra and Haas, "Distributed Deadlock Detection", ACM Transactions on Computer Systems 1 (1983), with
//! notices to all ranks in the place of probes.

use std::collections::VecDeque;

use crate::Call;

/// One end of a wait for a message: of the rank that waits, or of the rank that blocks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitEnd {
    /// Rank at the other end.
    pub peer: usize,
    /// Call of this end's rank.
    pub call: Call,
    /// Number of that call among those of the rank; wraps around.
    pub number: u32,
    /// Messages from the blocking rank to the waiting one, received or sent so far; wraps around.
    pub messages: u32,
}

/// Waits of all ranks of a group, as one of them knows them.
pub(super) struct Waits {
    rank: usize,
    ends: Vec<Ends>,
}

/// Ends of waits that one rank has told.
#[derive(Clone, Default)]
struct Ends {
    waiting: Vec<WaitEnd>,
    blocking: Vec<WaitEnd>,
}

impl Waits {
    /// Creates the waits of a group in which none is known.
    pub(super) fn new(rank: usize, ranks: usize) -> Self {
        Self { rank, ends: vec![Ends::default(); ranks] }
    }

    /// Sets the waits of this rank. `blocks` returns its end of the wait of another rank, if it blocks that one.
    pub(super) fn set(
        &mut self,
        waiting: impl Iterator<Item = WaitEnd>,
        blocks: impl Fn(usize, &WaitEnd) -> Option<WaitEnd>,
    ) {
        let Ends { waiting: mut own, mut blocking } = std::mem::take(&mut self.ends[self.rank]);
        own.clear();
        // Several messages of a rank may be awaited.
        waiting.for_each(|end| add(&mut own, end));
        blocking.clear();
        let of_others = self.ends.iter().enumerate();
        let for_this = of_others.flat_map(|(rank, ends)| ends.waiting.iter().map(move |end| (rank, end)));
        let for_this = for_this.filter(|(_, end)| end.peer == self.rank);
        for_this.filter_map(|(rank, end)| blocks(rank, end)).for_each(|end| add(&mut blocking, end));
        self.ends[self.rank] = Ends { waiting: own, blocking };
    }

    /// The waits of a rank are over, or are told again.
    pub(super) fn clear(&mut self, rank: usize) {
        self.ends[rank].waiting.clear();
        self.ends[rank].blocking.clear();
    }

    /// A rank has told that it waits.
    pub(super) fn add_waiting(&mut self, rank: usize, end: WaitEnd) {
        if self.ends[rank].waiting.len() < self.ends.len() {
            add(&mut self.ends[rank].waiting, end);
        }
    }

    /// A rank has told that it blocks another one.
    pub(super) fn add_blocking(&mut self, rank: usize, end: WaitEnd) {
        if self.ends[rank].blocking.len() < self.ends.len() {
            add(&mut self.ends[rank].blocking, end);
        }
    }

    /// Waits of this rank.
    pub(super) fn waiting(&self) -> &[WaitEnd] {
        &self.ends[self.rank].waiting
    }

    /// Waits for this rank that it blocks.
    pub(super) fn blocking(&self) -> &[WaitEnd] {
        &self.ends[self.rank].blocking
    }

    /// Looks for the shortest circle of waits in which this rank is. Returns the rank for which it waits there, and that one's call.
    ///
    /// `waits_for_this` says whether a rank is in this call, and the call is of an operation of all ranks that cannot end before this rank calls
    /// it, which it has not.
    pub(super) fn circle(&self, waits_for_this: impl Fn(usize, Call) -> bool) -> Option<(usize, Call)> {
        let number = self.waiting().first()?.number;
        let blockers = self.blockers(self.rank, number);
        let mut open: VecDeque<(Blocker, Blocker)> = blockers.map(|first| (first, first)).collect();
        if open.is_empty() {
            return None;
        }
        let mut is_seen = vec![false; self.ends.len()];
        while let Some((first, last)) = open.pop_front() {
            if last.rank == self.rank || waits_for_this(last.rank, last.call) {
                return Some((first.rank, first.call));
            }
            if !std::mem::replace(&mut is_seen[last.rank], true) {
                open.extend(self.blockers(last.rank, last.number).map(|next| (first, next)));
            }
        }
        None
    }

    /// Ranks that block a rank in its call of this number.
    fn blockers(&self, rank: usize, number: u32) -> impl Iterator<Item = Blocker> {
        let waiting = self.ends[rank].waiting.iter().filter(move |end| end.number == number);
        waiting.flat_map(move |waiting| {
            let told = self.ends.get(waiting.peer).map_or(&[] as &[WaitEnd], |ends| &ends.blocking);
            let is_same = move |end: &&WaitEnd| end.peer == rank && end.messages == waiting.messages;
            let blocker =
                move |end: &WaitEnd| Blocker { rank: waiting.peer, number: end.number, call: end.call };
            told.iter().filter(is_same).map(blocker)
        })
    }
}

/// Adds an end, unless it is known.
fn add(ends: &mut Vec<WaitEnd>, end: WaitEnd) {
    if !ends.contains(&end) {
        ends.push(end);
    }
}

/// Rank that blocks another one.
#[derive(Clone, Copy)]
struct Blocker {
    rank: usize,
    number: u32,
    call: Call,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(peer: usize, number: u32, messages: u32) -> WaitEnd {
        WaitEnd { peer, call: Call::from_code(u64::from(number)), number, messages }
    }

    /// Waits as rank 0 knows them: who waits for whom. Call 10 + r of rank r, after one message from r to each other rank.
    fn waits(ranks: usize, pairs: &[(usize, usize)]) -> Waits {
        let number = |rank: usize| 10 + rank as u32;
        let mut waits = Waits::new(0, ranks);
        for &(waiting, blocking) in pairs {
            waits.add_waiting(waiting, end(blocking, number(waiting), blocking as u32));
            waits.add_blocking(blocking, end(waiting, number(blocking), blocking as u32));
        }
        waits
    }

    fn found(waits: &Waits) -> Option<usize> {
        waits.circle(|_, _| false).map(|(rank, call)| {
            assert_eq!(call.code(), 10 + rank as u64);
            rank
        })
    }

    #[test]
    fn circles_through_a_rank_are_found() {
        type Pairs = &'static [(usize, usize)];
        let cases: [(Pairs, Option<usize>); 8] = [
            (&[(0, 1), (1, 0)], Some(1)),
            (&[(0, 1), (1, 2), (2, 0)], Some(1)),
            (&[(0, 3), (0, 1), (1, 2), (2, 3), (2, 0)], Some(1)),
            (&[(0, 1), (1, 2), (2, 0), (0, 3), (3, 0)], Some(3)),
            // The rank waits for one of a circle.
            (&[(0, 1), (1, 2), (2, 1)], None),
            (&[(0, 1), (1, 2), (2, 3)], None),
            (&[(1, 2), (2, 0)], None),
            (&[], None),
        ];
        for (pairs, expected) in cases {
            assert_eq!(found(&waits(4, pairs)), expected, "{pairs:?}");
        }
    }

    #[test]
    fn both_ends_of_a_wait_tell_the_same() {
        let whole = [(0, 1), (1, 2), (2, 0)];
        for missing in 0..whole.len() {
            let (waiting, blocking) = whole[missing];
            let others: Vec<_> = whole.iter().copied().filter(|pair| pair.0 != waiting).collect();
            let rest = |told: Option<WaitEnd>| {
                let mut waits = waits(4, &others);
                waits.add_waiting(waiting, end(blocking, 10 + waiting as u32, blocking as u32));
                told.into_iter().for_each(|told| waits.add_blocking(blocking, told));
                found(&waits)
            };
            let (number, messages) = (10 + blocking as u32, blocking as u32);
            assert_eq!(rest(Some(end(waiting, number, messages))), Some(1));
            assert_eq!(rest(None), None);
            // A message is under way, or has gone since; it blocks another rank.
            for told in [end(waiting, number, messages + 1), end(3, number, messages)] {
                assert_eq!(rest(Some(told)), None, "{waiting} waits for {blocking}, which says {told:?}");
            }
            if blocking != 0 {
                assert_eq!(
                    rest(Some(end(waiting, 9, messages))),
                    None,
                    "in a call in which {blocking} did not wait"
                );
            }
        }
    }

    #[test]
    fn a_rank_that_cannot_end_its_call_without_this_one_waits_for_it() {
        let waits = waits(4, &[(0, 1), (1, 2)]);
        for (of, expected) in [(1, Some(1)), (2, Some(1)), (3, None), (0, None)] {
            let found = waits.circle(|rank, call| rank == of && call.code() == 10 + rank as u64);
            assert_eq!(found.map(|(rank, _)| rank), expected);
        }
    }

    #[test]
    fn what_is_told_is_bounded_and_is_told_again() {
        let mut waits = waits(3, &[(0, 1), (1, 2), (2, 0)]);
        assert_eq!(found(&waits), Some(1));
        waits.clear(2);
        assert_eq!(found(&waits), None);
        for (number, bound) in [(0, 1), (0, 1), (1, 2), (2, 3), (3, 3)] {
            waits.add_waiting(2, end(usize::MAX, number, 0));
            waits.add_blocking(2, end(usize::MAX, number, 0));
            assert_eq!((waits.ends[2].waiting.len(), waits.ends[2].blocking.len()), (bound, bound));
        }
        assert_eq!(found(&waits), None);
    }

    #[test]
    fn a_rank_tells_its_waits_once_and_whom_it_blocks() {
        let mut waits = Waits::new(1, 3);
        waits.add_waiting(0, end(1, 20, 7));
        waits.add_waiting(2, end(0, 22, 8));
        waits.add_waiting(2, end(1, 22, 9));
        let own = [end(0, 21, 1), end(2, 21, 2), end(0, 21, 1)];
        waits.set(own.into_iter(), |peer, theirs| (theirs.messages == 7).then(|| end(peer, 21, 7)));
        assert_eq!(waits.waiting(), &own[..2]);
        assert_eq!(waits.blocking(), [end(0, 21, 7)]);
        waits.set(std::iter::empty(), |_, _| None);
        assert!(waits.waiting().is_empty() && waits.blocking().is_empty());
    }
}
