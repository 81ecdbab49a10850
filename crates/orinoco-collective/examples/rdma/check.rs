//! Every operation, data type and reduction, compared with a reference in 64-bit integers, and sums of `f32` whose bits depend on their
//! order.

use std::error::Error;
use std::fmt::Debug;

use half::{bf16, f16};
use orinoco_collective::{Communicator, Element, RdmaGroup, ReduceOp, reduce};

/// Empty, one, odd, several packets, and more than a ring.
const LENS: [usize; 5] = [0, 1, 13, 3_001, 80_001];
const OPS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max, ReduceOp::Average];

/// An element that is made from a small integer without loss.
trait Small: Element + PartialEq + Debug {
    fn of(value: i64) -> Self;
}

macro_rules! small {
    ($($type:ty, |$value:ident| $of:expr;)*) => {$(
        impl Small for $type {
            fn of($value: i64) -> Self {
                $of
            }
        }
    )*};
}

small! {
    f32, |value| value as f32;
    f64, |value| value as f64;
    f16, |value| f16::from_f64(value as f64);
    bf16, |value| bf16::from_f64(value as f64);
    i8, |value| value as i8;
    u8, |value| value as u8;
    i32, |value| value as i32;
    u32, |value| value as u32;
    i64, |value| value;
    u64, |value| value as u64;
}

/// Checks everything. Returns how much that was.
pub(crate) fn check(group: &mut RdmaGroup) -> Result<String, Box<dyn Error>> {
    let mut checked = Checked { group, results: 0, elements: 0, wrong: 0 };
    for len in LENS {
        checked.operations::<f32>(len)?;
        checked.operations::<f64>(len)?;
        checked.operations::<f16>(len)?;
        checked.operations::<bf16>(len)?;
        checked.operations::<i8>(len)?;
        checked.operations::<u8>(len)?;
        checked.operations::<i32>(len)?;
        checked.operations::<u32>(len)?;
        checked.operations::<i64>(len)?;
        checked.operations::<u64>(len)?;
        checked.order(len)?;
    }
    let Checked { results, elements, wrong, .. } = checked;
    Ok(format!("{results} results with {elements} elements, {wrong} wrong"))
}

struct Checked<'a> {
    group: &'a mut RdmaGroup,
    results: usize,
    elements: usize,
    wrong: usize,
}

/// Element `i` of a rank's vector: 0, 2 or 4, so that averages of two are whole numbers.
fn value(rank: usize, i: usize) -> i64 {
    2 * ((rank * 31 + i * 7) % 3) as i64
}

fn vector<T: Small>(rank: usize, range: std::ops::Range<usize>) -> Vec<T> {
    range.map(|i| T::of(value(rank, i))).collect()
}

/// The result of a reduction for an element.
fn reduced(op: ReduceOp, ranks: usize, i: usize) -> i64 {
    let values = (0..ranks).map(|rank| value(rank, i));
    match op {
        ReduceOp::Sum => values.sum(),
        ReduceOp::Product => values.product(),
        ReduceOp::Min => values.min().unwrap_or(0),
        ReduceOp::Max => values.max().unwrap_or(0),
        ReduceOp::Average => values.sum::<i64>() / ranks as i64,
    }
}

