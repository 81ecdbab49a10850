//! Loops of reductions.

use crate::ReduceOp;
use crate::arithmetic::{AllArithmetic, Arithmetic};
use crate::reduction_tree::ReductionTree;

/// Most operands of one reduction.
pub(crate) const OPERANDS_MAX: usize = 64;
/// Partial results that wait for their neighbour: one for each level of the tree, and the newest.
const LEVELS_MAX: usize = OPERANDS_MAX.ilog2() as usize + 2;
/// Elements that are reduced at a time, so that partial results stay in the first-level cache.
const BLOCK: usize = 256;
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
        _ => reduce_blocks::<T, O>(into, operands, ranks),
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

#[multiversion::multiversion(targets("x86_64+avx2", "x86_64+avx2+avx512f"))]
fn reduce_blocks<T: AllArithmetic, O: Arithmetic<T>>(into: &mut [T], operands: &[&[T]], ranks: u32) {
    let tree = ReductionTree::new(operands.len());
    let mut waiting = [[O::Accumulator::default(); BLOCK]; LEVELS_MAX];
    for (number, results) in into.chunks_mut(BLOCK).enumerate() {
        let range = number * BLOCK..number * BLOCK + results.len();
        let mut level = 0;
        for node in 0..tree.nodes {
            let first = &operands[tree.first(node)][range.clone()];
            match tree.second(node) {
                None => {
                    for (partial, first) in waiting[level].iter_mut().zip(first) {
                        *partial = O::widen(*first);
                    }
                }
                Some(second) => {
                    let second = &operands[second][range.clone()];
                    for ((partial, first), second) in waiting[level].iter_mut().zip(first).zip(second) {
                        *partial = O::combine(O::widen(*first), O::widen(*second));
                    }
                }
            }
            level += 1;
            // As in a binary counter: two branches of one size are combined.
            for _ in 0..(node + 1).trailing_zeros() {
                level -= 1;
                let (lower, upper) = waiting.split_at_mut(level);
                for (left, right) in lower[level - 1].iter_mut().zip(&upper[0]).take(range.len()) {
                    *left = O::combine(*left, *right);
                }
            }
        }
        for (result, total) in results.iter_mut().zip(&waiting[0]) {
            *result = O::finish(*total, ranks);
        }
    }
}
