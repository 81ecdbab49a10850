//! Tensors that an engine lends: typed slices of its own aligned memory in the host, without casts on either side of
//! the interface, or memory on the GPU.

use half::f16;
use orinoco_core::ElementType;

use crate::device::Span;

/// Memory that holds a session's tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TensorMemory {
    /// The host's memory.
    #[default]
    Host,
    /// The GPU's memory. A build without CUDA has no such tensors.
    Device,
}

/// Input that a session lends, to be written before a run.
#[derive(Debug)]
pub enum TensorMut<'a> {
    /// Tensor in the host's memory.
    Host(TensorViewMut<'a>),
    /// Tensor on the GPU, written by kernels and copies.
    Device(&'a DeviceTensor),
}

impl<'a> TensorMut<'a> {
    /// Returns the tensor in the host's memory. Panics if it is on the GPU.
    pub fn host(self) -> TensorViewMut<'a> {
        match self {
            Self::Host(tensor) => tensor,
            Self::Device(tensor) => panic!("an input on the GPU is not written by the host: {tensor:?}"),
        }
    }

    /// Returns the tensor on the GPU. Panics if it is in the host's memory.
    pub fn device(self) -> &'a DeviceTensor {
        match self {
            Self::Host(tensor) => panic!("an input in the host's memory: {:?}", tensor.shape),
            Self::Device(tensor) => tensor,
        }
    }
}

/// Output that a session lends after a run.
#[derive(Debug)]
pub enum TensorRef<'a> {
    /// Tensor in the host's memory.
    Host(TensorView<'a>),
    /// Tensor on the GPU, read by kernels and copies.
    Device(&'a DeviceTensor),
}

impl<'a> TensorRef<'a> {
    /// Returns the tensor in the host's memory. Panics if it is on the GPU.
    pub fn host(self) -> TensorView<'a> {
        match self {
            Self::Host(tensor) => tensor,
            Self::Device(tensor) => panic!("an output on the GPU is not read by the host: {tensor:?}"),
        }
    }

    /// Returns the tensor on the GPU. Panics if it is in the host's memory.
    pub fn device(self) -> &'a DeviceTensor {
        match self {
            Self::Host(tensor) => panic!("an output in the host's memory: {:?}", tensor.shape),
            Self::Device(tensor) => tensor,
        }
    }
}

/// Tensor on the GPU, row-major. Its address does not change.
#[derive(Clone, Debug)]
pub struct DeviceTensor {
    /// Size of each axis.
    pub shape: Vec<usize>,
    /// Type of the elements.
    pub element: ElementType,
    /// Memory of the elements.
    pub span: Span,
}

/// Tensor to read, row-major.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorView<'a> {
    /// Size of each axis.
    pub shape: &'a [usize],
    /// Elements in row-major order.
    pub data: Elements<'a>,
}

/// Tensor to write, row-major.
#[derive(Debug)]
pub struct TensorViewMut<'a> {
    /// Size of each axis.
    pub shape: &'a [usize],
    /// Elements in row-major order.
    pub data: ElementsMut<'a>,
}

/// An element and its bytes.
trait LittleEndian<const BYTES: usize>: Copy {
    fn from_little_endian(bytes: [u8; BYTES]) -> Self;
    fn to_little_endian(self) -> [u8; BYTES];
}

macro_rules! little_endian {
    ($($type:ty, $bytes:literal;)*) => {
        $(impl LittleEndian<$bytes> for $type {
            fn from_little_endian(bytes: [u8; $bytes]) -> Self {
                Self::from_le_bytes(bytes)
            }

            fn to_little_endian(self) -> [u8; $bytes] {
                self.to_le_bytes()
            }
        })*
    };
}

little_endian! { f32, 4; f16, 2; u8, 1; i8, 1; i32, 4; i64, 8; }

impl LittleEndian<1> for bool {
    fn from_little_endian([byte]: [u8; 1]) -> Self {
        byte != 0
    }

    fn to_little_endian(self) -> [u8; 1] {
        [u8::from(self)]
    }
}

