//! Loops of reductions.

use std::marker::PhantomData;
use std::ops::Range;

use crate::ReduceOp;
use crate::arithmetic::{AllArithmetic, Arithmetic};
use crate::reduction_tree::ReductionTree;

/// Most operands of one reduction.
pub(crate) const OPERANDS_MAX: usize = 64;
/// Partial results that wait for their neighbour: one for each level of the tree, and the newest.
const LEVELS_MAX: usize = OPERANDS_MAX.ilog2() as usize + 2;
/// Elements that are reduced at a time, so that partial results stay in the first-level cache.
pub(crate) const BLOCK: usize = 256;
/// Vectors up to this length are reduced element by element: clearing the blocks would take longer.
const SHORT: usize = 64;

pub(crate) fn reduce_vectors<T: AllArithmetic>(op: ReduceOp, into: &mut [T], operands: &[&[T]], ranks: u32) {
    match op {
        ReduceOp::Sum => reduce_with::<T, T::Sum>(into, operands, ranks),
        ReduceOp::Product => reduce_with::<T, T::Product>(into, operands, ranks),
        ReduceOp::Min => reduce_with::<T, T::Min>(into, operands, ranks),
        ReduceOp::Max => reduce_with::<T, T::Max>(into, operands, ranks),
        ReduceOp::Average => reduce_with::<T, T::Average>(into, operands, ranks),
    }
}

fn reduce_with<T: AllArithmetic, O: Arithmetic<T>>(into: &mut [T], operands: &[&[T]], ranks: u32) {
    match operands {
        [left, right] => reduce_two::<T, O>(into, left, right, ranks),
        _ if into.len() <= SHORT => reduce_short::<T, O>(into, operands, ranks),
        _ => {
            let (len, count) = (into.len(), operands.len());
            let mut vectors = Elements { into, operands, ranks, op: PhantomData::<O> };
            reduce_blocks(&mut vectors, count, len, O::combine);
        }
    }
}

#[multiversion::multiversion(targets("x86_64+avx2", "x86_64+avx2+avx512f"))]
fn reduce_two<T: AllArithmetic, O: Arithmetic<T>>(into: &mut [T], left: &[T], right: &[T], ranks: u32) {
    for ((result, left), right) in into.iter_mut().zip(left).zip(right) {
        *result = O::finish(O::combine(O::widen(*left), O::widen(*right)), ranks);
    }
}

fn reduce_short<T: AllArithmetic, O: Arithmetic<T>>(into: &mut [T], operands: &[&[T]], ranks: u32) {
    let tree = ReductionTree::new(operands.len());
    for (i, result) in into.iter_mut().enumerate() {
        let mut waiting = [O::Accumulator::default(); LEVELS_MAX];
        let mut level = 0;
        for node in 0..tree.nodes {
            let first = O::widen(operands[tree.first(node)][i]);
            let second = tree.second(node).map(|second| O::widen(operands[second][i]));
            waiting[level] = second.map_or(first, |second| O::combine(first, second));
            level += 1;
            for _ in 0..(node + 1).trailing_zeros() {
                level -= 1;
                waiting[level - 1] = O::combine(waiting[level - 1], waiting[level]);
            }
        }
        *result = O::finish(waiting[0], ranks);
    }
}

/// Operands and result of a reduction in blocks.
pub(crate) trait Operands<A> {
    /// Reads elements `range` of an operand.
    fn load(&self, operand: usize, range: Range<usize>, block: &mut [A]);

    /// Writes elements `range` of the result. What operands hold there is not read again.
    fn store(&mut self, range: Range<usize>, totals: &[A]);
}

/// Operands and a result that are vectors of the data type.
struct Elements<'a, T, O> {
    into: &'a mut [T],
    operands: &'a [&'a [T]],
    ranks: u32,
    op: PhantomData<O>,
}

impl<T: AllArithmetic, O: Arithmetic<T>> Operands<O::Accumulator> for Elements<'_, T, O> {
    #[inline(always)]
    fn load(&self, operand: usize, range: Range<usize>, block: &mut [O::Accumulator]) {
        for (partial, element) in block.iter_mut().zip(&self.operands[operand][range]) {
            *partial = O::widen(*element);
        }
    }

    #[inline(always)]
    fn store(&mut self, range: Range<usize>, totals: &[O::Accumulator]) {
        for (result, total) in self.into[range].iter_mut().zip(totals) {
            *result = O::finish(*total, self.ranks);
        }
    }
}

/// Reduces `len` elements of `count` operands, block by block, in the order of the reduction tree.
#[multiversion::multiversion(targets("x86_64+avx2", "x86_64+avx2+avx512f"))]
pub(crate) fn reduce_blocks<A, C, V>(vectors: &mut V, count: usize, len: usize, combine: C)
where
    A: Copy + Default,
    C: Fn(A, A) -> A,
    V: Operands<A>,
{
    let tree = ReductionTree::new(count);
    let mut waiting = [[A::default(); BLOCK]; LEVELS_MAX];
    for start in (0..len).step_by(BLOCK) {
        let range = start..len.min(start + BLOCK);
        let merge = |waiting: &mut [[A; BLOCK]], level: usize| {
            let (lower, upper) = waiting.split_at_mut(level);
            for (left, right) in lower[level - 1].iter_mut().zip(&upper[0]).take(range.len()) {
                *left = combine(*left, *right);
            }
        };
        let mut level = 0;
        for node in 0..tree.nodes {
            vectors.load(tree.first(node), range.clone(), &mut waiting[level]);
            level += 1;
            if let Some(second) = tree.second(node) {
                vectors.load(second, range.clone(), &mut waiting[level]);
                merge(&mut waiting, level);
            }
            // As in a binary counter: two branches of one size are combined.
            for _ in 0..(node + 1).trailing_zeros() {
                level -= 1;
                merge(&mut waiting, level);
            }
        }
        vectors.store(range.clone(), &waiting[0][..range.len()]);
    }
}
