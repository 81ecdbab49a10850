//! Reads from an ONNX file what engines do not report: the notes of trainers, and the scales next to integer inputs and
//! outputs.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use orinoco_config::FileKind;
use orinoco_core::codes;
use prost::Message;

use crate::input::Quantization;
use crate::protobuf::{Field, Fields};

/// ONNX files. A protobuf message has at most 2 GiB; larger weights are in other files.
pub(crate) const ONNX: FileKind = FileKind {
    noun: "an ONNX file",
    bytes_max: 2 << 30,
    code: &codes::MODEL_PARSE,
    next: "check the path and its permissions",
};
/// Maximum size of a node with its attributes, or of a note, in bytes. Only tensors are larger.
const NODE_BYTES_MAX: u64 = 1 << 20;
/// Maximum size of a stored scale or zero point, in bytes.
const SCALAR_BYTES_MAX: u64 = 4096;
/// Maximum length of a vector of scales: one for each axis of a tensor.
const VECTOR_MAX: i64 = 8;
/// Maximum number of nodes between an input and its scale that move values without changing them.
const STEPS_MAX: usize = 8;

/// Notes, nodes and scalars of an ONNX file.
#[derive(Debug, Default)]
pub(crate) struct OnnxMetadata {
    /// Notes (metadata) of trainers and exporters.
    pub(crate) notes: BTreeMap<String, String>,
    nodes: Vec<NodeProto>,
    scalars: BTreeMap<String, f32>,
    /// Short constant vectors of f32, in which an Upsample finds its scales.
    vectors: BTreeMap<String, Vec<f32>>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct NodeProto {
    #[prost(string, repeated, tag = "1")]
    input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    output: Vec<String>,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    op_type: String,
    #[prost(message, repeated, tag = "5")]
    attribute: Vec<AttributeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct AttributeProto {
    #[prost(message, optional, tag = "5")]
    t: Option<TensorProto>,
    #[prost(float, optional, tag = "2")]
    f: Option<f32>,
    #[prost(float, repeated, tag = "7")]
    floats: Vec<f32>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorProto {
    #[prost(int64, repeated, tag = "1")]
    dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    data_type: i32,
    #[prost(float, repeated, tag = "4")]
    float_data: Vec<f32>,
    #[prost(int32, repeated, tag = "5")]
    int32_data: Vec<i32>,
    #[prost(string, tag = "8")]
    name: String,
    #[prost(bytes = "vec", tag = "9")]
    raw_data: Vec<u8>,
}

impl TensorProto {
    /// Returns the tensor's number, if it has exactly one, of a type that scales and zero points have.
    fn scalar(&self) -> Option<f32> {
        if self.dims.iter().product::<i64>() != 1 {
            return None;
        }
        let stored = self.float_data.first().copied();
        let stored = stored.or_else(|| self.int32_data.first().map(|value| *value as f32));
        stored.or_else(|| match (self.data_type, self.raw_data.as_slice()) {
            (1, bytes) => Some(f32::from_le_bytes(bytes.try_into().ok()?)),
            (2, [byte]) => Some(f32::from(*byte)),
            (3, [byte]) => Some(f32::from(byte.cast_signed())),
            (10, bytes) => Some(half::f16::from_le_bytes(bytes.try_into().ok()?).to_f32()),
            _ => None,
        })
    }

    /// Returns the numbers of a short vector of f32.
    fn vector(&self) -> Option<Vec<f32>> {
        let is_short = self.dims.len() == 1 && self.dims[0] <= VECTOR_MAX;
        match (self.data_type, self.raw_data.as_chunks()) {
            (1, (raw, [])) if is_short && self.float_data.is_empty() => {
                Some(raw.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
            }
            (1, _) if is_short => Some(self.float_data.clone()),
            _ => None,
        }
    }
}

/// Operators that move values without changing them, and may be between a graph's input or output and its scale.
const MOVERS: [&str; 7] = ["Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice"];

impl OnnxMetadata {
    /// Reads `file`. Where it is not ONNX, the result has only what came before the fault: engines report the fault
    /// better.
    pub(crate) fn read(file: &Path) -> Self {
        let mut extras = Self::default();
        if let Ok(opened) = ONNX.open(file) {
            // Parts that were read before a fault count.
            let _ = extras.model(&mut Fields::new(opened));
        }
        extras
    }

    fn model(&mut self, fields: &mut Fields) -> io::Result<()> {
        while let Some(field) = fields.next(fields.end())? {
            match field.number {
                7 => self.graph(fields, field)?,
                14 => {
                    if let Some(Entry { key, value }) = fields.message(field, NODE_BYTES_MAX)? {
                        self.notes.insert(key, value);
                    }
                }
                _ => fields.skip(field.length)?,
            }
        }
        Ok(())
    }

    fn graph(&mut self, fields: &mut Fields, graph: Field) -> io::Result<()> {
        let end = fields.end_of(graph);
        while let Some(field) = fields.next(end)? {
            match field.number {
                1 => {
                    if let Some(node) = fields.message(field, NODE_BYTES_MAX)? {
                        self.node(node);
                    }
                }
                5 => {
                    if let Some(tensor) = fields.message(field, SCALAR_BYTES_MAX)? {
                        self.tensor(tensor);
                    }
                }
                _ => fields.skip(field.length)?,
            }
        }
        Ok(())
    }

    fn node(&mut self, mut node: NodeProto) {
        if node.op_type == "Constant"
            && let [name] = node.output.as_slice()
        {
            let value = node
                .attribute
                .iter()
                .find_map(|attribute| attribute.t.as_ref().and_then(TensorProto::scalar).or(attribute.f));
            self.scalars.extend(value.map(|value| (name.clone(), value)));
            let vector = node.attribute.iter().find_map(|attribute| attribute.t.as_ref()?.vector());
            self.vectors.extend(vector.map(|vector| (name.clone(), vector)));
        } else {
            if node.op_type != "Upsample" {
                node.attribute.clear();
            }
            self.nodes.push(node);
        }
    }

    fn tensor(&mut self, tensor: TensorProto) {
        self.vectors.extend(tensor.vector().map(|vector| (tensor.name.clone(), vector)));
        self.scalars.extend(tensor.scalar().map(|value| (tensor.name, value)));
    }

    /// Returns the name of an Upsample whose scales are not known to be whole numbers, or the name of its output.
    fn doubtful_upsample(&self) -> Option<&str> {
        let is_whole = |node: &&NodeProto| {
            // Up to opset 8 the scales are an attribute, then the second input.
            let attribute =
                node.attribute.iter().map(|attribute| &attribute.floats).find(|all| !all.is_empty());
            let scales = attribute.or_else(|| self.vectors.get(node.input.get(1)?));
            scales.is_some_and(|scales| !scales.is_empty() && scales.iter().all(|scale| scale.fract() == 0.0))
        };
        let mut upsamples = self.nodes.iter().filter(|node| node.op_type == "Upsample");
        let found = upsamples.find(|node| !is_whole(node))?;
        let output = found.output.first().map_or("", String::as_str);
        Some(if found.name.is_empty() { output } else { &found.name })
    }

    /// Returns the quantization of the integer input `name`: that of the node that reads it.
    pub(crate) fn input_quantization(&self, name: &str) -> Option<Quantization> {
        let mut name = name;
        for _ in 0..STEPS_MAX {
            let reader =
                self.nodes.iter().find(|node| node.input.first().is_some_and(|input| input == name))?;
            match reader.op_type.as_str() {
                "DequantizeLinear" | "QLinearConv" | "QLinearMatMul" => return self.quantization(reader, 1),
                operator if MOVERS.contains(&operator) => name = reader.output.first()?,
                _ => return None,
            }
        }
        None
    }

    /// Returns the quantization of the integer output `name`: that of the node that computes it.
    pub(crate) fn output_quantization(&self, name: &str) -> Option<Quantization> {
        let mut name = name;
        for _ in 0..STEPS_MAX {
            let source = self.nodes.iter().find(|node| node.output.iter().any(|output| output == name))?;
            match source.op_type.as_str() {
                "QuantizeLinear" => return self.quantization(source, 1),
                "QLinearConv" | "QLinearMatMul" => return self.quantization(source, 6),
                operator if MOVERS.contains(&operator) => name = source.input.first()?,
                _ => return None,
            }
        }
        None
    }

    /// Returns the scale at operand `index` of `node`, with the zero point after it.
    fn quantization(&self, node: &NodeProto, index: usize) -> Option<Quantization> {
        let operand = |index: usize| node.input.get(index).filter(|name| !name.is_empty());
        let scale = *self.scalars.get(operand(index)?)?;
        let zero_point = match operand(index + 1) {
            Some(name) => *self.scalars.get(name)?,
            None => 0.0,
        };
        (scale.is_normal() && scale > 0.0).then_some(Quantization { scale, zero_point })
    }
}

/// Returns the name of a node of `file`, or of its output, that is an Upsample whose scales are not known to be whole
/// numbers. Nodes inside If, Loop, Scan and functions are not looked at, and a file that is not ONNX has none.
pub fn doubtful_upsample(file: &Path) -> Option<String> {
    OnnxMetadata::read(file).doubtful_upsample().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use orinoco_tests::onnx::{Graph, element};

    use super::*;

    fn read(graph: Graph) -> OnnxMetadata {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), graph.file()).expect("written");
        OnnxMetadata::read(file.path())
    }

    fn check(found: Option<Quantization>, expected: Option<(f32, f32)>) {
        assert_eq!(found.map(|q| (q.scale, q.zero_point)), expected);
    }

    #[test]
    fn scales_next_to_inputs_and_outputs_are_found() {
        let graph = Graph::new()
            .input("x", element::U8, &[1, 3, 8, 8])
            .output("y", element::I8, &[1, 10])
            .floats("s", &[], &[0.5])
            .constant("z", element::U8, &[], vec![128])
            .floats("many", &[3], &[0.1, 0.2, 0.3])
            .floats("t", &[1], &[0.25])
            .constant("minus", element::I8, &[1], vec![0x80])
            .node("Transpose", &["x"], &["turned"], &[])
            .node("DequantizeLinear", &["turned", "s", "z"], &["f"], &[])
            .node("QuantizeLinear", &["f", "t", "minus"], &["q"], &[])
            .node("Reshape", &["q", "shape"], &["y"], &[]);
        let extras = read(graph);
        check(extras.input_quantization("x"), Some((0.5, 128.0)));
        check(extras.output_quantization("y"), Some((0.25, -128.0)));
        check(extras.input_quantization("no such"), None);

        // The zero point is 0 unless it is given; a scale per channel is not one number.
        let of = |scale: &str| {
            let graph = Graph::new().floats("s", &[], &[0.5]).floats("many", &[3], &[0.1, 0.2, 0.3]);
            let graph = graph.node("DequantizeLinear", &["x", scale], &["f"], &[]);
            read(graph).input_quantization("x")
        };
        check(of("s"), Some((0.5, 0.0)));
        check(of("many"), None);
        let circle = Graph::new().node("Identity", &["x"], &["x"], &[]);
        check(read(circle).input_quantization("x"), None);
    }

    #[test]
    fn an_upsample_whose_scales_are_not_whole_is_found() {
        let upsample = |graph: Graph| graph.node("Upsample", &["x", "scales"], &["y"], &[]);
        let found = |graph: Graph| read(graph).doubtful_upsample().is_some();
        let floats = |scales: &[f32]| Graph::new().floats("scales", &[4], scales);
        assert!(!found(upsample(floats(&[1.0, 1.0, 2.0, 8.0]))));
        assert!(found(upsample(floats(&[1.0, 1.0, 2.0, 7.79]))));
        assert!(found(upsample(Graph::new().input("scales", element::F32, &[4]))), "they are not known");
        let bytes = [1.0f32, 1.0, 1.5, 1.5].iter().flat_map(|scale| scale.to_le_bytes()).collect();
        assert!(found(upsample(Graph::new().constant("scales", element::F32, &[4], bytes))));
        let resize = |scales: &[f32]| floats(scales).node("Resize", &["x", "", "scales"], &["y"], &[]);
        assert!(!found(resize(&[1.0, 1.0, 1.5, 1.5])));
    }

    #[test]
    fn weights_are_passed_over() {
        let weights = vec![0u8; 3 << 20];
        let graph =
            Graph::new().constant("w", element::U8, &[3 << 20], weights).note("names", "{0: 'person'}");
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), graph.file()).expect("written");
        let before = bytes_read();
        let extras = OnnxMetadata::read(file.path());
        let read = bytes_read() - before;
        assert!(read < 64 << 10, "{read} bytes of 3 MiB were read");
        assert_eq!(extras.notes.get("names").map(String::as_str), Some("{0: 'person'}"));
    }

    #[test]
    fn damaged_files_end_without_a_panic() {
        let whole = Graph::new().floats("s", &[], &[0.5]).note("a", "b").file();
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        for cut in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes.truncate(cut);
            std::fs::write(file.path(), &bytes).expect("written");
            OnnxMetadata::read(file.path());
            let mut bytes = whole.clone();
            bytes[cut] = 0xff;
            std::fs::write(file.path(), &bytes).expect("written");
            OnnxMetadata::read(file.path());
        }
    }

    /// Returns the number of bytes that this thread has read so far.
    fn bytes_read() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/io").expect("Linux counts");
        let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
        line.and_then(|count| count.parse().ok()).expect("a number")
    }
}
