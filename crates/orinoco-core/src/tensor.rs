use alloc::{format, string::String, vec::Vec};
use core::fmt;

use crate::Choice;

/// Type of a tensor's elements. Names are those of model files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElementType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// Unsigned 8-bit.
    U8,
    /// Signed 8-bit.
    I8,
    /// Signed 32-bit.
    I32,
    /// Signed 64-bit.
    I64,
    /// One byte, 0 or 1.
    Bool,
}

impl ElementType {
    /// Returns the size of one element, in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::F16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::I64 => 8,
        }
    }

    /// Returns the name that model files and messages use.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::Bool => "bool",
        }
    }
}

/// Order of an image tensor's axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Batch, channel, height, width.
    Nchw,
    /// Batch, height, width, channel.
    Nhwc,
}

impl Choice for Layout {
    const ALL: &'static [Self] = &[Self::Nchw, Self::Nhwc];

    fn name(self) -> &'static str {
        match self {
            Self::Nchw => "NCHW",
            Self::Nhwc => "NHWC",
        }
    }
}

/// Axis of a tensor as the model declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim {
    /// Size given by the graph.
    Fixed(usize),
    /// Size chosen by the caller.
    Dynamic,
}

impl Dim {
    /// Whether a tensor may have `size` along this axis.
    pub fn accepts(self, size: usize) -> bool {
        match self {
            Self::Fixed(n) => n == size,
            Self::Dynamic => true,
        }
    }
}

/// Input or output of a model as its graph declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorDesc {
    /// Name in the graph.
    pub name: String,
    /// Element type; `None` when the graph has one that Orinoco does not know.
    pub element: Option<ElementType>,
    /// Axes with their sizes.
    pub shape: Vec<Dim>,
}

impl fmt::Display for TensorDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let element = self.element.map_or("unknown", ElementType::name);
        write!(f, "{} {element}{}", self.name, shape_text(&self.shape))
    }
}

/// Formats a shape for tables and messages: `[?,3,288,384]`.
pub fn shape_text(shape: &[Dim]) -> String {
    let axes: Vec<String> = shape
        .iter()
        .map(|d| match d {
            Dim::Fixed(n) => format!("{n}"),
            Dim::Dynamic => String::from("?"),
        })
        .collect();
    format!("[{}]", axes.join(","))
}
