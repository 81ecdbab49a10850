use alloc::{format, string::String, vec::Vec};
use core::fmt;

use crate::{Choice, Diagnosis, codes};

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

/// A tensor of a request or of its answer: a name, a shape, and the elements, row-major, as little-endian bytes. A boolean
/// is one byte, 0 or another value.
#[derive(Clone, PartialEq, Eq)]
pub struct Tensor {
    name: String,
    element: ElementType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Tensor {
    /// Returns the tensor, if it has as many bytes as its shape says.
    ///
    /// # Errors
    /// `E0801` if there are more or fewer.
    pub fn new(
        name: impl Into<String>,
        element: ElementType,
        shape: Vec<usize>,
        bytes: Vec<u8>,
    ) -> Result<Self, Diagnosis> {
        let name = name.into();
        let needed = shape.iter().try_fold(element.bytes(), |bytes, size| bytes.checked_mul(*size));
        if needed != Some(bytes.len()) {
            let cause =
                format!("its shape is {shape:?} of {}, but it has {} bytes", element.name(), bytes.len());
            let next = "send as many bytes as the shape needs";
            return Err(Diagnosis::new(&codes::REQUEST_INVALID, format!("tensor `{name}`"), cause, next));
        }
        Ok(Self { name, element, shape, bytes })
    }

    /// Name in the model's graph.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Type of its elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// Size along each axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements, row-major, as little-endian bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {}{:?})", self.name, self.element.name(), self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_tensor_has_as_many_bytes_as_its_shape_says() {
        let check = |shape: &[usize], bytes: usize| {
            Tensor::new("x", ElementType::F16, shape.to_vec(), vec![0; bytes])
        };
        assert!(check(&[2, 3], 12).is_ok());
        assert!(check(&[], 2).is_ok());
        assert!(check(&[0, 3], 0).is_ok());
        let fault = check(&[2, 3], 6).unwrap_err();
        assert_eq!(fault.cause, "its shape is [2, 3] of f16, but it has 6 bytes");
        assert!(check(&[usize::MAX, 2], 4).is_err());
    }
}