impl Checked<'_> {
    fn note<T: PartialEq>(&mut self, found: &[T], expected: &[T]) {
        self.results += 1;
        self.elements += expected.len();
        self.wrong += found.len().abs_diff(expected.len());
        self.wrong += found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
    }

    fn operations<T: Small>(&mut self, len: usize) -> Result<(), Box<dyn Error>> {
        for op in OPS {
            self.reductions::<T>(op, len)?;
        }
        self.copies::<T>(len)?;
        self.uneven::<T>(len)?;
        Ok(())
    }

    fn reductions<T: Small>(&mut self, op: ReduceOp, len: usize) -> Result<(), Box<dyn Error>> {
        let (rank, ranks) = (self.group.rank(), self.group.ranks());
        let expected =
            |range: std::ops::Range<usize>| range.map(|i| T::of(reduced(op, ranks, i))).collect::<Vec<_>>();
        let mut found = vector::<T>(rank, 0..len);
        self.group.all_reduce(op, &mut found)?;
        self.note(&found, &expected(0..len));

        let mut found = vec![T::default(); len];
        self.group.all_reduce_into(op, &vector::<T>(rank, 0..len), &mut found)?;
        self.note(&found, &expected(0..len));

        let root = len % ranks;
        let mut found = vec![T::default(); if rank == root { len } else { 0 }];
        self.group.reduce(op, root, &vector::<T>(rank, 0..len), &mut found)?;
        self.note(&found, &expected(0..found.len()));

        let mut found = vec![T::default(); len];
        self.group.reduce_scatter(op, &vector::<T>(rank, 0..len * ranks), &mut found)?;
        self.note(&found, &expected(rank * len..(rank + 1) * len));
        Ok(())
    }

    fn copies<T: Small>(&mut self, len: usize) -> Result<(), Box<dyn Error>> {
        let (rank, ranks) = (self.group.rank(), self.group.ranks());
        let (root, all) = (len % ranks, 0..len * ranks);
        let mut found = vector::<T>(rank, 0..len);
        self.group.broadcast(root, &mut found)?;
        self.note(&found, &vector(root, 0..len));

        let blocks = if rank == root { vector::<T>(5, all.clone()) } else { Vec::new() };
        let mut found = vec![T::default(); len];
        self.group.scatter(root, &blocks, &mut found)?;
        self.note(&found, &vector(5, rank * len..(rank + 1) * len));

        let gathered: Vec<T> = (0..ranks).flat_map(|rank| vector::<T>(rank, 0..len)).collect();
        let mut found = vec![T::default(); if rank == root { len * ranks } else { 0 }];
        self.group.gather(root, &vector::<T>(rank, 0..len), &mut found)?;
        self.note(&found, if rank == root { &gathered } else { &[] });

        let mut found = vec![T::default(); len * ranks];
        self.group.all_gather(&vector::<T>(rank, 0..len), &mut found)?;
        self.note(&found, &gathered);

        let mut found = vec![T::default(); len * ranks];
        self.group.all_to_all(&vector::<T>(rank, all), &mut found)?;
        let expected = (0..ranks).flat_map(|from| vector::<T>(from, rank * len..(rank + 1) * len));
        self.note(&found, &expected.collect::<Vec<_>>());

        let mut found = vec![T::default(); len];
        match rank {
            0 => self.group.send(1, &vector::<T>(0, 0..len))?,
            1 => {
                self.group.recv(0, &mut found)?;
                self.note(&found, &vector(0, 0..len));
            }
            _ => {}
        }
        self.group.barrier()?;
        Ok(())
    }

    /// The operations with a number of elements for each rank.
    fn uneven<T: Small>(&mut self, len: usize) -> Result<(), Box<dyn Error>> {
        let (rank, ranks) = (self.group.rank(), self.group.ranks());
        let counts: Vec<usize> = (0..ranks).map(|rank| len / (rank + 1)).collect();
        let start = |of: usize| counts[..of].iter().sum::<usize>();
        let (total, root) = (start(ranks), len % ranks);
        let block = start(rank)..start(rank + 1);

        let gathered: Vec<T> = (0..ranks).flat_map(|rank| vector::<T>(rank, 0..counts[rank])).collect();
        let mut found = vec![T::default(); total];
        self.group.all_gather_v(&vector::<T>(rank, 0..counts[rank]), &counts, &mut found)?;
        self.note(&found, &gathered);

        let mut found = vec![T::default(); if rank == root { total } else { 0 }];
        self.group.gather_v(root, &vector::<T>(rank, 0..counts[rank]), &counts, &mut found)?;
        self.note(&found, if rank == root { &gathered } else { &[] });

        let blocks = if rank == root { vector::<T>(5, 0..total) } else { Vec::new() };
        let mut found = vec![T::default(); counts[rank]];
        self.group.scatter_v(root, &blocks, &counts, &mut found)?;
        self.note(&found, &vector(5, block.clone()));

        let mut found = vec![T::default(); counts[rank]];
        self.group.reduce_scatter_v(ReduceOp::Sum, &vector::<T>(rank, 0..total), &counts, &mut found)?;
        let expected: Vec<T> = block.clone().map(|i| T::of(reduced(ReduceOp::Sum, ranks, i))).collect();
        self.note(&found, &expected);

        let mut found = vec![T::default(); counts[rank] * ranks];
        let receive = vec![counts[rank]; ranks];
        self.group.all_to_all_v(&vector::<T>(rank, 0..total), &counts, &mut found, &receive)?;
        let expected = (0..ranks).flat_map(|from| vector::<T>(from, block.clone()));
        self.note(&found, &expected.collect::<Vec<_>>());
        Ok(())
    }

    /// Sums whose bits depend on the order of their operands.
    fn order(&mut self, len: usize) -> Result<(), Box<dyn Error>> {
        let (rank, ranks) = (self.group.rank(), self.group.ranks());
        let of = |rank: usize| -> Vec<f32> {
            (0..len).map(|i| ((rank * 31 + i * 7) % 1013) as f32 * 0.1 + 1e-4).collect()
        };
        let vectors: Vec<Vec<f32>> = (0..ranks).map(of).collect();
        let operands: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).collect();
        let mut expected = vec![0.0; len];
        reduce(ReduceOp::Sum, &mut expected, &operands, 1);
        let mut found = of(rank);
        self.group.all_reduce(ReduceOp::Sum, &mut found)?;
        let bits = |vector: &[f32]| vector.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        self.note(&bits(&found), &bits(&expected));
        Ok(())
    }
}
