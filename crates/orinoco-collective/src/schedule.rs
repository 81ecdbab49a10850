//! Schedules: the messages and reductions of one rank in one collective operation.

mod bruck;
mod builder;
mod chain;
mod direct;
mod double_tree;
mod doubling;
mod group;
mod pairwise;
mod ring;
mod tree;
mod two_level;

use std::ops::Range;

use thiserror::Error;

use crate::{Algorithm, Collective, Topology};
use builder::Builder;
use group::Group;

/// What one rank does in one collective operation.
///
/// Rounds run one after the other. A round posts its sends and receives together, waits for all of them, and then executes its
/// local steps in order. No region that a round sends overlaps one that it receives, and every schedule makes progress even
/// where a send waits for its receive; the tests prove both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Rounds, in order.
    pub rounds: Vec<Round>,
    /// Size of [`Buffer::Scratch`], in elements of the data type.
    pub scratch_len: usize,
    /// Size of [`Buffer::Partial`], in accumulators.
    pub partial_len: usize,
}

/// One round of a [`Schedule`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Round {
    /// Messages to other ranks.
    pub sends: Vec<Transfer>,
    /// Messages from other ranks. Messages between two ranks arrive in the order in which they were sent.
    pub receives: Vec<Transfer>,
    /// Steps after the messages.
    pub locals: Vec<Local>,
}

/// A message: the regions are sent, or filled, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// The other rank.
    pub peer: usize,
    /// Where the elements are. Empty for a message that only says that its sender has arrived.
    pub regions: Vec<Region>,
}

impl Transfer {
    /// Elements of the message.
    pub fn len(&self) -> usize {
        self.regions.iter().map(|region| region.len).sum()
    }

    /// Whether the message carries no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A step without messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Local {
    /// Copies elements.
    Copy {
        /// Source.
        from: Region,
        /// Destination, of the same length and kind.
        into: Region,
    },
    /// Reduces operands element by element, in the order of the reduction tree for that many leaves
    /// ([`crate::Topology`]). Operands in elements of the data type are widened first. A result in [`Buffer::Output`] is final:
    /// it is divided if an average is asked for, and rounded to the data type. A result may take the place of an operand.
    Reduce {
        /// Destination.
        into: Region,
        /// Operands, of the destination's length.
        operands: Vec<Region>,
    },
}

/// Memory of a rank during one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Buffer {
    /// The caller's input. May be the same memory as the output for a broadcast, a reduce and an all-reduce.
    Input,
    /// The caller's output.
    Output,
    /// Elements of the data type, as other ranks sent them.
    Scratch,
    /// Partial reductions, in the accumulator's type: `f32` for `f16` and `bf16`.
    Partial,
}

impl Buffer {
    /// Whether it holds accumulators and not elements of the data type.
    pub fn is_partial(self) -> bool {
        self == Self::Partial
    }
}

/// Consecutive elements of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    /// Buffer.
    pub buffer: Buffer,
    /// First element.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
}

impl Region {
    /// The part at `range`, which counts from the region's start.
    fn part(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} elements", self.len);
        Self { buffer: self.buffer, start: self.start + range.start, len: range.len() }
    }
}

/// An operation that an algorithm does not carry out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there is no {algorithm} {collective}")]
pub struct Unsupported {
    /// Operation.
    pub collective: String,
    /// Algorithm.
    pub algorithm: Algorithm,
}

/// Returns what `rank` does in a collective operation.
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
        (C::AllReduce { .. }, A::Ring) => ring::all_reduce(builder, group, input, output),
        (C::AllReduce { .. }, A::RecursiveDoubling) => doubling::all_reduce(builder, group, input, output),
        (C::AllReduce { .. }, A::HalvingDoubling) => {
            doubling::halving_all_reduce(builder, group, input, output);
        }
        (C::AllReduce { .. }, A::BinomialTree) => tree::all_reduce(builder, group, input, output),
        (C::AllReduce { .. }, A::DoubleBinaryTree) => double_tree::all_reduce(builder, group, input, output),
        (C::AllReduce { .. }, A::TwoLevel) => two_level::all_reduce(builder, topology, rank, input, output),

        (C::AllGather { counts }, A::Direct) => direct::all_gather(builder, group, input, output, counts),
        (C::AllGather { counts }, A::Ring) => ring::all_gather(builder, group, input, output, counts),
        (C::AllGather { counts }, A::RecursiveDoubling) => {
            doubling::all_gather(builder, group, input, output, counts);
        }
        (C::AllGather { counts }, A::Bruck) => bruck::all_gather(builder, group, input, output, counts),

        (C::ReduceScatter { counts }, A::Direct) => {
            direct::reduce_scatter(builder, group, input, output, counts);
        }
        (C::ReduceScatter { counts }, A::Ring) => ring::reduce_scatter(builder, group, input, output, counts),
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
        _ => return false,
    }
    true
}

fn is_uniform(counts: &[usize]) -> bool {
    counts.iter().all(|count| *count == counts[0])
}
