//! Ranks that wait for one another in calls that do not go together: two that both receive, or one that receives while the other
//! reduces. No one of them goes on, so that they need not wait until their deadline.
//!
//! A rank that sleeps tells for whom (its wait), and counts its looks at the flags that it awaits. Of a circle of such ranks, none goes
//! on if each looked once more after all of them were asleep, and found nothing:
//!
//! - What it awaits was not raised before, since it would have seen it.
//! - What it awaits can be raised only by the next rank of the circle, when that one goes on. A rank that awaits one flag cannot be the
//!   first to do so. One that awaits two, the room for a message to one rank and a message from another, needs both for its call to
//!   end, but may go on a little when the other one comes: with what the rank before it in the circle awaits only if that rank had
//!   given the room or the message already, which the look would have seen.
//!
//! So a rank looks for the circle in which it is each time that it wakes ([`Sleep::find`]). It must see the same members, in the same
//! sleeps, three times: at first, then with the numbers of their looks, and then with two more looks of each, of which the second began
//! after the first of these times. Looks are read before the waits, so that those of a later sleep are not taken for looks of this one.
//!
//! A rank tells only for whom it waits just now: a circle through a rank for which it would wait next is found when it does. Waits in
//! two groups are not compared.

use std::sync::atomic::fence;

use super::segment::Segment;
use super::sync::Ordering;
use crate::call::Call;

/// Looks after which one has begun since another rank had read their number.
const LOOKS: u64 = 2;

/// This rank's sleep, which others see.
pub(super) struct Sleep<'a> {
    segment: &'a Segment,
    rank: usize,
    call: Call,
    candidate: Option<Candidate>,
}

/// Circle of ranks that may wait for one another without end.
struct Candidate {
    members: Vec<Member>,
    /// Their looks when they were seen for the second time.
    looks: Option<Vec<u64>>,
}

/// A rank of a circle.
#[derive(PartialEq, Eq)]
struct Member {
    rank: usize,
    /// Version of what it tells: it is another one in each sleep.
    version: u64,
    call: Call,
}

/// The wait of a rank that sleeps.
#[derive(Clone, Copy)]
struct Wait {
    version: u64,
    call: Call,
    /// A bit for each rank that it awaits.
    awaited: u64,
}

/// A rank that waits for this one, perhaps through others, in another call.
#[derive(Clone, Copy)]
pub(super) struct Opposite {
    pub(super) rank: usize,
    pub(super) call: Call,
}

impl<'a> Sleep<'a> {
    /// Begins to sleep until something comes of ranks, all of which this rank needs to go on.
    pub(super) fn begin(
        segment: &'a Segment,
        rank: usize,
        call: Call,
        awaited: impl Iterator<Item = usize>,
    ) -> Self {
        let awaited = awaited.fold(0, |bits, rank| bits | 1u64 << rank);
        // What this rank has raised before is seen by all that see that it sleeps.
        segment.wait(rank).wait.write([call.code(), awaited]);
        Self { segment, rank, call, candidate: None }
    }

    /// Notes that this rank has looked at all that it awaits, and nothing had come.
    pub(super) fn looked(&self) {
        self.segment.wait(self.rank).looks.fetch_add(1, Ordering::Release);
        // The next look sees what others had raised before somebody read the number before this one (`find`).
        fence(Ordering::SeqCst);
    }

    /// Looks whether this rank waits in a circle from which no one goes on, and returns a rank in it whose call is another one.
    pub(super) fn find(&mut self) -> Option<Opposite> {
        let ranks = self.segment.ranks();
        // After the waits that were read before.
        fence(Ordering::SeqCst);
        let looks: Vec<u64> =
            (0..ranks).map(|rank| self.segment.wait(rank).looks.load(Ordering::Acquire)).collect();
        let waits: Vec<Option<Wait>> = (0..ranks).map(|rank| self.wait_of(rank)).collect();
        let is_sure = self.is_sure(&looks, &waits);
        self.candidate.as_ref().filter(|_| is_sure)?.opposite(self.call)
    }

    /// Notes the circle in which this rank is now. Returns whether no one goes on from it, as far as this rank has seen.
    fn is_sure(&mut self, looks: &[u64], waits: &[Option<Wait>]) -> bool {
        let Some(members) = circle(waits, self.rank) else {
            self.candidate = None;
            return false;
        };
        let looks: Vec<u64> = members.iter().map(|member| looks[member.rank]).collect();
        match &mut self.candidate {
            Some(candidate) if candidate.members == members => {
                let before = candidate.looks.get_or_insert_with(|| looks.clone());
                looks.iter().zip(before).all(|(now, before)| now.wrapping_sub(*before) >= LOOKS)
            }
            _ => {
                self.candidate = Some(Candidate { members, looks: None });
                false
            }
        }
    }

