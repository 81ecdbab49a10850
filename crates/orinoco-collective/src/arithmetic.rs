//! Arithmetic of one element.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Combination of two partial results.
pub(crate) trait Combine<A> {
    /// The left one is of the lower ranks.
    fn combine(left: A, right: A) -> A;
}

pub(crate) struct Add;
pub(crate) struct Multiply;
pub(crate) struct Least;
pub(crate) struct Greatest;

/// Conversion of elements to partial results, and of totals to elements.
pub(crate) trait Convert<T> {
    /// Type of partial results.
    type Accumulator: Copy + Default + 'static;

    /// Whether slices are converted faster than their elements one by one.
    const IS_BY_SLICE: bool = false;

    fn widen(element: T) -> Self::Accumulator;
    fn finish(total: Self::Accumulator, ranks: u32) -> T;

    /// Converts elements to as many partial results.
    #[inline(always)]
    fn widen_slice(elements: &[T], partials: &mut [Self::Accumulator])
    where
        T: Copy,
    {
        for (partial, element) in partials.iter_mut().zip(elements) {
            *partial = Self::widen(*element);
        }
    }

    /// Converts totals to as many elements.
    #[inline(always)]
    fn finish_slice(totals: &[Self::Accumulator], results: &mut [T], ranks: u32) {
        for (result, total) in results.iter_mut().zip(totals) {
            *result = Self::finish(*total, ranks);
        }
    }
}

/// Results are totals, rounded where partial results have more digits.
pub(crate) struct Total;
/// Results are totals divided by the number of ranks.
pub(crate) struct Mean;

/// Arithmetic of a reduction on elements.
pub(crate) trait Arithmetic<T> {
    type Accumulator: Copy + Default + 'static;
    type Convert: Convert<T, Accumulator = Self::Accumulator>;
    type Combine: Combine<Self::Accumulator>;
}

impl<T, V: Convert<T>, C: Combine<V::Accumulator>> Arithmetic<T> for (V, C) {
    type Accumulator = V::Accumulator;
    type Convert = V;
    type Combine = C;
}

/// An element's arithmetic for all reductions, of which one is chosen at run time.
pub(crate) trait AllArithmetic: Copy + Default + 'static {
    type Sum: Arithmetic<Self>;
    type Product: Arithmetic<Self>;
    type Min: Arithmetic<Self>;
    type Max: Arithmetic<Self>;
    type Average: Arithmetic<Self>;
}

macro_rules! all_arithmetic {
    ($($type:ty)*) => {$(
        impl AllArithmetic for $type {
            type Sum = (Total, Add);
            type Product = (Total, Multiply);
            type Min = (Total, Least);
            type Max = (Total, Greatest);
            type Average = (Mean, Add);
        }
    )*};
}

all_arithmetic!(f32 f64 f16 bf16 i8 u8 i32 u32 i64 u64);

macro_rules! combine {
    ($type:ty, $combination:ty, |$left:ident, $right:ident| $combined:expr) => {
        impl Combine<$type> for $combination {
            #[inline(always)]
            fn combine($left: $type, $right: $type) -> $type {
                $combined
            }
        }
    };
}

macro_rules! convert {
    ($type:ty, $accumulator:ty, $conversion:ty, |$element:ident| $widened:expr, |$total:ident, $ranks:ident| $result:expr) => {
        impl Convert<$type> for $conversion {
            type Accumulator = $accumulator;

            #[inline(always)]
            fn widen($element: $type) -> $accumulator {
                $widened
            }

            #[inline(always)]
            fn finish($total: $accumulator, $ranks: u32) -> $type {
                $result
            }
        }
    };
}

macro_rules! integer {
    ($type:ty, $wide:ty) => {
        combine!($type, Add, |left, right| left.wrapping_add(right));
        combine!($type, Multiply, |left, right| left.wrapping_mul(right));
        combine!($type, Least, |left, right| left.min(right));
        combine!($type, Greatest, |left, right| left.max(right));
        convert!($type, $type, Total, |element| element, |total, _ranks| total);
        convert!($type, $wide, Mean, |element| <$wide>::from(element), |total, ranks| {
            // The average of numbers of a type fits it.
            (total / <$wide>::try_from(ranks).expect("fewer ranks than 2^31")) as $type
        });
    };
}

