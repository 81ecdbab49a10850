//! Precision in which a graph computes, by its operators and weights.

use std::fmt;
use std::io;
use std::path::Path;

use prost::Message;

use crate::onnx::ONNX;
use crate::protobuf::{Field, Fields};

/// Precision of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// 32-bit floating point.
    Fp32,
    /// 16-bit floating point (IEEE 754 binary16).
    Fp16,
    /// 16-bit floating point with the range of 32 bits (bfloat16).
    Bf16,
    /// 8-bit integers: activations are quantised, by operators of the graph.
    Int8,
}

impl Precision {
    /// Returns the precision of the ONNX `file`: `int8` where a node quantises activations or computes in 8-bit integers,
    /// else the type of most of its weights. Weights that are only stored in 8 bits do not make it `int8`. `None` for a file
    /// that cannot be read, and for a graph without weights in floating point.
    pub fn of(file: &Path) -> Option<Self> {
        let mut counts = Counts::default();
        let mut fields = Fields::new(ONNX.open(file).ok()?);
        counts.model(&mut fields).ok()?;
        counts.precision()
    }

    /// Returns its name in model cards.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Operators that quantise activations, or compute in 8-bit integers (ONNX Operator Schemas; ONNX Runtime, contrib operators).
const INTEGER_OPERATORS: [&str; 6] = [
    "QuantizeLinear",
    "DynamicQuantizeLinear",
    "QLinearConv",
    "QLinearMatMul",
    "ConvInteger",
    "MatMulInteger",
];

/// Maximum size of a node, in bytes. Larger ones hold a tensor and are no integer operators.
const NODE_BYTES_MAX: u64 = 1 << 20;
/// Number of the field with a tensor's element type (`TensorProto.data_type`).
const ELEMENT_TYPE: u64 = 2;

/// Number of weights of each type.
#[derive(Debug, Default)]
struct Counts {
    fp32: u64,
    fp16: u64,
    bf16: u64,
    has_integer_operator: bool,
}

#[derive(Clone, PartialEq, Message)]
struct OperatorProto {
    #[prost(string, tag = "4")]
    op_type: String,
}

impl Counts {
    /// Reads a model: its graph is field 7 (onnx.proto, `ModelProto`).
    fn model(&mut self, fields: &mut Fields) -> io::Result<()> {
        while let Some(field) = fields.next(fields.end())? {
            match field.number {
                7 => self.graph(fields, field)?,
                _ => fields.skip(field.length)?,
            }
        }
        Ok(())
    }

    /// Reads a graph: nodes are field 1, initialisers field 5 (`GraphProto`).
    fn graph(&mut self, fields: &mut Fields, graph: Field) -> io::Result<()> {
        let end = fields.end_of(graph);
        while let Some(field) = fields.next(end)? {
            match field.number {
                1 => {
                    let node: Option<OperatorProto> = fields.message(field, NODE_BYTES_MAX)?;
                    self.has_integer_operator |=
                        node.is_some_and(|node| INTEGER_OPERATORS.contains(&node.op_type.as_str()));
                }
                5 => self.tensor(fields, field)?,
                _ => fields.skip(field.length)?,
            }
        }
        Ok(())
    }

    /// Counts the values of a tensor by the size of its data: `raw_data` is field 9, `float_data` field 4, and `int32_data`,
    /// which also holds 16-bit floats, field 5 (`TensorProto`).
    fn tensor(&mut self, fields: &mut Fields, tensor: Field) -> io::Result<()> {
        let end = fields.end_of(tensor);
        let mut element = 0;
        // The element type comes before the data: serialisers write fields in the order of their numbers.
        while let Some(field) = fields.next_with(end, |number, value| {
            if number == ELEMENT_TYPE {
                element = value;
            }
        })? {
            match (field.number, element) {
                (4, _) | (9, 1) => self.fp32 += field.length / 4,
                (9, 10) => self.fp16 += field.length / 2,
                // Two bytes in a varint of up to three.
                (5, 10) => self.fp16 += field.length / 3,
                (9, 16) => self.bf16 += field.length / 2,
                _ => {}
            }
            fields.skip(field.length)?;
        }
        Ok(())
    }

    fn precision(&self) -> Option<Precision> {
        if self.has_integer_operator {
            return Some(Precision::Int8);
        }
        let of_type =
            [(self.fp32, Precision::Fp32), (self.fp16, Precision::Fp16), (self.bf16, Precision::Bf16)];
        let (count, precision) = of_type.into_iter().max_by_key(|(count, _)| *count)?;
        (count > 0).then_some(precision)
    }
}

#[cfg(test)]
mod tests {
    use orinoco_tests::onnx::{Graph, element};

    use super::*;

    fn check(graph: Graph, expected: Option<Precision>) {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), graph.file()).expect("written");
        assert_eq!(Precision::of(file.path()), expected);
    }

    #[test]
    fn weights_and_operators_show_the_precision() {
        check(Graph::new().floats("w", &[3], &[0.1, 0.2, 0.3]), Some(Precision::Fp32));
        let half = Graph::new().constant("w", element::F16, &[4], vec![0; 8]).floats("b", &[1], &[0.5]);
        check(half, Some(Precision::Fp16));
        let stored = Graph::new()
            .constant("w", element::I8, &[64], vec![0; 64])
            .floats("s", &[], &[0.5])
            .node("DequantizeLinear", &["w", "s"], &["f"], &[]);
        check(stored, Some(Precision::Fp32));
        let quantised =
            Graph::new().floats("s", &[], &[0.5]).node("QuantizeLinear", &["x", "s"], &["q"], &[]);
        check(quantised, Some(Precision::Int8));
        check(Graph::new().node("Relu", &["x"], &["y"], &[]), None);
        assert_eq!(Precision::of(Path::new("no such file.onnx")), None);
    }
}
