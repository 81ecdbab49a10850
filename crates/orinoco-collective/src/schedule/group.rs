//! Ranks that take part in a schedule.

use std::ops::Range;

use crate::Topology;
use crate::partition::partition;
use crate::reduction_tree::ReductionTree;

/// Members of an operation, numbered from 0: all ranks, those of one board, or the first of each board.
pub(super) struct Group {
    members: Vec<usize>,
    weights: Vec<u32>,
    /// This rank's number among the members.
    pub(super) me: usize,
}

impl Group {
    pub(super) fn all(topology: &Topology, rank: usize) -> Self {
        Self::of(topology, (0..topology.ranks()).collect(), rank)
    }

    /// # Panics
    /// If `rank` is not a member.
    pub(super) fn of(topology: &Topology, members: Vec<usize>, rank: usize) -> Self {
        let weights = members.iter().map(|member| topology.weights()[*member]).collect();
        let me = members.iter().position(|member| *member == rank).expect("a rank of its own group");
        Self { members, weights, me }
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Rank in the communicator of a member.
    pub(super) fn rank(&self, member: usize) -> usize {
        self.members[member]
    }

    pub(super) fn position(&self, rank: usize) -> usize {
        self.members.iter().position(|member| *member == rank).expect("a rank of the group")
    }

    /// All other members. They begin after this one, so that not all ranks turn to the same one first.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (me, len) = (self.me, self.len());
        (1..len).map(move |distance| (me + distance) % len)
    }

    /// Member at a distance after this one, in a circle.
    pub(super) fn after(&self, distance: usize) -> usize {
        (self.me + distance) % self.len()
    }

    /// Member at a distance before this one, in a circle.
    pub(super) fn before(&self, distance: usize) -> usize {
        (self.me + self.len() - distance % self.len()) % self.len()
    }

    /// Slice of a vector for each member.
    pub(super) fn slices(&self, count: usize) -> Vec<Range<usize>> {
        if self.weights.iter().all(|weight| *weight == 0) {
            return partition(count, &vec![1; self.len()]);
        }
        partition(count, &self.weights)
    }

    /// The reduction tree over the members.
    pub(super) fn reduction_tree(&self) -> ReductionTree {
        ReductionTree::new(self.len())
    }
}
