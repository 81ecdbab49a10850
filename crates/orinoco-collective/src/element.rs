use half::{bf16, f16};

use crate::message::{Kernel, kernel_of};
use crate::reduce::{OPERANDS_MAX, reduce_vectors};
use crate::{DataType, ReduceOp};

mod sealed {
    use zerocopy::{FromBytes, Immutable, IntoBytes};

    use crate::ReduceOp;
    use crate::message::Kernel;

    pub trait Sealed: Sized + FromBytes + IntoBytes + Immutable {
        fn reduce(op: ReduceOp, into: &mut [Self], operands: &[&[Self]], ranks: u32);

        fn kernel(op: ReduceOp) -> Kernel;
    }
}

/// An element of an operation: one of the ten types of [`DataType`].
pub trait Element: sealed::Sealed + Copy + Default + Send + Sync + 'static {
    /// Its data type.
    const DATA_TYPE: DataType;
}

macro_rules! element {
    ($type:ty, $data_type:ident) => {
        impl sealed::Sealed for $type {
            // Inlining this or `kernel` would compile the loops of all types again in every crate that reduces.
            #[inline(never)]
            fn reduce(op: ReduceOp, into: &mut [Self], operands: &[&[Self]], ranks: u32) {
                reduce_vectors(op, into, operands, ranks);
            }

            #[inline(never)]
            fn kernel(op: ReduceOp) -> Kernel {
                kernel_of::<$type>(op)
            }
        }
        impl Element for $type {
            const DATA_TYPE: DataType = DataType::$data_type;
        }
    };
}

element!(f32, F32);
element!(f64, F64);
element!(f16, F16);
element!(bf16, Bf16);
element!(i8, I8);
element!(u8, U8);
element!(i32, I32);
element!(u32, U32);
element!(i64, I64);
element!(u64, U64);

/// The kernel of a data type for a reduction.
pub(crate) fn kernel<T: Element>(op: ReduceOp) -> Kernel {
    T::kernel(op)
}

