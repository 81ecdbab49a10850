use std::ops::Range;

/// The reduction tree of a number of leaves, which is the order of every reproducible reduction.
///
/// Let `k` be the largest power of two that is not above the number of leaves, and `r` the rest. The first `2 r` leaves are
/// combined in pairs; these pairs and the other leaves are `k` nodes, which a complete binary tree combines: neighbours first.
/// The operand with the lower ranks is the left one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReductionTree {
    pairs: usize,
    /// Number of nodes above the pairs, a power of two.
    pub(crate) nodes: usize,
}

impl ReductionTree {
    pub(crate) fn new(leaves: usize) -> Self {
        let nodes = 1 << leaves.ilog2();
        Self { pairs: leaves - nodes, nodes }
    }

    /// Whether any node is a pair of leaves.
    pub(crate) fn has_pairs(self) -> bool {
        self.pairs > 0
    }

    /// Node of a leaf.
    pub(crate) fn node(self, leaf: usize) -> usize {
        if leaf < 2 * self.pairs { leaf / 2 } else { leaf - self.pairs }
    }

    /// First leaf of a node.
    pub(crate) fn first(self, node: usize) -> usize {
        if node < self.pairs { 2 * node } else { node + self.pairs }
    }

    /// Second leaf of a node, if it is a pair.
    pub(crate) fn second(self, node: usize) -> Option<usize> {
        (node < self.pairs).then_some(2 * node + 1)
    }

    /// Leaves of consecutive nodes.
    pub(crate) fn leaves(self, nodes: Range<usize>) -> Range<usize> {
        let end = if nodes.end == self.nodes { self.nodes + self.pairs } else { self.first(nodes.end) };
        self.first(nodes.start)..end
    }
}
