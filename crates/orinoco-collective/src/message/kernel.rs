//! Copies and reductions between messages.

use std::ops::Range;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::memory::{Memory, Span};
use crate::arithmetic::{AllArithmetic, Arithmetic};
use crate::reduce::{Loops, Operands, reduce_blocks};
use crate::{Buffer, DataType, ReduceOp};

/// Sizes of a data type, and the code that reduces it.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// Bytes of an element.
    pub(super) element: usize,
    /// Bytes of an accumulator.
    pub(super) accumulator: usize,
    reduce: Option<Reduce>,
}

/// Reduces operands into a span, in the order of the reduction tree over them.
type Reduce = fn(&mut Memory<'_>, Span, &[Span], u32);

impl Kernel {
    /// For operations that only copy. Their schedules have no reductions.
    pub(crate) fn copying(data_type: Option<DataType>) -> Self {
        let element = data_type.map_or(1, DataType::size);
        Self { element, accumulator: element, reduce: None }
    }

    /// For sums of a data type, or for copies: their sizes, without the code.
    pub(super) fn of_sum(data_type: DataType) -> Self {
        let element = data_type.size();
        // `f16` and `bf16` are summed as `f32`.
        Self { element, accumulator: if element == 2 { 4 } else { element }, reduce: None }
    }

    pub(super) fn reduce(&self, memory: &mut Memory<'_>, into: Span, operands: &[Span], ranks: u32) {
        let reduce = self.reduce.expect("only reductions have steps that reduce");
        reduce(memory, into, operands, ranks);
    }

    /// Bytes of one value of a buffer.
    pub(super) fn size(&self, buffer: Buffer) -> usize {
        if buffer.is_partial() { self.accumulator } else { self.element }
    }
}

/// The kernel of a data type for a reduction that is known at run time.
pub(crate) fn kernel_of<T>(op: ReduceOp) -> Kernel
where
    T: AllArithmetic + Value,
    <T::Sum as Arithmetic<T>>::Accumulator: Value,
    <T::Product as Arithmetic<T>>::Accumulator: Value,
    <T::Min as Arithmetic<T>>::Accumulator: Value,
    <T::Max as Arithmetic<T>>::Accumulator: Value,
    <T::Average as Arithmetic<T>>::Accumulator: Value,
{
    match op {
        ReduceOp::Sum => kernel::<T, T::Sum>(),
        ReduceOp::Product => kernel::<T, T::Product>(),
        ReduceOp::Min => kernel::<T, T::Min>(),
        ReduceOp::Max => kernel::<T, T::Max>(),
        ReduceOp::Average => kernel::<T, T::Average>(),
    }
}

fn kernel<T: AllArithmetic + Value, O: Arithmetic<T>>() -> Kernel
where
    O::Accumulator: Value,
{
    Kernel {
        element: size_of::<T>(),
        accumulator: size_of::<O::Accumulator>(),
        reduce: Some(reduce_spans::<T, O>),
    }
}

/// A number as bytes: elements and accumulators.
pub(crate) trait Value: FromBytes + IntoBytes + Immutable + KnownLayout + Copy + 'static {}

impl<T: FromBytes + IntoBytes + Immutable + KnownLayout + Copy + 'static> Value for T {}

fn reduce_spans<T: AllArithmetic + Value, O: Arithmetic<T>>(
    memory: &mut Memory<'_>,
    into: Span,
    operands: &[Span],
    ranks: u32,
) where
    O::Accumulator: Value,
{
    let loops = Loops::of::<O>();
    let size = if into.buffer.is_partial() { size_of::<O::Accumulator>() } else { size_of::<T>() };
    let mut spans = Spans { memory, into, operands, ranks, loops };
    reduce_blocks(&mut spans, operands.len(), into.len / size, loops.combine);
}

/// Operands and a result in a rank's memory, where a result may take the place of an operand.
struct Spans<'m, 'a, T: 'static, A: 'static> {
    memory: &'m mut Memory<'a>,
    into: Span,
    operands: &'m [Span],
    ranks: u32,
    loops: &'static Loops<T, A>,
}

impl<T: Value, A: Value> Operands<A> for Spans<'_, '_, T, A> {
    fn load(&self, operand: usize, range: Range<usize>, block: &mut [A]) {
        let span = self.operands[operand];
        if span.buffer.is_partial() {
            block.copy_from_slice(values(self.memory.bytes(part::<A>(span, &range))));
        } else {
            (self.loops.widen)(values(self.memory.bytes(part::<T>(span, &range))), block);
        }
    }

    fn store(&mut self, range: Range<usize>, totals: &[A]) {
        if self.into.buffer.is_partial() {
            let bytes = self.memory.bytes_mut(part::<A>(self.into, &range));
            bytes.copy_from_slice(totals.as_bytes());
        } else {
            let bytes = self.memory.bytes_mut(part::<T>(self.into, &range));
            let results = <[T]>::mut_from_bytes(bytes).expect("aligned and whole elements");
            (self.loops.finish)(totals, results, self.ranks);
        }
    }
}

/// Some elements of a span.
fn part<T>(span: Span, range: &Range<usize>) -> Span {
    Span { start: span.start + range.start * size_of::<T>(), len: range.len() * size_of::<T>(), ..span }
}

fn values<T: Value>(bytes: &[u8]) -> &[T] {
    <[T]>::ref_from_bytes(bytes).expect("aligned and whole elements")
}
