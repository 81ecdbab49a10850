//! Two levels: the ranks of each board, then the boards.

use super::builder::Builder;
use super::direct::{self, send_to_others};
use super::group::Group;
use super::{Region, doubling, tree};
use crate::Topology;

/// Reduces on each board, then between the boards' first ranks, and passes the result on.
pub(super) fn all_reduce(b: &mut Builder, topology: &Topology, rank: usize, input: Region, output: Region) {
    let board = Group::of(topology, topology.on_board_of(rank), rank);
    // Only the first rank's memory is used.
    let sum = b.partial(if board.me == 0 { input.len } else { 0 });
    direct::reduce(b, &board, 0, input, sum);
    if board.me == 0 {
        let boards = Group::of(topology, topology.leaders(), rank);
        doubling::all_reduce(b, &boards, sum, output);
    }
    b.round();
    send_to_others(b, &board, 0, output);
}

/// From the root to one rank of each board, and from there to the board's others.
pub(super) fn broadcast(
    b: &mut Builder,
    topology: &Topology,
    rank: usize,
    root: usize,
    input: Region,
    output: Region,
) {
    // The root stands for its board.
    let roots_board = topology.on_board_of(root);
    let leader = |other: usize| if roots_board.contains(&other) { root } else { other };
    let leaders: Vec<usize> = topology.leaders().into_iter().map(leader).collect();
    let board = Group::of(topology, topology.on_board_of(rank), rank);
    let own_leader = leader(board.rank(0));
    if rank == own_leader {
        let boards = Group::of(topology, leaders, rank);
        tree::broadcast(b, &boards, boards.position(root), input, output);
    }
    b.round();
    send_to_others(b, &board, board.position(own_leader), output);
}
