//! Tensors as an engine lends them: typed slices of its own aligned memory, with no casts on either side of the boundary,
//! or their place on the GPU.

use half::f16;
use orinoco_core::ElementType;

use crate::device::Span;

/// Where a session's tensors are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TensorMemory {
    /// In the host's memory.
    #[default]
    Host,
    /// On the GPU. A build without CUDA has no such tensors.
    Device,
}

/// An input that a session lends, to be written before a run.
#[derive(Debug)]
pub enum TensorMut<'a> {
    /// In the host's memory.
    Host(TensorViewMut<'a>),
    /// On the GPU, written by kernels and copies.
    Device(&'a DeviceTensor),
}

impl<'a> TensorMut<'a> {
    /// The tensor, which is in the host's memory. Panics if it is on the GPU.
    pub fn host(self) -> TensorViewMut<'a> {
        match self {
            Self::Host(tensor) => tensor,
            Self::Device(tensor) => panic!("an input on the GPU is not written by the host: {tensor:?}"),
        }
    }

    /// The tensor, which is on the GPU. Panics if it is in the host's memory.
    pub fn device(self) -> &'a DeviceTensor {
        match self {
            Self::Host(tensor) => panic!("an input in the host's memory: {:?}", tensor.shape),
            Self::Device(tensor) => tensor,
        }
    }
}

/// An output that a session lends after a run.
#[derive(Debug)]
pub enum TensorRef<'a> {
    /// In the host's memory.
    Host(TensorView<'a>),
    /// On the GPU, read by kernels and copies.
    Device(&'a DeviceTensor),
}

impl<'a> TensorRef<'a> {
    /// The tensor, which is in the host's memory. Panics if it is on the GPU.
    pub fn host(self) -> TensorView<'a> {
        match self {
            Self::Host(tensor) => tensor,
            Self::Device(tensor) => panic!("an output on the GPU is not read by the host: {tensor:?}"),
        }
    }

    /// The tensor, which is on the GPU. Panics if it is in the host's memory.
    pub fn device(self) -> &'a DeviceTensor {
        match self {
            Self::Host(tensor) => panic!("an output in the host's memory: {:?}", tensor.shape),
            Self::Device(tensor) => tensor,
        }
    }
}

/// A tensor on the GPU, row-major. It stays where it is.
#[derive(Clone, Debug)]
pub struct DeviceTensor {
    /// Its axes.
    pub shape: Vec<usize>,
    /// The type of its elements.
    pub element: ElementType,
    /// Its bytes.
    pub span: Span,
}

/// A tensor to read, row-major.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorView<'a> {
    /// Its axes.
    pub shape: &'a [usize],
    /// Its elements.
    pub data: Elements<'a>,
}

/// A tensor to write, row-major.
#[derive(Debug)]
pub struct TensorViewMut<'a> {
    /// Its axes.
    pub shape: &'a [usize],
    /// Its elements.
    pub data: ElementsMut<'a>,
}

macro_rules! elements {
    ($($variant:ident $type:ty, $to_f32:expr, $from_f32:expr;)*) => {
        /// The elements of a tensor, typed.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each variant is the element type of the same name")]
        pub enum Elements<'a> { $($variant(&'a [$type]),)* }

        /// The elements of a tensor, typed, to write.
        #[derive(Debug)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each variant is the element type of the same name")]
        pub enum ElementsMut<'a> { $($variant(&'a mut [$type]),)* }

        impl Elements<'_> {
            /// Their type.
            pub fn element(&self) -> ElementType {
                match self { $(Self::$variant(_) => ElementType::$variant,)* }
            }

            /// Replaces the content of `target` by these elements as f32. Reuses its memory.
            pub fn to_f32(&self, target: &mut Vec<f32>) {
                target.clear();
                match self { $(Self::$variant(source) => target.extend(source.iter().map(|x| $to_f32(*x))),)* }
            }
        }

        impl ElementsMut<'_> {
            /// Their type.
            pub fn element(&self) -> ElementType {
                match self { $(Self::$variant(_) => ElementType::$variant,)* }
            }

            /// Their number.
            #[allow(clippy::len_without_is_empty, reason = "a tensor to write is never asked whether it is empty")]
            pub fn len(&self) -> usize {
                match self { $(Self::$variant(target) => target.len(),)* }
            }

            /// Writes every element from `source`: rounded to the nearest and kept in range for integers, false only
            /// for zero. Panics unless there are as many.
            pub fn copy_from_f32(&mut self, source: &[f32]) {
                self.map_from_f32(source, |x| x);
            }

            /// The same with `map` of every number.
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
    /// The values, if they are f32.
    pub fn f32(self) -> Option<&'a [f32]> {
        match self {
            Self::F32(values) => Some(values),
            _ => None,
        }
    }
}

impl<'a> ElementsMut<'a> {
    /// The values, if they are f32.
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
