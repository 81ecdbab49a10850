//! Agreement on the members of a smaller group, as ranks of a `TcpGroup` have it (`message/shrink.rs`), by notices in the segment of the old
//! group: each rank has a place for its last one. A notice covers all earlier ones of its rank, so none is missed, and it stays when
//! its rank has ended.

use std::sync::Arc;
use std::time::Duration;

use super::heartbeat::Watch;
use super::segment::Segment;
use super::wait::{fail, failed};
use crate::FailureCause;
use crate::clock::Ticks;
use crate::message::{Health, NOTICE_BYTES, Notice, ShrinkState, Survivors};

/// Epoch of a group of shared memory: it has one only.
const EPOCH: u32 = 0;

/// One rank's part in the agreement, over all its calls.
pub(super) struct Agreement {
    segment: Arc<Segment>,
    rank: usize,
    ranks: usize,
    silence: Duration,
    start: Ticks,
    /// Keeps the agreement; signs of life are those of the segment.
    health: Health,
    /// By rank.
    watches: Vec<Watch>,
}

impl Agreement {
    /// Begins the part of a rank of the group that it watches.
    pub(super) fn new(
        segment: Arc<Segment>,
        rank: usize,
        watches: Vec<Watch>,
        now: Ticks,
        silence: Duration,
    ) -> Self {
        let ranks = watches.len();
        let health = Health::new(rank, ranks, silence, Duration::ZERO);
        Self { segment, rank, ranks, silence, start: now, health, watches }
    }

    /// Reads the notices of the others, notes who is gone, and publishes what is new.
    pub(super) fn look(&mut self) {
        let now = Ticks::now();
        // Loaded before the notices, and applied after them: a notice that its rank left before this failure was noted is read first.
        // Of a rank that is excluded, no further notice counts, and its last one may be that it has formed the group.
        let ended_by = failed(&self.segment).filter(|(rank, _)| *rank < self.ranks);
        for rank in (0..self.ranks).filter(|rank| *rank != self.rank) {
            let (pulse, watch) = (self.segment.pulse(rank), &mut self.watches[rank]);
            let absence = watch.absence(pulse, now, self.silence);
            // After it was seen to be gone: its last notice is there, and may be that it has formed the group.
            let words = self.segment.notice(rank).read();
            if let Some(notice @ Notice::Shrink(_)) =
                words.and_then(|(_, words)| Notice::decode(&bytes(words), EPOCH))
            {
                self.health.received(rank, notice, now.since(self.start));
            }
            match absence {
                Some(FailureCause::Left) => {
                    self.health.received(rank, Notice::Leaving, now.since(self.start));
                    if self.health.shrink_state() != ShrinkState::Formed {
                        // Ranks may be in an operation still, and wait for one that makes a smaller group already.
                        fail(&self.segment, rank, FailureCause::Left);
                    }
                }
                Some(cause) => self.health.fail(rank, cause),
                None => {}
            }
        }
        if let Some((rank, cause)) = ended_by
            && self.health.failure().is_none()
        {
            self.health.fail(rank, cause);
        }
        self.publish();
    }

    /// Leaves this rank's notice if it is a new one, and notes a failure in the segment, which ends the operations of all ranks.
    fn publish(&mut self) {
        while let Some(notice) = self.health.next_notice() {
            match notice {
                Notice::Shrink(_) => self.segment.notice(self.rank).write(words(&notice.encode(EPOCH))),
                Notice::Failed(failure) => fail(&self.segment, failure.rank, failure.cause),
                _ => {}
            }
        }
    }

    /// Whether the ranks of a group are still to meet.
    pub(super) fn is_ready(&mut self, survivors: &Survivors) -> bool {
        self.look();
        matches!(self.health.shrink_state(), ShrinkState::Ready(ready) if ready == *survivors)
    }

    /// Begins a call of this rank, which has drawn a number. Returns whether it may: a rank forms one smaller group at most.
    pub(super) fn begin(&mut self, number: u32) -> bool {
        let may = self.health.begin_shrink(0, number);
        self.publish();
        may
    }

    /// Notes that this rank has met all members of a group. Returns whether they are still those.
    pub(super) fn connect(&mut self, survivors: &Survivors) -> bool {
        let is_right = self.health.connect_shrunk(survivors);
        self.publish();
        is_right
    }

    /// Ends the call without a group. Returns whether it has ended: the group may have been formed meanwhile.
    pub(super) fn withdraw(&mut self) -> bool {
        let has_withdrawn = self.health.withdraw_shrink();
        self.publish();
        has_withdrawn
    }

    /// Returns the progress of this rank's call.
    pub(super) fn state(&self) -> ShrinkState {
        self.health.shrink_state()
    }

    /// Reason for which the other ranks count this one as failed, if one of them has noted it.
    pub(super) fn blamed(&self) -> Option<FailureCause> {
        self.health.blamed()
    }

    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }
}

fn words(bytes: &[u8; NOTICE_BYTES]) -> [u64; NOTICE_BYTES / 8] {
    let (chunks, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|at| u64::from_le_bytes(chunks[at]))
}

fn bytes(words: [u64; NOTICE_BYTES / 8]) -> [u8; NOTICE_BYTES] {
    let mut bytes = [0; NOTICE_BYTES];
    bytes.chunks_exact_mut(8).zip(words).for_each(|(chunk, word)| chunk.copy_from_slice(&word.to_le_bytes()));
    bytes
}
