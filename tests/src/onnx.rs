//! Small ONNX files for the tests, written node by node.

mod proto;

pub use proto::TensorProto;

use prost::Message;
use proto::{
    AttributeProto, Dimension, Entry, GraphProto, ModelProto, NodeProto, OperatorSet, Shape, TensorType,
    TypeProto, ValueInfo,
};

/// Element types, by their number in ONNX.
pub mod element {
    #![allow(missing_docs, reason = "each is the element type of the same name")]
    pub const F32: i32 = 1;
    pub const U8: i32 = 2;
    pub const I8: i32 = 3;
    pub const U16: i32 = 4;
    pub const I32: i32 = 6;
    pub const I64: i32 = 7;
    pub const BOOL: i32 = 9;
    pub const F16: i32 = 10;
    pub const F64: i32 = 11;
}

/// Opset version of the files.
const OPSET: i64 = 17;
/// Version of the file format that was released with the opset.
const IR_VERSION: i64 = 8;

/// Value of an operator's attribute.
#[derive(Clone, Debug)]
pub enum Attribute {
    /// Integer.
    Int(i64),
    /// Floating-point number.
    Float(f32),
    /// List of integers.
    Ints(Vec<i64>),
    /// String.
    Str(&'static str),
    /// Graph, such as the branch of an If.
    Graph(Graph),
}

/// Builder of a graph. Every method returns it with one more element.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    proto: GraphProto,
    notes: Vec<Entry>,
}

impl Graph {
    /// Creates an empty graph.
    #[must_use]
    pub fn new() -> Self {
        let proto = GraphProto { name: "graph".to_owned(), ..GraphProto::default() };
        Self { proto, notes: Vec::new() }
    }

    /// Adds an input of `shape`, in which -1 is a dynamic axis.
    #[must_use]
    pub fn input(mut self, name: &str, element: i32, shape: &[i64]) -> Self {
        self.proto.input.push(value_info(name, element, shape));
        self
    }

    /// Adds an output of `shape`, in which -1 is a dynamic axis.
    #[must_use]
    pub fn output(mut self, name: &str, element: i32, shape: &[i64]) -> Self {
        self.proto.output.push(value_info(name, element, shape));
        self
    }

    /// Adds a node `outputs = operator(inputs)`.
    #[must_use]
    pub fn node(
        mut self,
        operator: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[(&str, Attribute)],
    ) -> Self {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        self.proto.node.push(NodeProto {
            input: owned(inputs),
            output: owned(outputs),
            name: format!("the {operator}"),
            op_type: operator.to_owned(),
            attribute: attributes.iter().map(|(name, value)| attribute(name, value)).collect(),
        });
        self
    }

    /// Adds a constant tensor of raw little-endian bytes.
    #[must_use]
    pub fn constant(mut self, name: &str, element: i32, shape: &[i64], bytes: Vec<u8>) -> Self {
        self.proto.initializer.push(TensorProto {
            dims: shape.to_vec(),
            data_type: element,
            name: name.to_owned(),
            raw_data: Some(bytes),
            ..TensorProto::default()
        });
        self
    }

    /// Adds a constant tensor of f32.
    #[must_use]
    pub fn floats(self, name: &str, shape: &[i64], values: &[f32]) -> Self {
        self.constant(
            name,
            element::F32,
            shape,
            values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        )
    }

    /// Adds a constant tensor of i64.
    #[must_use]
    pub fn ints(self, name: &str, shape: &[i64], values: &[i64]) -> Self {
        self.constant(
            name,
            element::I64,
            shape,
            values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        )
    }

    /// Adds a constant f32 tensor whose bytes are in another file, next to the model.
    #[must_use]
    pub fn external(mut self, name: &str, shape: &[i64], file: &str) -> Self {
        let entry = Entry { key: "location".to_owned(), value: file.to_owned() };
        self.proto.initializer.push(TensorProto {
            dims: shape.to_vec(),
            data_type: element::F32,
            name: name.to_owned(),
            external_data: vec![entry],
            data_location: Some(1),
            ..TensorProto::default()
        });
        self
    }

    /// Adds a metadata entry, which trainers use for notes.
    #[must_use]
    pub fn note(mut self, key: &str, value: &str) -> Self {
        self.notes.push(Entry { key: key.to_owned(), value: value.to_owned() });
        self
    }

    /// Returns the content of the file.
    #[must_use]
    pub fn file(self) -> Vec<u8> {
        let model = ModelProto {
            ir_version: IR_VERSION,
            graph: Some(self.proto),
            opset_import: vec![OperatorSet { version: OPSET }],
            metadata_props: self.notes,
        };
        model.encode_to_vec()
    }
}

fn attribute(name: &str, value: &Attribute) -> AttributeProto {
    let named = AttributeProto { name: name.to_owned(), ..AttributeProto::default() };
    match value {
        Attribute::Float(value) => AttributeProto { f: Some(*value), kind: 1, ..named },
        Attribute::Int(value) => AttributeProto { i: Some(*value), kind: 2, ..named },
        Attribute::Str(text) => AttributeProto { s: Some(text.as_bytes().to_vec()), kind: 3, ..named },
        Attribute::Graph(graph) => AttributeProto { g: Some(graph.proto.clone()), kind: 5, ..named },
        Attribute::Ints(values) => AttributeProto { ints: values.clone(), kind: 7, ..named },
    }
}

fn value_info(name: &str, element: i32, shape: &[i64]) -> ValueInfo {
    let axis = |(index, size): (usize, &i64)| match *size {
        -1 => Dimension { value: None, name: Some(format!("{name}_{index}")) },
        size => Dimension { value: Some(size), name: None },
    };
    let shape = Shape { dim: shape.iter().enumerate().map(axis).collect() };
    let tensor = TensorType { element, shape: Some(shape) };
    ValueInfo { name: name.to_owned(), kind: Some(TypeProto { tensor: Some(tensor) }) }
}
