//! Algorithms in which partners are at distances 1, 2, 4, ... They follow the reduction tree: its pairs first, then its
//! levels.

use std::ops::Range;

use super::Region;
use super::builder::Builder;
use super::group::Group;
use crate::partition::{blocks, partition};
use crate::reduction_tree::ReductionTree;

/// Dissemination barrier (Hensgen, Finkel and Manber, 1988): after the step at distance `d`, a rank knows of the `2 d` ranks
/// before it.
pub(super) fn barrier(b: &mut Builder, group: &Group) {
    for distance in powers_below(group.len()) {
        b.round();
        b.signal(group.rank(group.after(distance)), group.rank(group.before(distance)));
    }
}

pub(super) fn all_reduce(b: &mut Builder, group: &Group, input: Region, output: Region) {
    let tree = group.reduction_tree();
    let Some((node, mut current)) = join_pair(b, group, tree, input) else {
        return receive_from_first(b, group, tree, output);
    };
    let partial = b.partial(if tree.nodes > 2 { input.len } else { 0 });
    for distance in powers_below(tree.nodes) {
        let received = b.like(current.buffer, current.len);
        let partner = group.rank(tree.first(node ^ distance));
        b.round();
        b.send(partner, current);
        b.receive(partner, received);
        let is_last = 2 * distance == tree.nodes;
        let into = if is_last { output } else { partial };
        b.reduce(into, in_order(node, distance, current, received));
        current = into;
    }
    if tree.nodes == 1 {
        b.reduce(output, vec![current]);
    }
    send_to_second(b, group, tree, output);
}

pub(super) fn halving_all_reduce(b: &mut Builder, group: &Group, input: Region, output: Region) {
    let tree = group.reduction_tree();
    let Some((node, current)) = join_pair(b, group, tree, input) else {
        return receive_from_first(b, group, tree, output);
    };
    // In the order of the reversed bits, nodes whose last bits are equal have neighbouring slices.
    let in_order = partition(input.len, &vec![1; tree.nodes]);
    let slices: Vec<Range<usize>> =
        (0..tree.nodes).map(|node| in_order[reversed(node, tree.nodes)].clone()).collect();
    let exchange = Exchange { group, tree, node, slices: &slices };
    exchange.reduce_scatter(b, current, &[output.part(slices[node].clone())]);
    exchange.all_gather(b, output);
    send_to_second(b, group, tree, output);
}

pub(super) fn halving_reduce_scatter(
    b: &mut Builder,
    group: &Group,
    input: Region,
    output: Region,
    counts: &[usize],
) {
    let tree = group.reduction_tree();
    let Some((node, current)) = join_pair(b, group, tree, input) else {
        return receive_from_first(b, group, tree, output);
    };
    let slices = node_slices(tree, counts);
    let exchange = Exchange { group, tree, node, slices: &slices };
    let Some(second) = tree.second(node) else {
        return exchange.reduce_scatter(b, current, &[output]);
    };
    let of_second = b.scratch(counts[second]);
    exchange.reduce_scatter(b, current, &[output, of_second]);
    b.round();
    b.send(group.rank(second), of_second);
}

pub(super) fn all_gather(b: &mut Builder, group: &Group, input: Region, output: Region, counts: &[usize]) {
    let tree = group.reduction_tree();
    let of_members = blocks(counts);
    let node = tree.node(group.me);
    if group.me != tree.first(node) {
        b.round();
        b.send(group.rank(tree.first(node)), input);
        return receive_from_first(b, group, tree, output);
    }
    b.round();
    if let Some(second) = tree.second(node) {
        b.receive(group.rank(second), output.part(of_members[second].clone()));
    }
    b.copy(input, output.part(of_members[group.me].clone()));
    Exchange { group, tree, node, slices: &node_slices(tree, counts) }.all_gather(b, output);
    send_to_second(b, group, tree, output);
}

/// Exchange among the nodes of the reduction tree, in which node `n` ends with, or begins with, slice `n` of the vector.
///
/// At distance `d`, a node and its partner hold the slices of all nodes whose numbers end in the same bits below `d`.
struct Exchange<'a> {
    group: &'a Group,
    tree: ReductionTree,
    node: usize,
    slices: &'a [Range<usize>],
}

