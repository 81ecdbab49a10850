//! Operations: the pieces that a rank publishes, and the use that it makes of others' pieces.

use std::ops::Range;

use super::member::Member;
use super::segment::{RANKS_MAX, SLOT_BYTES};
use crate::{Element, ReduceOp, reduce};

/// Bytes of a piece: small enough that it is still in a core's second-level cache when another core reads it, and large enough
/// that flags cost little, also where ranks share cores and each wait takes a turn of the scheduler. Of 16, 32 and 64 KiB, the last
/// was the fastest for 2 ranks on 2 cores, and for 4.
const PIECE_BYTES: usize = if cfg!(shuttle) { 128 } else { 64 << 10 };
const _: () = assert!(PIECE_BYTES <= SLOT_BYTES);

/// Least bytes of a vector that two steps reduce faster than one.
const TWO_SHOT_BYTES: usize = if cfg!(shuttle) { 128 } else { 32 << 10 };

/// An operation, piece by piece.
pub(super) trait Pieces {
    /// Whether every rank needs something from every other.
    const NEEDS_ALL: bool = true;

    /// Whether a rank needs something from another one before it returns: `(rank, from)`.
    fn needs(&self, _: usize, _: usize) -> bool {
        true
    }

    /// Number of pieces, at least one: an operation of no elements is a barrier.
    fn count(&self, ranks: usize) -> u32;

    /// Most bytes that a rank publishes in a piece.
    fn bytes(&self, ranks: usize) -> usize;

    /// Publishes this rank's part of a piece. The piece two before it has been read.
    fn fill(&mut self, piece: u32, member: &Member<'_>);

    /// Reads the parts of all ranks.
    fn drain(&mut self, piece: u32, member: &Member<'_>);
}

pub(super) struct Barrier;

impl Pieces for Barrier {
    fn count(&self, _: usize) -> u32 {
        1
    }

    fn bytes(&self, _: usize) -> usize {
        0
    }

    fn fill(&mut self, _: u32, _: &Member<'_>) {}

    fn drain(&mut self, _: u32, _: &Member<'_>) {}
}

pub(super) struct Broadcast<'a, T> {
    pub(super) root: usize,
    pub(super) vector: &'a mut [T],
}

impl<T: Element> Pieces for Broadcast<'_, T> {
    const NEEDS_ALL: bool = false;

    fn needs(&self, _: usize, from: usize) -> bool {
        from == self.root
    }

    fn count(&self, _: usize) -> u32 {
        pieces::<T>(self.vector.len(), 1)
    }

    fn bytes(&self, _: usize) -> usize {
        size_of_val(self.vector)
    }

    fn fill(&mut self, piece: u32, member: &Member<'_>) {
        if member.rank == self.root {
            publish_part(self.vector, piece, member);
        }
    }

    fn drain(&mut self, piece: u32, member: &Member<'_>) {
        if member.rank != self.root {
            let range = part::<T>(piece, self.vector.len(), 1);
            self.vector[range.clone()].copy_from_slice(member.read(self.root, range.len()));
        }
    }
}

pub(super) struct Reduce<'a, T> {
    pub(super) op: ReduceOp,
    pub(super) root: usize,
    pub(super) input: &'a [T],
    pub(super) output: &'a mut [T],
}

impl<T: Element> Pieces for Reduce<'_, T> {
    const NEEDS_ALL: bool = false;

    fn needs(&self, rank: usize, _: usize) -> bool {
        rank == self.root
    }

    fn count(&self, _: usize) -> u32 {
        pieces::<T>(self.input.len(), 1)
    }

    fn bytes(&self, _: usize) -> usize {
        size_of_val(self.input)
    }

    fn fill(&mut self, piece: u32, member: &Member<'_>) {
        publish_part(self.input, piece, member);
    }

    fn drain(&mut self, piece: u32, member: &Member<'_>) {
        if member.rank == self.root {
            let range = part::<T>(piece, self.input.len(), 1);
            reduce_all(self.op, &mut self.output[range.clone()], member, |rank| {
                member.read(rank, range.len())
            });
        }
    }
}