macro_rules! elements {
    ($($variant:ident $type:ty, $to_f32:expr, $from_f32:expr;)*) => {
        /// Typed elements of a tensor.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each variant is the element type of the same name")]
        pub enum Elements<'a> { $($variant(&'a [$type]),)* }

        /// Typed elements of a tensor, to write.
        #[derive(Debug)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each variant is the element type of the same name")]
        pub enum ElementsMut<'a> { $($variant(&'a mut [$type]),)* }

        impl Elements<'_> {
            /// Returns the type of the elements.
            pub fn element(&self) -> ElementType {
                match self { $(Self::$variant(_) => ElementType::$variant,)* }
            }

            /// Returns the first `count` of them as little-endian bytes.
            pub(crate) fn to_bytes(self, count: usize) -> Vec<u8> {
                match self { $(Self::$variant(source) => {
                    source[..count].iter().flat_map(|x| x.to_little_endian()).collect()
                })* }
            }

            /// Replaces the content of `target` by these elements as f32, and reuses its memory.
            pub fn to_f32(&self, target: &mut Vec<f32>) {
                target.clear();
                match self { $(Self::$variant(source) => target.extend(source.iter().map(|x| $to_f32(*x))),)* }
            }
        }

        impl ElementsMut<'_> {
            /// Returns the type of the elements.
            pub fn element(&self) -> ElementType {
                match self { $(Self::$variant(_) => ElementType::$variant,)* }
            }

            /// Returns the number of elements.
            #[allow(clippy::len_without_is_empty, reason = "a tensor to write is never asked whether it is empty")]
            pub fn len(&self) -> usize {
                match self { $(Self::$variant(target) => target.len(),)* }
            }

            /// Writes the first elements from as many little-endian bytes as there are.
            pub(crate) fn copy_from_bytes(&mut self, bytes: &[u8]) {
                match self { $(Self::$variant(target) => {
                    let (elements, rest) = bytes.as_chunks();
                    assert!(rest.is_empty() && elements.len() <= target.len(), "{} bytes", bytes.len());
                    target.iter_mut().zip(elements).for_each(|(target, x)| {
                        *target = LittleEndian::from_little_endian(*x);
                    });
                })* }
            }

            /// Writes every element from `source`. Integers are rounded to the nearest and saturated to their range; a
            /// boolean is false only for zero. Panics unless `source` has the same number of elements.
            pub fn copy_from_f32(&mut self, source: &[f32]) {
                self.map_from_f32(source, |x| x);
            }

            /// Writes every element from `source` like `copy_from_f32`, after applying `map` to it.
            pub fn map_from_f32(&mut self, source: &[f32], map: impl Fn(f32) -> f32) {
                match self { $(Self::$variant(target) => {
                    assert_eq!(target.len(), source.len(), "a tensor is written whole");
                    target.iter_mut().zip(source).for_each(|(target, x)| *target = $from_f32(map(*x)));
                })* }
            }
        }
    };
}

elements! {
    F32 f32, |x: f32| x, |x: f32| x;
    F16 f16, f16::to_f32, f16::from_f32;
    U8 u8, |x: u8| f32::from(x), |x: f32| x.round_ties_even() as u8;
    I8 i8, |x: i8| f32::from(x), |x: f32| x.round_ties_even() as i8;
    I32 i32, |x: i32| x as f32, |x: f32| x.round_ties_even() as i32;
    I64 i64, |x: i64| x as f32, |x: f32| x.round_ties_even() as i64;
    Bool bool, |x: bool| f32::from(u8::from(x)), |x: f32| x != 0.0;
}

impl<'a> Elements<'a> {
    /// Returns the values, if they are f32.
    pub fn f32(self) -> Option<&'a [f32]> {
        match self {
            Self::F32(values) => Some(values),
            _ => None,
        }
    }
}

impl<'a> ElementsMut<'a> {
    /// Returns the values, if they are f32.
    pub fn f32(self) -> Option<&'a mut [f32]> {
        match self {
            Self::F32(values) => Some(values),
            _ => None,
        }
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_elements_and_bytes_again() {
        let (mut halves, mut numbers, mut flags) = ([f16::ZERO; 3], [0i64; 1], [false; 2]);
        ElementsMut::F16(&mut halves).copy_from_bytes(&[0, 0x3c, 0, 0xc0]);
        ElementsMut::I64(&mut numbers).copy_from_bytes(&[1, 2, 0, 0, 0, 0, 0, 0]);
        ElementsMut::Bool(&mut flags).copy_from_bytes(&[7, 0]);
        assert_eq!(halves.map(f16::to_f32), [1.0, -2.0, 0.0], "the last stays");
        assert_eq!((numbers, flags), ([0x201], [true, false]));
        assert_eq!(Elements::F16(&halves).to_bytes(2), [0, 0x3c, 0, 0xc0]);
        assert_eq!(Elements::Bool(&flags).to_bytes(2), [1, 0]);
    }

    #[test]
    fn values_are_rounded_into_the_type_of_the_tensor() {
        let (mut bytes, mut halves) = ([0u8; 4], [f16::ZERO; 1]);
        ElementsMut::U8(&mut bytes).copy_from_f32(&[-3.0, 1.5, 2.5, 300.0]);
        ElementsMut::F16(&mut halves).copy_from_f32(&[0.5]);
        assert_eq!(bytes, [0, 2, 2, 255]);
        let mut back = Vec::new();
        Elements::F16(&halves).to_f32(&mut back);
        assert_eq!(back, [0.5]);
    }
}
