//! Loops of reductions.

use std::ops::Range;

use crate::ReduceOp;
use crate::arithmetic::{AllArithmetic, Arithmetic, Combine, Convert};
use crate::reduction_tree::ReductionTree;

/// Most operands of one reduction.
pub(crate) const OPERANDS_MAX: usize = 64;
/// Partial results that wait for their neighbour: one for each level of the tree, and the newest.
const LEVELS_MAX: usize = OPERANDS_MAX.ilog2() as usize + 2;
/// Elements that are reduced at a time, so that partial results stay in the first-level cache.
pub(crate) const BLOCK: usize = 256;
/// Elements of a block in which a shorter vector is reduced.
const BLOCK_OF_SHORT: usize = 16;
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
        [left, right] if !O::Convert::IS_BY_SLICE => reduce_two::<T, O>(into, left, right, ranks),
        _ if into.len() <= SHORT => reduce_short::<T, O>(into, operands, ranks),
        _ => {
            let (len, count, loops) = (into.len(), operands.len(), Loops::of::<O>());
            reduce_blocks(&mut Elements { into, operands, ranks, loops }, count, len, loops.combine);
        }
    }
}

#[multiversion::multiversion(targets("x86_64+avx2", "x86_64+avx2+avx512f"))]
fn reduce_two<T: AllArithmetic, O: Arithmetic<T>>(into: &mut [T], left: &[T], right: &[T], ranks: u32) {
    for ((result, left), right) in into.iter_mut().zip(left).zip(right) {
        let total = O::Combine::combine(O::Convert::widen(*left), O::Convert::widen(*right));
        *result = O::Convert::finish(total, ranks);
    }
}

fn reduce_short<T: AllArithmetic, O: Arithmetic<T>>(into: &mut [T], operands: &[&[T]], ranks: u32) {
    let tree = ReductionTree::new(operands.len());
    for (i, result) in into.iter_mut().enumerate() {
        let mut waiting = [O::Accumulator::default(); LEVELS_MAX];
        let mut level = 0;
        for node in 0..tree.nodes {
            let first = O::Convert::widen(operands[tree.first(node)][i]);
            let second = tree.second(node).map(|second| O::Convert::widen(operands[second][i]));
            waiting[level] = second.map_or(first, |second| O::Combine::combine(first, second));
            level += 1;
            for _ in 0..(node + 1).trailing_zeros() {
                level -= 1;
                waiting[level - 1] = O::Combine::combine(waiting[level - 1], waiting[level]);
            }
        }
        *result = O::Convert::finish(waiting[0], ranks);
    }
}

/// Loops of a reduction over elements, each compiled for several instruction sets. Reductions that convert or combine numbers alike
/// share them.
pub(crate) struct Loops<T, A> {
    /// Turns elements into partial results.
    pub(crate) widen: fn(&[T], &mut [A]),
    /// Combines partial results with others, which are of higher ranks.
    pub(crate) combine: fn(&mut [A], &[A]),
    /// Turns totals into results. An average divides by the number of ranks.
    pub(crate) finish: fn(&[A], &mut [T], u32),
}

impl<T: Copy + 'static, A: Copy + 'static> Loops<T, A> {
    pub(crate) fn of<O: Arithmetic<T, Accumulator = A>>() -> &'static Self {
        &Self {
            widen: widen::<T, O::Convert>,
            combine: combine::<A, O::Combine>,
            finish: finish::<T, O::Convert>,
        }
    }
}

#[multiversion::multiversion(targets("x86_64+avx2", "x86_64+avx2+avx512f"))]
fn widen<T: Copy, V: Convert<T>>(elements: &[T], partials: &mut [V::Accumulator]) {
    V::widen_slice(elements, partials);
}

#[multiversion::multiversion(targets("x86_64+avx2", "x86_64+avx2+avx512f"))]
pub(crate) fn combine<A: Copy, C: Combine<A>>(partials: &mut [A], others: &[A]) {
    for (left, right) in partials.iter_mut().zip(others) {
        *left = C::combine(*left, *right);
    }
}

#[multiversion::multiversion(targets("x86_64+avx2", "x86_64+avx2+avx512f"))]
fn finish<T: Copy, V: Convert<T>>(totals: &[V::Accumulator], results: &mut [T], ranks: u32) {
    V::finish_slice(totals, results, ranks);
}

/// Operands and result of a reduction in blocks.
pub(crate) trait Operands<A> {
    /// Reads elements `range` of an operand into `block`, which has as many elements.
    fn load(&self, operand: usize, range: Range<usize>, block: &mut [A]);

    /// Writes elements `range` of the result. What operands hold there is not read again.
    fn store(&mut self, range: Range<usize>, totals: &[A]);
}

/// Operands and a result that are vectors of the data type.
struct Elements<'a, T: 'static, A: 'static> {
    into: &'a mut [T],
    operands: &'a [&'a [T]],
    ranks: u32,
    loops: &'static Loops<T, A>,
}

impl<T, A> Operands<A> for Elements<'_, T, A> {
    fn load(&self, operand: usize, range: Range<usize>, block: &mut [A]) {
        (self.loops.widen)(&self.operands[operand][range], block);
    }

    fn store(&mut self, range: Range<usize>, totals: &[A]) {
        (self.loops.finish)(totals, &mut self.into[range], self.ranks);
    }
}

/// Reduces `len` elements of `count` operands, block by block, in the order of the reduction tree.
pub(crate) fn reduce_blocks<A: Copy + Default>(
    vectors: &mut dyn Operands<A>,
    count: usize,
    len: usize,
    combine: fn(&mut [A], &[A]),
) {
    // Blocks are cleared first, which would take longer than the reduction of a short vector.
    match len {
        ..=BLOCK_OF_SHORT => in_blocks::<A, BLOCK_OF_SHORT>(vectors, count, len, combine),
        _ => in_blocks::<A, BLOCK>(vectors, count, len, combine),
    }
}

fn in_blocks<A: Copy + Default, const SIZE: usize>(
    vectors: &mut dyn Operands<A>,
    count: usize,
    len: usize,
    combine: fn(&mut [A], &[A]),
) {
    let tree = ReductionTree::new(count);
    let mut waiting = [[A::default(); SIZE]; LEVELS_MAX];
    for start in (0..len).step_by(SIZE) {
        let range = start..len.min(start + SIZE);
        let size = range.len();
        let merge = |waiting: &mut [[A; SIZE]], level: usize| {
            let (lower, upper) = waiting.split_at_mut(level);
            combine(&mut lower[level - 1][..size], &upper[0][..size]);
        };
        let mut level = 0;
        for node in 0..tree.nodes {
            vectors.load(tree.first(node), range.clone(), &mut waiting[level][..size]);
            level += 1;
            if let Some(second) = tree.second(node) {
                vectors.load(second, range.clone(), &mut waiting[level][..size]);
                merge(&mut waiting, level);
            }
            // As in a binary counter: two branches of one size are combined.
            for _ in 0..(node + 1).trailing_zeros() {
                level -= 1;
                merge(&mut waiting, level);
            }
        }
        vectors.store(range, &waiting[0][..size]);
    }
}