/// One-shot: every rank reduces all vectors.
pub(super) struct AllReduce<'a, T> {
    pub(super) op: ReduceOp,
    /// The input, unless the output holds it.
    pub(super) input: Option<&'a [T]>,
    pub(super) output: &'a mut [T],
}

impl<T: Element> Pieces for AllReduce<'_, T> {
    fn count(&self, _: usize) -> u32 {
        pieces::<T>(self.output.len(), 1)
    }

    fn bytes(&self, _: usize) -> usize {
        size_of_val(self.output)
    }

    #[inline]
    fn fill(&mut self, piece: u32, member: &Member<'_>) {
        publish_part(self.input.unwrap_or(self.output), piece, member);
    }

    #[inline]
    fn drain(&mut self, piece: u32, member: &Member<'_>) {
        let range = part::<T>(piece, self.output.len(), 1);
        reduce_all(self.op, &mut self.output[range.clone()], member, |rank| member.read(rank, range.len()));
    }
}

/// Two-shot: every rank reduces its slice of each part, and publishes it.
///
/// Parts take two pieces, the slices of one part and the results of the part before it, so that one rank's copies overlap
/// another's reductions: part 0; part 1; results 0; part 2; results 1; ...
pub(super) struct TwoShot<'a, T> {
    pub(super) op: ReduceOp,
    /// The input, unless the output holds it.
    pub(super) input: Option<&'a [T]>,
    pub(super) output: &'a mut [T],
}

impl<T: Element> TwoShot<'_, T> {
    pub(super) fn is_better(ranks: usize, len: usize) -> bool {
        ranks > 2 && len * size_of::<T>() >= TWO_SHOT_BYTES
    }

    fn parts(&self) -> u32 {
        pieces::<T>(self.output.len(), 1)
    }

    fn slice(&self, part_number: u32, rank: usize, ranks: usize) -> Range<usize> {
        let part = part::<T>(part_number, self.output.len(), 1);
        let bound = |rank: usize| part.start + part.len() * rank / ranks;
        bound(rank)..bound(rank + 1)
    }

    /// Kind of a piece: a part, the results of a part, or nothing.
    fn step(&self, piece: u32) -> Step {
        match (piece, piece % 2) {
            (0, _) => Step::Part(0),
            (_, 0) => Step::Results(piece / 2 - 1),
            _ if piece.div_ceil(2) < self.parts() => Step::Part(piece.div_ceil(2)),
            _ => Step::Nothing,
        }
    }
}

enum Step {
    Part(u32),
    Results(u32),
    Nothing,
}

impl<T: Element> Pieces for TwoShot<'_, T> {
    fn count(&self, _: usize) -> u32 {
        2 * self.parts() + 1
    }

    fn bytes(&self, _: usize) -> usize {
        PIECE_BYTES
    }

    fn fill(&mut self, piece: u32, member: &Member<'_>) {
        let part = match self.step(piece) {
            Step::Part(number) => {
                let range = part::<T>(number, self.output.len(), 1);
                &self.input.unwrap_or(self.output)[range]
            }
            Step::Results(number) => &self.output[self.slice(number, member.rank, member.ranks)],
            Step::Nothing => return,
        };
        member.write(part.len()).copy_from_slice(part);
    }

    fn drain(&mut self, piece: u32, member: &Member<'_>) {
        match self.step(piece) {
            Step::Part(number) => {
                let part = part::<T>(number, self.output.len(), 1);
                let slice = self.slice(number, member.rank, member.ranks);
                let inside = slice.start - part.start..slice.end - part.start;
                reduce_all(self.op, &mut self.output[slice], member, |rank| {
                    &member.read(rank, part.len())[inside.clone()]
                });
            }
            Step::Results(number) => {
                for rank in (0..member.ranks).filter(|rank| *rank != member.rank) {
                    let slice = self.slice(number, rank, member.ranks);
                    self.output[slice.clone()].copy_from_slice(member.read(rank, slice.len()));
                }
            }
            Step::Nothing => {}
        }
    }
}