/// Reduces vectors element by element, in the order of the reduction tree over the operands, and stores the results:
/// rounded, and for an average divided by `ranks`. The operands are all ranks' vectors, in order.
///
/// The reduction tree of `n` operands: let `k` be the largest power of two that is not above `n`, and `r` the rest. The first `2 r`
/// operands are combined in pairs; these pairs and the other operands are `k` nodes, which a complete binary tree combines,
/// neighbours first. The operand of the lower ranks is the left one.
///
/// # Panics
/// If there are no operands or more than 64, or if one differs from `into` in its length.
#[inline]
pub fn reduce<T: Element>(op: ReduceOp, into: &mut [T], operands: &[&[T]], ranks: u32) {
    assert!((1..=OPERANDS_MAX).contains(&operands.len()), "{} operands", operands.len());
    assert!(operands.iter().all(|operand| operand.len() == into.len()), "operands are as long as the result");
    T::reduce(op, into, operands, ranks);
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use proptest::prelude::*;

    use super::*;

    /// The order in which the documentation of the reduction tree combines values, written down once more.
    fn in_tree_order<A: Copy>(mut values: Vec<A>, combine: &impl Fn(A, A) -> A) -> A {
        let nodes = 1 << values.len().ilog2();
        let rest = values.split_off(2 * (values.len() - nodes));
        let mut level: Vec<A> = values.chunks(2).map(|pair| combine(pair[0], pair[1])).collect();
        level.extend(rest);
        while level.len() > 1 {
            level = level.chunks(2).map(|pair| combine(pair[0], pair[1])).collect();
        }
        level[0]
    }

    fn one<T: Element>(op: ReduceOp, operands: &[T]) -> T {
        let vectors: Vec<&[T]> = operands.iter().map(std::slice::from_ref).collect();
        let mut result = [T::default()];
        reduce(op, &mut result, &vectors, u32::try_from(operands.len()).expect("few"));
        result[0]
    }

    #[test]
    fn special_numbers_are_defined() {
        let nan = f32::from_bits(0xffc0_1234);
        for op in ReduceOp::ALL {
            assert_eq!(one(op, &[nan, 1.0]).to_bits(), 0x7fc0_0000, "{op}");
            assert_eq!(one(op, &[1.0, nan]).to_bits(), 0x7fc0_0000, "{op}");
            assert_eq!(one(op, &[nan]).to_bits(), 0x7fc0_0000, "{op}");
            assert_eq!(
                one(op, &[1.0, 2.0, f64::from_bits(0xfff8_0000_0000_1234)]).to_bits(),
                0x7ff8 << 48,
                "{op}"
            );
            assert_eq!(one(op, &[f16::from_bits(0xfe12), f16::ONE]).to_bits(), 0x7e00, "{op}");
            assert_eq!(one(op, &[bf16::from_bits(0xffc1), bf16::ONE]).to_bits(), 0x7fc0, "{op}");
        }
        assert_eq!(one(ReduceOp::Sum, &[f32::INFINITY, f32::NEG_INFINITY]).to_bits(), 0x7fc0_0000);
        for zeros in [[-0.0f32, 0.0], [0.0, -0.0]] {
            assert_eq!(one(ReduceOp::Min, &zeros).to_bits(), (-0.0f32).to_bits());
            assert_eq!(one(ReduceOp::Max, &zeros).to_bits(), 0);
        }
        let denormal = f32::from_bits(1);
        assert_eq!(one(ReduceOp::Sum, &[denormal, denormal]).to_bits(), 2);
        assert_eq!(one(ReduceOp::Min, &[f32::NEG_INFINITY, -1.0]), f32::NEG_INFINITY);
        assert_eq!(one(ReduceOp::Max, &[-2.0, -1.0]), -1.0);
    }

    #[test]
    fn integers_wrap_and_averages_do_not() {
        assert_eq!(one(ReduceOp::Sum, &[100i8, 100]), -56);
        assert_eq!(one(ReduceOp::Average, &[100i8, 100]), 100);
        assert_eq!(one(ReduceOp::Average, &[-3i32, 0]), -1);
        assert_eq!(one(ReduceOp::Average, &[u32::MAX, u32::MAX, u32::MAX]), u32::MAX);
        assert_eq!(one(ReduceOp::Product, &[1u64 << 63, 2]), 0);
    }

    #[test]
    fn half_precision_is_rounded_once() {
        // 2048 + 1 + 1: rounded after each sum it would stay at 2048.
        let values = [2048.0, 1.0, 1.0, 0.0].map(f16::from_f32);
        assert_eq!(one(ReduceOp::Sum, &values).to_f32(), 2050.0);
    }

    proptest! {
        #[test]
        fn vectors_of_any_length_are_combined_in_the_order_of_the_tree(
            ranks in 1usize..=OPERANDS_MAX,
            len in prop_oneof![0usize..20, 250usize..270, 500usize..530],
            seed in any::<u32>(),
        ) {
            let value = |rank: usize, i: usize| {
                let mixed = (rank as u32).wrapping_mul(2_654_435_761).wrapping_add(i as u32 * 40_503).wrapping_add(seed);
                f32::from_bits((mixed % 0x0100_0000) | 0x3f00_0000)
            };
            let vectors: Vec<Vec<f32>> = (0..ranks).map(|rank| (0..len).map(|i| value(rank, i)).collect()).collect();
            let operands: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).collect();
            let mut result = vec![0.0; len];
            reduce(ReduceOp::Sum, &mut result, &operands, 1);
            for (i, result) in result.iter().enumerate() {
                let expected = in_tree_order((0..ranks).map(|rank| value(rank, i)).collect(), &|a: f32, b| a + b);
                prop_assert_eq!(result.to_bits(), expected.to_bits());
            }
        }
    }
}