impl Exchange<'_> {
    /// Reduces slice `node` of `current` over all nodes into `finals`, which follow one another in the slice.
    fn reduce_scatter(&self, b: &mut Builder, mut current: Region, finals: &[Region]) {
        if self.tree.nodes == 1 {
            reduce_into(b, finals, vec![current]);
            return;
        }
        let partial = b.partial(if self.tree.nodes > 2 { current.len } else { 0 });
        for distance in powers_below(self.tree.nodes) {
            let partner = self.node ^ distance;
            let (sent, kept) = (self.ranges(partner, 2 * distance), self.ranges(self.node, 2 * distance));
            let received: Vec<Region> =
                kept.iter().map(|range| b.like(current.buffer, range.len())).collect();
            b.round();
            b.send_all(self.rank(partner), sent.into_iter().map(|range| current.part(range)).collect());
            b.receive_all(self.rank(partner), received.clone());
            for (range, received) in kept.into_iter().zip(received) {
                let operands = in_order(self.node, distance, current.part(range.clone()), received);
                if 2 * distance == self.tree.nodes {
                    reduce_into(b, finals, operands);
                } else {
                    b.reduce(partial.part(range), operands);
                }
            }
            current = partial;
        }
    }

    /// Completes `output`, of which each node has its own slice.
    fn all_gather(&self, b: &mut Builder, output: Region) {
        for distance in powers_below(self.tree.nodes).rev() {
            let partner = self.node ^ distance;
            let held =
                |node| self.ranges(node, 2 * distance).into_iter().map(|range| output.part(range)).collect();
            b.round();
            b.send_all(self.rank(partner), held(self.node));
            b.receive_all(self.rank(partner), held(partner));
        }
    }

    /// The slices of all nodes whose numbers equal `node` modulo `modulus`, in the vector's order. Slices that follow one
    /// another are one range.
    fn ranges(&self, node: usize, modulus: usize) -> Vec<Range<usize>> {
        let nodes = (node % modulus..self.tree.nodes).step_by(modulus);
        let mut slices: Vec<Range<usize>> =
            nodes.map(|node| self.slices[node].clone()).filter(|slice| !slice.is_empty()).collect();
        slices.sort_unstable_by_key(|slice| slice.start);
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for slice in slices {
            match ranges.last_mut() {
                Some(last) if last.end == slice.start => last.end = slice.end,
                _ => ranges.push(slice),
            }
        }
        ranges
    }

    fn rank(&self, node: usize) -> usize {
        self.group.rank(self.tree.first(node))
    }
}

/// Reduces operands into several regions, which follow one another in the operands.
fn reduce_into(b: &mut Builder, finals: &[Region], operands: Vec<Region>) {
    let mut start = 0;
    for into in finals {
        let range = start..start + into.len;
        b.reduce(*into, operands.iter().map(|operand| operand.part(range.clone())).collect());
        start = range.end;
    }
}

/// Combines the pairs at the bottom of the reduction tree. The second of a pair sends its vector and leaves: it gets `None`. The
/// others get their node and its vector.
fn join_pair(b: &mut Builder, group: &Group, tree: ReductionTree, input: Region) -> Option<(usize, Region)> {
    let node = tree.node(group.me);
    b.round();
    if group.me != tree.first(node) {
        b.send(group.rank(tree.first(node)), input);
        return None;
    }
    if let Some(second) = tree.second(node) {
        let received = b.like(input.buffer, input.len);
        let partial = b.partial(input.len);
        b.receive(group.rank(second), received);
        b.reduce(partial, vec![input, received]);
        return Some((node, partial));
    }
    if !tree.has_pairs() || input.buffer.is_partial() {
        return Some((node, input));
    }
    // Its partner may send accumulators, and both send the same.
    let partial = b.partial(input.len);
    b.reduce(partial, vec![input]);
    Some((node, partial))
}

/// The second of a pair receives the result from the first.
fn receive_from_first(b: &mut Builder, group: &Group, tree: ReductionTree, output: Region) {
    b.round();
    b.receive(group.rank(tree.first(tree.node(group.me))), output);
}

fn send_to_second(b: &mut Builder, group: &Group, tree: ReductionTree, output: Region) {
    b.round();
    if let Some(second) = tree.second(tree.node(group.me)) {
        b.send(group.rank(second), output);
    }
}

/// The operand of the lower ranks is the left one.
pub(super) fn in_order(node: usize, distance: usize, own: Region, received: Region) -> Vec<Region> {
    if node & distance == 0 { vec![own, received] } else { vec![received, own] }
}

/// Slice of each node: the blocks of its leaves.
fn node_slices(tree: ReductionTree, counts: &[usize]) -> Vec<Range<usize>> {
    let of_members = blocks(counts);
    (0..tree.nodes)
        .map(|node| {
            let leaves = tree.leaves(node..node + 1);
            of_members[leaves.start].start..of_members[leaves.end - 1].end
        })
        .collect()
}

/// Number with the lowest bits in reverse order; `numbers` is the power of two above all numbers.
fn reversed(number: usize, numbers: usize) -> usize {
    if numbers == 1 { 0 } else { number.reverse_bits() >> (usize::BITS - numbers.ilog2()) }
}

/// 1, 2, 4, ... below `end`.
pub(super) fn powers_below(end: usize) -> impl DoubleEndedIterator<Item = usize> {
    (0..usize::BITS).map(|bit| 1 << bit).take_while(move |power| *power < end).collect::<Vec<_>>().into_iter()
}
