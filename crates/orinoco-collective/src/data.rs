//! Data types and reductions: what is computed for one element.

use std::fmt;

use half::{bf16, f16};

/// Type of the elements of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DataType {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
    /// IEEE 754 half precision.
    F16,
    /// The upper half of an `f32`.
    Bf16,
    /// 8-bit signed integer.
    I8,
    /// 8-bit unsigned integer.
    U8,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit signed integer.
    I64,
    /// 64-bit unsigned integer.
    U64,
}

impl DataType {
    /// All data types.
    pub const ALL: [Self; 10] = [
        Self::F32,
        Self::F64,
        Self::F16,
        Self::Bf16,
        Self::I8,
        Self::U8,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
    ];

    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// Name in messages and settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How elements are combined.
///
/// Results are defined to the bit, on every processor:
/// - A result that is not a number is the quiet NaN without sign and payload, whatever the operands were.
/// - The minimum and maximum of a NaN and a number is NaN, and -0 is less than +0 (IEEE 754-2019, `minimum` and `maximum`).
/// - Denormal numbers are kept.
/// - Sums and products of integers wrap around.
/// - An average of integers is rounded towards zero. Sums of `i8`, `u8`, `i32` and `u32` for an average do not wrap around; those
///   of `i64` and `u64` do.
/// - `f16` and `bf16` are combined in `f32`, and rounded once, to the nearest even number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Product.
    Product,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
    /// Sum, divided by the number of ranks.
    Average,
}

impl ReduceOp {
    /// All reductions.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Product, Self::Min, Self::Max, Self::Average];

    /// Name in messages and settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::Average => "average",
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// An element of an operation: one of the ten types of [`DataType`].
pub trait Element: sealed::Sealed + Copy + Default + Send + Sync + 'static {
    /// Its data type.
    const DATA_TYPE: DataType;
}

/// Arithmetic of a [`ReduceOp`] on elements.
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
pub(crate) trait AllArithmetic: Element {
    type Sum: Arithmetic<Self>;
    type Product: Arithmetic<Self>;
    type Min: Arithmetic<Self>;
    type Max: Arithmetic<Self>;
    type Average: Arithmetic<Self>;
}

macro_rules! element {
    ($type:ty, $data_type:ident) => {
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DATA_TYPE: DataType = DataType::$data_type;
        }
        impl AllArithmetic for $type {
            type Sum = Sum;
            type Product = Product;
            type Min = Min;
            type Max = Max;
            type Average = Average;
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

/// Combines floating-point numbers as [`ReduceOp`] defines it.
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
