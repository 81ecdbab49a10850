//! Conversion between the tensor types and shapes of ONNX Runtime and Orinoco, and typed views of tensors in host
//! memory.

use orinoco_core::{Dim, ElementType, TensorDesc};
use ort::Error;
use ort::memory::Allocator;
use ort::value::{DynTensor, Outlet, PrimitiveTensorElementType, TensorElementType, ValueType};

use crate::tensor::{Elements, ElementsMut};

pub(super) fn describe(outlet: &Outlet) -> TensorDesc {
    let (element, shape) = match outlet.dtype() {
        ValueType::Tensor { ty, shape, .. } => {
            let axes = shape.iter().map(|n| usize::try_from(*n).map_or(Dim::Dynamic, Dim::Fixed));
            (element_of(*ty), axes.collect())
        }
        _ => (None, Vec::new()),
    };
    TensorDesc { name: outlet.name().to_owned(), element, shape }
}

/// Returns the shape of a tensor without dynamic axes; `None` if it has one.
pub(super) fn fixed_shape(tensor: &TensorDesc) -> Option<Vec<usize>> {
    tensor.shape.iter().map(|axis| if let Dim::Fixed(n) = axis { Some(*n) } else { None }).collect()
}

pub(super) fn symbols_of(outlet: &Outlet) -> Vec<String> {
    let ValueType::Tensor { shape, dimension_symbols, .. } = outlet.dtype() else { return Vec::new() };
    let dynamic = |(size, symbol): (&i64, &String)| if *size < 0 { symbol.clone() } else { String::new() };
    shape.iter().zip(dimension_symbols.iter()).map(dynamic).collect()
}

const TYPES: [(ElementType, TensorElementType); 7] = [
    (ElementType::F32, TensorElementType::Float32),
    (ElementType::F16, TensorElementType::Float16),
    (ElementType::U8, TensorElementType::Uint8),
    (ElementType::I8, TensorElementType::Int8),
    (ElementType::I32, TensorElementType::Int32),
    (ElementType::I64, TensorElementType::Int64),
    (ElementType::Bool, TensorElementType::Bool),
];

fn element_of(theirs: TensorElementType) -> Option<ElementType> {
    TYPES.iter().find(|(_, other)| *other == theirs).map(|(ours, _)| *ours)
}
/// Allocates a zeroed tensor in the host's memory, with ONNX Runtime's own alignment.
pub(super) fn allocate(desc: &TensorDesc, shape: &[usize]) -> Result<DynTensor, Error> {
    DynTensor::new(&Allocator::default(), type_of(desc)?, shape)
}

pub(super) fn type_of(desc: &TensorDesc) -> Result<TensorElementType, Error> {
    let known = TYPES.iter().find(|(ours, _)| Some(*ours) == desc.element);
    known.map(|(_, theirs)| *theirs).ok_or_else(|| Error::new(format!("`{}` changed its type", desc.name)))
}
const CHECKED: &str = "only known types in host memory are bound";

pub(super) fn read(tensor: &DynTensor) -> Elements<'_> {
    fn typed<T: PrimitiveTensorElementType>(tensor: &DynTensor) -> &[T] {
        tensor.try_extract_tensor().expect(CHECKED).1
    }
    match tensor.data_type() {
        TensorElementType::Float32 => Elements::F32(typed(tensor)),
        TensorElementType::Float16 => Elements::F16(typed(tensor)),
        TensorElementType::Uint8 => Elements::U8(typed(tensor)),
        TensorElementType::Int8 => Elements::I8(typed(tensor)),
        TensorElementType::Int32 => Elements::I32(typed(tensor)),
        TensorElementType::Int64 => Elements::I64(typed(tensor)),
        TensorElementType::Bool => Elements::Bool(typed(tensor)),
        other => unreachable!("{CHECKED}, not {other}"),
    }
}

pub(super) fn write(tensor: &mut DynTensor) -> ElementsMut<'_> {
    fn typed<T: PrimitiveTensorElementType>(tensor: &mut DynTensor) -> &mut [T] {
        tensor.try_extract_tensor_mut().expect(CHECKED).1
    }
    match tensor.data_type() {
        TensorElementType::Float32 => ElementsMut::F32(typed(tensor)),
        TensorElementType::Float16 => ElementsMut::F16(typed(tensor)),
        TensorElementType::Uint8 => ElementsMut::U8(typed(tensor)),
        TensorElementType::Int8 => ElementsMut::I8(typed(tensor)),
        TensorElementType::Int32 => ElementsMut::I32(typed(tensor)),
        TensorElementType::Int64 => ElementsMut::I64(typed(tensor)),
        TensorElementType::Bool => ElementsMut::Bool(typed(tensor)),
        other => unreachable!("{CHECKED}, not {other}"),
    }
}

/// Copies all elements into a tensor of the same type and shape.
pub(super) fn copy(source: &DynTensor, target: &mut DynTensor) {
    match (read(source), write(target)) {
        (Elements::F32(source), ElementsMut::F32(target)) => target.copy_from_slice(source),
        (Elements::F16(source), ElementsMut::F16(target)) => target.copy_from_slice(source),
        (Elements::U8(source), ElementsMut::U8(target)) => target.copy_from_slice(source),
        (Elements::I8(source), ElementsMut::I8(target)) => target.copy_from_slice(source),
        (Elements::I32(source), ElementsMut::I32(target)) => target.copy_from_slice(source),
        (Elements::I64(source), ElementsMut::I64(target)) => target.copy_from_slice(source),
        (Elements::Bool(source), ElementsMut::Bool(target)) => target.copy_from_slice(source),
        (source, target) => unreachable!("{:?} into {:?}", source.element(), target.element()),
    }
}
