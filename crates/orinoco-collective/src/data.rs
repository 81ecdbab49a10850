//! Data types and reductions.

use std::fmt;

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

/// Reduction: the way in which elements are combined.
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
