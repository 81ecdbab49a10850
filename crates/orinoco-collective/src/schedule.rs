//! Schedules: the messages and reductions of one rank in one collective operation.

mod bruck;
mod builder;
mod chain;
mod direct;
mod double_tree;
mod doubling;
mod group;
mod pairwise;
mod ring_schedule;
mod steps;
mod tree;
mod two_level;

use thiserror::Error;

use crate::{Algorithm, Collective, Topology};
use builder::Builder;
use group::Group;

pub use steps::{Buffer, Local, Region, Round, Schedule, Transfer};

/// An operation that an algorithm does not carry out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there is no {algorithm} {collective}")]
pub struct Unsupported {
    /// Operation.
    pub collective: String,
    /// Algorithm.
    pub algorithm: Algorithm,
}

/// Returns the part of `rank` in a collective operation.
///
/// # Errors
/// If the algorithm does not carry out the operation.
///
/// # Panics
/// If a rank is not in the topology, or if a list of counts has not one entry for each rank.
pub fn schedule(
    collective: &Collective,
    algorithm: Algorithm,
    topology: &Topology,
    rank: usize,
) -> Result<Schedule, Unsupported> {
    check_sizes(collective, topology.ranks(), rank);
    let mut builder = Builder::default();
    if !build(&mut builder, collective, algorithm, topology, rank) {
        return Err(Unsupported { collective: collective.to_string(), algorithm });
    }
    Ok(builder.finish())
}

fn check_sizes(collective: &Collective, ranks: usize, rank: usize) {
    assert!(rank < ranks, "rank {rank} of {ranks}");
    let (root, counts): (_, &[&[usize]]) = match collective {
        Collective::Barrier | Collective::AllReduce { .. } => (0, &[]),
        Collective::Broadcast { root, .. } | Collective::Reduce { root, .. } => (*root, &[]),
        Collective::AllGather { counts } | Collective::ReduceScatter { counts } => (0, &[counts]),
        Collective::Scatter { root, counts } | Collective::Gather { root, counts } => (*root, &[counts]),
        Collective::AllToAll { send, receive } => (0, &[send, receive]),
        Collective::Send { from, to, .. } => {
            assert!(*to < ranks && from != to, "a send from rank {from} to rank {to} of {ranks}");
            (*from, &[])
        }
    };
    assert!(root < ranks, "root {root} of {ranks} ranks");
    for list in counts {
        assert_eq!(list.len(), ranks, "one count for each rank");
    }
}

/// Adds the rounds. Returns whether the algorithm carries out the operation.
fn build(
    builder: &mut Builder,
    collective: &Collective,
    algorithm: Algorithm,
    topology: &Topology,
    rank: usize,
) -> bool {
    use Algorithm as A;
    use Collective as C;

    let group = &Group::all(topology, rank);
    let input = Region { buffer: Buffer::Input, start: 0, len: collective.input_len(rank) };
    let output = Region { buffer: Buffer::Output, start: 0, len: collective.output_len(rank) };
    match (collective, algorithm) {
        (C::Barrier, A::Direct) => direct::barrier(builder, group),
        (C::Barrier, A::RecursiveDoubling) => doubling::barrier(builder, group),

        (C::Broadcast { root, .. }, A::Direct) => direct::broadcast(builder, group, *root, input, output),
        (C::Broadcast { root, .. }, A::BinomialTree) => tree::broadcast(builder, group, *root, input, output),
        (C::Broadcast { root, .. }, A::Chain) => chain::broadcast(builder, group, *root, input, output),
        (C::Broadcast { root, .. }, A::DoubleBinaryTree) => {
            double_tree::broadcast(builder, group, *root, input, output);
        }
        (C::Broadcast { root, .. }, A::TwoLevel) => {
            two_level::broadcast(builder, topology, rank, *root, input, output);
        }

        (C::Reduce { root, .. }, A::Direct) => direct::reduce(builder, group, *root, input, output),
        (C::Reduce { root, .. }, A::BinomialTree) => tree::reduce(builder, group, *root, input, output),
        (C::Reduce { root, .. }, A::Chain) => chain::reduce(builder, group, *root, input, output),

        (C::AllReduce { .. }, A::Direct) => direct::all_reduce(builder, group, input, output),
        (C::AllReduce { .. }, A::TwoShot) => direct::two_shot(builder, group, input, output),
        (C::AllReduce { .. }, A::Ring) => ring_schedule::all_reduce(builder, group, input, output),
        (C::AllReduce { .. }, A::RecursiveDoubling) => doubling::all_reduce(builder, group, input, output),
        (C::AllReduce { .. }, A::HalvingDoubling) => {
            doubling::halving_all_reduce(builder, group, input, output);
        }
        (C::AllReduce { .. }, A::BinomialTree) => tree::all_reduce(builder, group, input, output),
        (C::AllReduce { .. }, A::DoubleBinaryTree) => double_tree::all_reduce(builder, group, input, output),
        (C::AllReduce { .. }, A::TwoLevel) => two_level::all_reduce(builder, topology, rank, input, output),

        (C::AllGather { counts }, A::Direct) => direct::all_gather(builder, group, input, output, counts),
        (C::AllGather { counts }, A::Ring) => {
            ring_schedule::all_gather(builder, group, input, output, counts)
        }
        (C::AllGather { counts }, A::RecursiveDoubling) => {
            doubling::all_gather(builder, group, input, output, counts);
        }
        (C::AllGather { counts }, A::Bruck) => bruck::all_gather(builder, group, input, output, counts),

        (C::ReduceScatter { counts }, A::Direct) => {
            direct::reduce_scatter(builder, group, input, output, counts);
        }
        (C::ReduceScatter { counts }, A::Ring) => {
            ring_schedule::reduce_scatter(builder, group, input, output, counts)
        }
        (C::ReduceScatter { counts }, A::HalvingDoubling) => {
            doubling::halving_reduce_scatter(builder, group, input, output, counts);
        }

        (C::Scatter { root, counts }, A::Direct) => {
            direct::scatter(builder, group, *root, input, output, counts);
        }
        (C::Scatter { root, counts }, A::BinomialTree) => {
            tree::scatter(builder, group, *root, input, output, counts);
        }
        (C::Gather { root, counts }, A::Direct) => {
            direct::gather(builder, group, *root, input, output, counts)
        }
        (C::Gather { root, counts }, A::BinomialTree) => {
            tree::gather(builder, group, *root, input, output, counts);
        }

        (C::AllToAll { send, receive }, A::Direct) => {
            direct::all_to_all(builder, group, input, output, send, receive);
        }
        (C::AllToAll { send, receive }, A::Pairwise) => {
            pairwise::all_to_all(builder, group, input, output, send, receive);
        }
        (C::AllToAll { send, receive }, A::Bruck) if is_uniform(send) && is_uniform(receive) => {
            bruck::all_to_all(builder, group, input, output, send[0]);
        }
        (C::Send { from, to, .. }, A::Direct) => direct::send(builder, rank, *from, *to, input, output),
        _ => return false,
    }
    true
}

fn is_uniform(counts: &[usize]) -> bool {
    counts.iter().all(|count| *count == counts[0])
}