pub(super) struct AllGather<'a, T> {
    pub(super) input: &'a [T],
    pub(super) output: &'a mut [T],
}

impl<T: Element> Pieces for AllGather<'_, T> {
    fn count(&self, _: usize) -> u32 {
        pieces::<T>(self.input.len(), 1)
    }

    fn bytes(&self, _: usize) -> usize {
        size_of_val(self.input)
    }

    fn fill(&mut self, piece: u32, member: &Member<'_>) {
        publish_part(self.input, piece, member);
    }

    fn drain(&mut self, piece: u32, member: &Member<'_>) {
        gather_part(self.input, self.output, piece, member);
    }
}

pub(super) struct Gather<'a, T> {
    pub(super) root: usize,
    pub(super) input: &'a [T],
    pub(super) output: &'a mut [T],
}

impl<T: Element> Pieces for Gather<'_, T> {
    const NEEDS_ALL: bool = false;

    fn needs(&self, rank: usize, _: usize) -> bool {
        rank == self.root
    }

    fn count(&self, _: usize) -> u32 {
        pieces::<T>(self.input.len(), 1)
    }

    fn bytes(&self, _: usize) -> usize {
        size_of_val(self.input)
    }

    fn fill(&mut self, piece: u32, member: &Member<'_>) {
        publish_part(self.input, piece, member);
    }

    fn drain(&mut self, piece: u32, member: &Member<'_>) {
        if member.rank == self.root {
            gather_part(self.input, self.output, piece, member);
        }
    }
}

pub(super) struct Scatter<'a, T> {
    pub(super) root: usize,
    pub(super) input: &'a [T],
    pub(super) output: &'a mut [T],
}

impl<T: Element> Pieces for Scatter<'_, T> {
    const NEEDS_ALL: bool = false;

    fn needs(&self, _: usize, from: usize) -> bool {
        from == self.root
    }

    fn count(&self, ranks: usize) -> u32 {
        pieces::<T>(self.output.len(), ranks)
    }

    fn bytes(&self, ranks: usize) -> usize {
        size_of_val(self.output) * ranks
    }

    fn fill(&mut self, piece: u32, member: &Member<'_>) {
        if member.rank == self.root {
            publish_blocks(self.input, self.output.len(), piece, member);
        }
    }

    fn drain(&mut self, piece: u32, member: &Member<'_>) {
        let range = part::<T>(piece, self.output.len(), member.ranks);
        let (len, own) = (range.len(), member.rank);
        let blocks = member.read(self.root, len * member.ranks);
        self.output[range].copy_from_slice(&blocks[own * len..(own + 1) * len]);
    }
}

pub(super) struct ReduceScatter<'a, T> {
    pub(super) op: ReduceOp,
    pub(super) input: &'a [T],
    pub(super) output: &'a mut [T],
}

impl<T: Element> Pieces for ReduceScatter<'_, T> {
    fn count(&self, ranks: usize) -> u32 {
        pieces::<T>(self.output.len(), ranks)
    }

    fn bytes(&self, _: usize) -> usize {
        size_of_val(self.input)
    }

    fn fill(&mut self, piece: u32, member: &Member<'_>) {
        publish_blocks(self.input, self.output.len(), piece, member);
    }

    fn drain(&mut self, piece: u32, member: &Member<'_>) {
        let range = part::<T>(piece, self.output.len(), member.ranks);
        let (len, own) = (range.len(), member.rank);
        reduce_all(self.op, &mut self.output[range], member, |rank| {
            &member.read(rank, len * member.ranks)[own * len..(own + 1) * len]
        });
    }
}

pub(super) struct AllToAll<'a, T> {
    pub(super) input: &'a [T],
    pub(super) output: &'a mut [T],
}

