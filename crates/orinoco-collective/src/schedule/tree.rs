//! Binomial trees.

use std::ops::Range;

use super::Region;
use super::builder::Builder;
use super::doubling::{in_order, powers_below};
use super::group::Group;
use crate::partition::blocks;
use crate::reduction_tree::ReductionTree;

/// A reduce to rank 0, then a broadcast.
pub(super) fn all_reduce(b: &mut Builder, group: &Group, input: Region, output: Region) {
    reduce(b, group, 0, input, output);
    pass_down(b, group, 0, output);
}

pub(super) fn broadcast(b: &mut Builder, group: &Group, root: usize, input: Region, output: Region) {
    if group.me == root {
        b.round();
        b.copy(input, output);
    }
    pass_down(b, group, root, output);
}

/// At distances ..., 4, 2, 1 after the root, those who have the vector send it on.
fn pass_down(b: &mut Builder, group: &Group, root: usize, vector: Region) {
    let me = (group.me + group.len() - root) % group.len();
    for distance in powers_below(group.len()).rev() {
        b.round();
        if me.is_multiple_of(2 * distance) && me + distance < group.len() {
            b.send(group.rank(group.after(distance)), vector);
        } else if me % (2 * distance) == distance {
            b.receive(group.rank(group.before(distance)), vector);
        }
    }
}

/// Reduces along the reduction tree. Of two nodes, the one with the root receives; otherwise the lower one.
pub(super) fn reduce(b: &mut Builder, group: &Group, root: usize, input: Region, output: Region) {
    let tree = group.reduction_tree();
    let Some(mut current) = reduce_pair(b, group, tree, root, input, output) else { return };
    let node = tree.node(group.me);
    let partial = b.partial(if tree.nodes > 2 { input.len } else { 0 });
    for distance in powers_below(tree.nodes) {
        let own = node / distance * distance;
        let other = own ^ distance;
        let member = representative(tree, root, other..other + distance);
        b.round();
        if representative(tree, root, own.min(other)..own.max(other) + distance) != group.me {
            b.send(group.rank(member), current);
            return;
        }
        let received = b.like(current.buffer, current.len);
        b.receive(group.rank(member), received);
        let into = if 2 * distance == tree.nodes { output } else { partial };
        b.reduce(into, in_order(node, distance, current, received));
        current = into;
    }
}

/// Combines a pair at the bottom of the tree. Returns the vector of those who go on.
fn reduce_pair(
    b: &mut Builder,
    group: &Group,
    tree: ReductionTree,
    root: usize,
    input: Region,
    output: Region,
) -> Option<Region> {
    let node = tree.node(group.me);
    let member = representative(tree, root, node..node + 1);
    b.round();
    if member != group.me {
        b.send(group.rank(member), input);
        return None;
    }
    if let Some(second) = tree.second(node) {
        let other = if group.me == second { tree.first(node) } else { second };
        let received = b.like(input.buffer, input.len);
        b.receive(group.rank(other), received);
        let into = if tree.nodes == 1 { output } else { b.partial(input.len) };
        b.reduce(into, if group.me == second { vec![received, input] } else { vec![input, received] });
        return Some(into);
    }
    if tree.nodes == 1 {
        b.reduce(output, vec![input]);
    }
    if !tree.has_pairs() || input.buffer.is_partial() {
        return Some(input);
    }
    let partial = b.partial(input.len);
    b.reduce(partial, vec![input]);
    Some(partial)
}

/// Member that holds the reduction of some nodes.
fn representative(tree: ReductionTree, root: usize, nodes: Range<usize>) -> usize {
    let leaves = tree.leaves(nodes.clone());
    if leaves.contains(&root) { root } else { tree.first(nodes.start) }
}

pub(super) fn gather(
    b: &mut Builder,
    group: &Group,
    root: usize,
    input: Region,
    output: Region,
    counts: &[usize],
) {
    let branch = Branch::new(b, group, root, input, output, counts);
    b.round();
    b.copy(input, branch.blocks_of(0..1)[0]);
    for distance in powers_below(group.len()) {
        b.round();
        if branch.me % (2 * distance) == distance {
            b.send_all(group.rank(group.before(distance)), branch.blocks_of(0..branch.len));
        } else if branch.me.is_multiple_of(2 * distance) && branch.me + distance < group.len() {
            let end = (2 * distance).min(branch.len);
            b.receive_all(group.rank(group.after(distance)), branch.blocks_of(distance..end));
        }
    }
}

pub(super) fn scatter(
    b: &mut Builder,
    group: &Group,
    root: usize,
    input: Region,
    output: Region,
    counts: &[usize],
) {
    let branch = Branch::new(b, group, root, output, input, counts);
    for distance in powers_below(group.len()).rev() {
        b.round();
        if branch.me % (2 * distance) == distance {
            b.receive_all(group.rank(group.before(distance)), branch.blocks_of(0..branch.len));
        } else if branch.me.is_multiple_of(2 * distance) && branch.me + distance < group.len() {
            let end = (2 * distance).min(branch.len);
            b.send_all(group.rank(group.after(distance)), branch.blocks_of(distance..end));
        }
    }
    b.round();
    b.copy(branch.blocks_of(0..1)[0], output);
}

/// The blocks of a member and of those below it in the tree, by distance after the member.
struct Branch {
    /// Distance after the root.
    me: usize,
    /// Number of members.
    len: usize,
    blocks: Vec<Region>,
}

impl Branch {
    /// Blocks lie in `whole` at the root, in `own` at a leaf, and in scratch memory between.
    fn new(
        b: &mut Builder,
        group: &Group,
        root: usize,
        own: Region,
        whole: Region,
        counts: &[usize],
    ) -> Self {
        let ranks = group.len();
        let me = (group.me + ranks - root) % ranks;
        let below = if me == 0 { ranks } else { 1 << me.trailing_zeros() };
        let len = below.min(ranks - me);
        let of_members = blocks(counts);
        let members = (0..len).map(|distance| group.after(distance));
        let blocks = match (me, len) {
            (0, _) => members.map(|member| whole.part(of_members[member].clone())).collect(),
            (_, 1) => vec![own],
            _ => members.map(|member| b.scratch(counts[member])).collect(),
        };
        Self { me, len, blocks }
    }

    fn blocks_of(&self, range: Range<usize>) -> Vec<Region> {
        self.blocks[range].to_vec()
    }
}
