//! Arithmetic of one element.

use half::{bf16, f16};

/// Arithmetic of a reduction on elements.
pub(crate) trait Arithmetic<T> {
    /// Type of partial results.
    type Accumulator: Copy + Default;

    fn widen(element: T) -> Self::Accumulator;
    /// Combines two partial results. The left one is of the lower ranks.
    fn combine(left: Self::Accumulator, right: Self::Accumulator) -> Self::Accumulator;
    fn finish(total: Self::Accumulator, ranks: u32) -> T;
}

pub(crate) struct Sum;
pub(crate) struct Product;
pub(crate) struct Min;
pub(crate) struct Max;
pub(crate) struct Average;

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
            type Sum = Sum;
            type Product = Product;
            type Min = Min;
            type Max = Max;
            type Average = Average;
        }
    )*};
}

all_arithmetic!(f32 f64 f16 bf16 i8 u8 i32 u32 i64 u64);

macro_rules! integer {
    ($type:ty, $wide:ty) => {
        integer!($type, Sum, |left, right| left.wrapping_add(right));
        integer!($type, Product, |left, right| left.wrapping_mul(right));
        integer!($type, Min, |left, right| left.min(right));
        integer!($type, Max, |left, right| left.max(right));
        impl Arithmetic<$type> for Average {
            type Accumulator = $wide;
            #[inline(always)]
            fn widen(element: $type) -> $wide {
                <$wide>::from(element)
            }
            #[inline(always)]
            fn combine(left: $wide, right: $wide) -> $wide {
                left.wrapping_add(right)
            }
            #[inline(always)]
            fn finish(total: $wide, ranks: u32) -> $type {
                // The average of numbers of a type fits it.
                (total / <$wide>::try_from(ranks).expect("fewer ranks than 2^31")) as $type
            }
        }
    };
    ($type:ty, $op:ident, |$left:ident, $right:ident| $combined:expr) => {
        impl Arithmetic<$type> for $op {
            type Accumulator = $type;
            #[inline(always)]
            fn widen(element: $type) -> $type {
                element
            }
            #[inline(always)]
            fn combine($left: $type, $right: $type) -> $type {
                $combined
            }
            #[inline(always)]
            fn finish(total: $type, _: u32) -> $type {
                total
            }
        }
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
            pub(super) fn add(left: $float, right: $float) -> $float {
                canonical(left + right)
            }

            #[inline(always)]
            pub(super) fn multiply(left: $float, right: $float) -> $float {
                canonical(left * right)
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
    };
}

float!(single, f32, u32, i32);
float!(double, f64, u64, i64);

macro_rules! float_reductions {
    ($type:ty, $accumulator:ty, $module:ident, |$element:ident| $widen:expr, |$total:ident| $round:expr) => {
        float_reductions!($type, $accumulator, $module, Sum, add, |$element| $widen, |$total, _ranks| $round);
        float_reductions!(
            $type,
            $accumulator,
            $module,
            Product,
            multiply,
            |$element| $widen,
            |$total, _ranks| $round
        );
        float_reductions!($type, $accumulator, $module, Min, minimum, |$element| $widen, |$total, _ranks| {
            $round
        });
        float_reductions!($type, $accumulator, $module, Max, maximum, |$element| $widen, |$total, _ranks| {
            $round
        });
        float_reductions!($type, $accumulator, $module, Average, add, |$element| $widen, |$total, ranks| {
            let $total = $total / ranks as $accumulator;
            $round
        });
    };
    ($type:ty, $accumulator:ty, $module:ident, $op:ident, $combine:ident, |$element:ident| $widen:expr,
     |$total:ident, $ranks:ident| $round:expr) => {
        impl Arithmetic<$type> for $op {
            type Accumulator = $accumulator;
            #[inline(always)]
            fn widen($element: $type) -> $accumulator {
                $widen
            }
            #[inline(always)]
            fn combine(left: $accumulator, right: $accumulator) -> $accumulator {
                $module::$combine(left, right)
            }
            #[inline(always)]
            fn finish($total: $accumulator, $ranks: u32) -> $type {
                let $total = $module::canonical($total);
                $round
            }
        }
    };
}

float_reductions!(f32, f32, single, |element| element, |total| total);
float_reductions!(f64, f64, double, |element| element, |total| total);
float_reductions!(f16, f32, single, |element| element.to_f32(), |total| f16::from_f32(total));
float_reductions!(bf16, f32, single, |element| element.to_f32(), |total| bf16::from_f32(total));