impl<T: Element> Pieces for AllToAll<'_, T> {
    fn count(&self, ranks: usize) -> u32 {
        pieces::<T>(self.output.len() / ranks, ranks)
    }

    fn bytes(&self, _: usize) -> usize {
        size_of_val(self.input)
    }

    fn fill(&mut self, piece: u32, member: &Member<'_>) {
        publish_blocks(self.input, self.output.len() / member.ranks, piece, member);
    }

    fn drain(&mut self, piece: u32, member: &Member<'_>) {
        let count = self.output.len() / member.ranks;
        let range = part::<T>(piece, count, member.ranks);
        let (len, own) = (range.len(), member.rank);
        for rank in 0..member.ranks {
            let from = &member.read(rank, len * member.ranks)[own * len..(own + 1) * len];
            self.output[rank * count + range.start..rank * count + range.end].copy_from_slice(from);
        }
    }
}

/// Copies a part of each rank's input to its block of the output.
fn gather_part<T: Element>(input: &[T], output: &mut [T], piece: u32, member: &Member<'_>) {
    let range = part::<T>(piece, input.len(), 1);
    for rank in 0..member.ranks {
        let from = if rank == member.rank { &input[range.clone()] } else { member.read(rank, range.len()) };
        output[rank * input.len() + range.start..rank * input.len() + range.end].copy_from_slice(from);
    }
}

/// Publishes a part of a vector.
#[inline]
fn publish_part<T: Element>(vector: &[T], piece: u32, member: &Member<'_>) {
    let part = &vector[part::<T>(piece, vector.len(), 1)];
    member.write(part.len()).copy_from_slice(part);
}

/// Publishes a part of each block, one after the other.
fn publish_blocks<T: Element>(input: &[T], count: usize, piece: u32, member: &Member<'_>) {
    let range = part::<T>(piece, count, member.ranks);
    let published = member.write(range.len() * member.ranks);
    if range.is_empty() {
        return;
    }
    for (rank, published) in published.chunks_exact_mut(range.len()).enumerate() {
        published.copy_from_slice(&input[rank * count + range.start..rank * count + range.end]);
    }
}

/// Reduces blocks of one length that follow one another, one of each rank.
pub(super) fn reduce_blocks_of<T: Element>(op: ReduceOp, into: &mut [T], blocks: &[T], ranks: usize) {
    if into.is_empty() {
        return;
    }
    let operands: Vec<&[T]> = blocks.chunks_exact(into.len()).collect();
    reduce(op, into, &operands, u32::try_from(ranks).expect("few ranks"));
}

/// Reduces the operands of all ranks.
#[inline]
fn reduce_all<'a, T: Element>(
    op: ReduceOp,
    into: &mut [T],
    member: &Member<'_>,
    operand: impl Fn(usize) -> &'a [T],
) {
    let ranks = u32::try_from(member.ranks).expect("few ranks");
    if ranks == 2 {
        return reduce(op, into, &[operand(0), operand(1)], ranks);
    }
    let mut operands = [&[] as &[T]; RANKS_MAX];
    let operands = &mut operands[..member.ranks];
    for (rank, place) in operands.iter_mut().enumerate() {
        *place = operand(rank);
    }
    reduce(op, into, operands, ranks);
}

/// Elements of a piece of which a rank publishes one part for each of `blocks`.
fn piece_len<T>(blocks: usize) -> usize {
    (PIECE_BYTES / size_of::<T>() / blocks).max(1)
}

/// Number of pieces for `len` elements.
fn pieces<T>(len: usize, blocks: usize) -> u32 {
    u32::try_from(len.div_ceil(piece_len::<T>(blocks)).max(1)).expect("fewer than 2^32 pieces")
}

/// Elements of a piece.
fn part<T>(piece: u32, len: usize, blocks: usize) -> Range<usize> {
    let start = piece as usize * piece_len::<T>(blocks);
    start..(start + piece_len::<T>(blocks)).min(len)
}