    fn wait_of(&self, rank: usize) -> Option<Wait> {
        let (version, [call, awaited]) = self.segment.wait(rank).wait.read()?;
        (awaited != 0).then(|| Wait { version, call: Call::from_code(call), awaited })
    }
}

impl Candidate {
    /// The first member with another call.
    fn opposite(&self, call: Call) -> Option<Opposite> {
        let Member { rank, call, .. } = *self.members.iter().find(|member| member.call != call)?;
        Some(Opposite { rank, call })
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.segment.wait(self.rank).wait.write([0, 0]);
    }
}

/// The shortest circle of waits that leads from a rank back to it, beginning with it.
fn circle(waits: &[Option<Wait>], own: usize) -> Option<Vec<Member>> {
    let awaits = |rank: usize, other: usize| waits[rank].is_some_and(|wait| wait.awaited >> other & 1 == 1);
    // By rank: the one through which it was found.
    let mut through = vec![None; waits.len()];
    let mut found = vec![own];
    let mut next = 0;
    while let Some(&rank) = found.get(next) {
        next += 1;
        if awaits(rank, own) {
            let mut members: Vec<Member> = std::iter::successors(Some(rank), |rank| through[*rank])
                .map(|rank| member(waits, rank))
                .collect::<Option<_>>()?;
            members.reverse();
            return Some(members);
        }
        for (other, through) in through.iter_mut().enumerate() {
            if other != own && through.is_none() && awaits(rank, other) {
                *through = Some(rank);
                found.push(other);
            }
        }
    }
    None
}

fn member(waits: &[Option<Wait>], rank: usize) -> Option<Member> {
    waits[rank].map(|Wait { version, call, .. }| Member { rank, version, call })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_circle_through_a_rank_is_found() {
        let waits = |awaited: &[u64]| -> Vec<Option<Wait>> {
            let wait = |awaited: &u64| {
                (*awaited != 0).then_some(Wait { version: 2, call: Call::from_code(1), awaited: *awaited })
            };
            awaited.iter().map(wait).collect()
        };
        let ranks = |awaited: &[u64], own| {
            circle(&waits(awaited), own)
                .map(|members| members.iter().map(|member| member.rank).collect::<Vec<_>>())
        };
        assert_eq!(ranks(&[0b10, 0b01], 0), Some(vec![0, 1]));
        assert_eq!(ranks(&[0b10, 0b01], 1), Some(vec![1, 0]));
        assert_eq!(ranks(&[0b10, 0], 0), None, "rank 1 does not wait");
        assert_eq!(ranks(&[0b010, 0b100, 0b001], 1), Some(vec![1, 2, 0]));
        assert_eq!(ranks(&[0b010, 0b100, 0b010], 0), None, "the circle is between the others");
        assert_eq!(ranks(&[0b110, 0b001, 0b010], 0), Some(vec![0, 1]));
        assert_eq!(ranks(&[0b1, 0], 0), Some(vec![0]), "a rank that awaits itself: memory that others wrote");
        assert_eq!(ranks(&[u64::MAX, 0], 0), Some(vec![0]), "bits of ranks that are none");
    }

    #[test]
    fn a_circle_is_sure_after_two_looks_of_all_members_in_the_same_sleeps() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(Segment::file_bytes(2) as u64).unwrap();
        let segment = Segment::map(&file, 2).unwrap();
        let wait = |version, awaited| Some(Wait { version, call: Call::from_code(1), awaited });
        let in_circle = |version| [wait(4, 0b10), wait(version, 0b01)];
        // Looks of both ranks, the version of the other one's wait, and whether that is enough.
        let check = |passes: &[([u64; 2], u64, bool)]| {
            let mut sleep = Sleep::begin(&segment, 0, Call::from_code(1), [1].into_iter());
            for (looks, version, is_sure) in passes {
                assert_eq!(sleep.is_sure(looks, &in_circle(*version)), *is_sure, "{passes:?}");
            }
        };
        check(&[([5, 7], 2, false), ([6, 7], 2, false), ([8, 8], 2, false), ([9, 9], 2, true)]);
        check(&[([5, u64::MAX], 2, false), ([6, u64::MAX], 2, false), ([8, 1], 2, true)]);
        // It went on and slept again: looks before that do not count.
        check(&[
            ([5, 7], 2, false),
            ([6, 7], 2, false),
            ([8, 9], 6, false),
            ([9, 9], 6, false),
            ([11, 11], 6, true),
        ]);
    }
}
