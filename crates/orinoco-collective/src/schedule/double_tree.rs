//! Two binary trees, each with half of the vector (Sanders, Speck and Traff, 2009).

use super::Region;
use super::builder::Builder;
use super::group::Group;

pub(super) fn broadcast(b: &mut Builder, group: &Group, root: usize, input: Region, output: Region) {
    if group.me == root {
        b.round();
        b.copy(input, output);
    }
    // The trees are over all members but the root, which sends to their roots.
    let members = group.len() - 1;
    if members == 0 {
        return;
    }
    let rank = |number: usize| group.rank((root + 1 + number) % group.len());
    let trees = trees(members, output);
    if group.me == root {
        b.round();
        for tree in trees {
            b.send(rank(tree.root()), tree.half);
        }
        return;
    }
    let number = (group.me + group.len() - root - 1) % group.len();
    let nodes = trees.map(|tree| (tree.half, tree.node(number)));
    for time in 0..=trees[0].height() + 1 {
        b.round();
        for (half, node) in &nodes {
            if time == node.depth {
                b.receive(node.parent.map_or(group.rank(root), rank), *half);
            }
            if time == node.depth + 1 {
                node.children.iter().for_each(|child| b.send(rank(child.number), *half));
            }
        }
    }
}

pub(super) fn all_reduce(b: &mut Builder, group: &Group, input: Region, output: Region) {
    let trees = trees(group.len(), output);
    let mut branches = trees.map(|tree| Branch {
        node: tree.node(group.me),
        half: tree.half,
        current: input.part(tree.half.start..tree.half.start + tree.half.len),
        partial: b.partial(tree.half.len),
    });
    let height = trees[0].height();
    for time in 0..=height {
        reduce_level(b, group, &mut branches, input, time);
    }
    for branch in &branches {
        if branch.node.parent.is_none() {
            b.reduce(branch.half, vec![branch.current]);
        }
    }
    for time in 0..=height {
        b.round();
        for Branch { node, half, .. } in &branches {
            if let Some(parent) = node.parent.filter(|_| time + 1 == node.depth) {
                b.receive(group.rank(parent), *half);
            }
            if time == node.depth {
                node.children.iter().for_each(|child| b.send(group.rank(child.number), *half));
            }
        }
    }
}

/// A rank's part in one tree of an all-reduce.
struct Branch {
    node: Node,
    half: Region,
    /// The sum of the node and of those below it that have arrived.
    current: Region,
    partial: Region,
}

/// Nodes of this height send to their parents, whose children, which are lower, have all sent.
fn reduce_level(b: &mut Builder, group: &Group, branches: &mut [Branch], input: Region, time: usize) {
    b.round();
    let mut arrived = Vec::new();
    for (which, branch) in branches.iter().enumerate() {
        if let Some(parent) = branch.node.parent.filter(|_| time == branch.node.height) {
            b.send(group.rank(parent), branch.current);
        }
        for child in branch.node.children.iter().filter(|child| child.height == time) {
            // A leaf sends its input.
            let len = branch.half.len;
            let received = if child.height == 0 { b.like(input.buffer, len) } else { b.partial(len) };
            b.receive(group.rank(child.number), received);
            arrived.push((which, received));
        }
    }
    for (which, received) in arrived {
        let branch = &mut branches[which];
        b.reduce(branch.partial, vec![branch.current, received]);
        branch.current = branch.partial;
    }
}

fn trees(members: usize, vector: Region) -> [Tree; 2] {
    let middle = vector.len / 2;
    [
        Tree { members, shift: 0, half: vector.part(0..middle) },
        Tree { members, shift: 1, half: vector.part(middle..vector.len) },
    ]
}

/// A binary tree whose indices are in order: those to the left of a node are lower. The left branch of each node is a complete
/// tree, so nodes with even indices are leaves. In the second tree indices are numbers shifted by one, so a leaf of one tree is
/// an inner node of the other.
#[derive(Clone, Copy)]
struct Tree {
    members: usize,
    shift: usize,
    half: Region,
}

/// A node of a tree, by numbers of members.
struct Node {
    parent: Option<usize>,
    children: Vec<Child>,
    depth: usize,
    height: usize,
}

struct Child {
    number: usize,
    height: usize,
}

impl Tree {
    fn height(&self) -> usize {
        height(self.members)
    }

    fn root(&self) -> usize {
        self.number(left_len(self.members))
    }

    /// The node of a member, found from the root down.
    fn node(&self, number: usize) -> Node {
        let index = (number + self.shift) % self.members;
        let (mut start, mut len, mut parent, mut depth) = (0, self.members, None, 0);
        loop {
            let left = left_len(len);
            let root = start + left;
            let branches = [(start, left), (root + 1, len - left - 1)];
            if index == root {
                let child = |&(start, len): &(usize, usize)| Child {
                    number: self.number(start + left_len(len)),
                    height: height(len),
                };
                let children = branches.iter().filter(|(_, len)| *len > 0).map(child).collect();
                return Node { parent, children, depth, height: height(len) };
            }
            (start, len) = branches[usize::from(index > root)];
            (parent, depth) = (Some(self.number(root)), depth + 1);
        }
    }

    /// Number of the member with an index.
    fn number(&self, index: usize) -> usize {
        (index + self.members - self.shift % self.members) % self.members
    }
}

/// Size of the left branch of a tree: the largest complete tree that leaves an index for the root.
fn left_len(len: usize) -> usize {
    (1 << len.ilog2()) - 1
}

/// Height of a tree.
fn height(len: usize) -> usize {
    len.ilog2() as usize
}