integer!(i8, i32);
integer!(u8, u32);
integer!(i32, i64);
integer!(u32, u64);
integer!(i64, i64);
integer!(u64, u64);

/// Combines floating-point numbers as `ReduceOp` defines it.
macro_rules! float {
    ($module:ident, $float:ty, $bits:ty, $signed:ty) => {
        mod $module {
            /// The quiet NaN without sign and payload.
            const NAN: $float =
                <$float>::from_bits(<$float>::INFINITY.to_bits() | 1 << (<$float>::MANTISSA_DIGITS - 2));

            #[inline(always)]
            pub(super) fn canonical(value: $float) -> $float {
                if value.is_nan() { NAN } else { value }
            }

            #[inline(always)]
            pub(super) fn minimum(left: $float, right: $float) -> $float {
                let least = if order(right) < order(left) { right } else { left };
                if left.is_nan() || right.is_nan() { NAN } else { least }
            }

            #[inline(always)]
            pub(super) fn maximum(left: $float, right: $float) -> $float {
                let greatest = if order(right) > order(left) { right } else { left };
                if left.is_nan() || right.is_nan() { NAN } else { greatest }
            }

            /// A number whose order is that of the values, -0 below +0.
            #[inline(always)]
            fn order(value: $float) -> $signed {
                let bits = value.to_bits() as $signed;
                bits ^ (((bits >> (<$signed>::BITS - 1)) as $bits) >> 1) as $signed
            }
        }
        combine!($float, Add, |left, right| $module::canonical(left + right));
        combine!($float, Multiply, |left, right| $module::canonical(left * right));
        combine!($float, Least, |left, right| $module::minimum(left, right));
        combine!($float, Greatest, |left, right| $module::maximum(left, right));
    };
}

float!(single, f32, u32, i32);
float!(double, f64, u64, i64);

/// Conversions of elements that are reduced as floating-point numbers. The total of one rank was never combined, so its NaN may have any bits
/// until `finish`.
macro_rules! floating {
    ($type:ty, $accumulator:ty, $module:ident, |$element:ident| $widened:expr, |$total:ident| $rounded:expr) => {
        convert!($type, $accumulator, Total, |$element| $widened, |total, _ranks| {
            let $total = $module::canonical(total);
            $rounded
        });
        convert!($type, $accumulator, Mean, |$element| $widened, |total, ranks| {
            let $total = $module::canonical(total / ranks as $accumulator);
            $rounded
        });
    };
}

floating!(f32, f32, single, |element| element, |total| total);
floating!(f64, f64, double, |element| element, |total| total);
floating!(bf16, f32, single, |element| element.to_f32(), |total| bf16::from_f32(total));

/// Numbers that are rounded at a time.
const ROUNDED: usize = 64;

/// Conversions of `f16`. Of single numbers, `half` asks each time whether the processor converts them.
macro_rules! half_precision {
    ($conversion:ty, |$total:ident, $ranks:ident| $result:expr) => {
        impl Convert<f16> for $conversion {
            type Accumulator = f32;
            const IS_BY_SLICE: bool = true;

            #[inline(always)]
            fn widen(element: f16) -> f32 {
                element.to_f32()
            }

            #[inline(always)]
            fn finish($total: f32, $ranks: u32) -> f16 {
                f16::from_f32(single::canonical($result))
            }

            fn widen_slice(elements: &[f16], partials: &mut [f32]) {
                elements.convert_to_f32_slice(partials);
            }

            #[inline(always)]
            fn finish_slice(totals: &[f32], results: &mut [f16], $ranks: u32) {
                let mut block = [0.0; ROUNDED];
                for (totals, results) in totals.chunks(ROUNDED).zip(results.chunks_mut(ROUNDED)) {
                    let block = &mut block[..totals.len()];
                    for (number, $total) in block.iter_mut().zip(totals.iter().copied()) {
                        *number = single::canonical($result);
                    }
                    results.convert_from_f32_slice(block);
                }
            }
        }
    };
}

half_precision!(Total, |total, _ranks| total);
half_precision!(Mean, |total, ranks| total / ranks as f32);
