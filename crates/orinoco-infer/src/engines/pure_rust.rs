//! `tract`: an engine in pure Rust, linked in, which runs everywhere. It takes two to five times the time of ONNX
//! Runtime, and uses one thread.
//!
//! tract panics on some malformed models and on some valid ones that it cannot handle. Such a panic is returned as an
//! error.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use half::f16;
use orinoco_core::{Dim, ElementType, TensorDesc};
use orinoco_model::check_file;
use tract_onnx::pb;
use tract_onnx::prelude::*;
use tract_onnx::tract_core::floats::FloatPrecisionTranslator;
use tract_onnx::tract_core::transform::ModelTransform;

use crate::context::EngineContext;
use crate::engine::{Engine, EngineInfo, Prepared, Session, SessionSpec, SuiteException, check_binding};
use crate::engine_error::{EngineError, NOT_ONNX};
use crate::panics::catch_panic;
use crate::stream::ExecutionStream;
use crate::tensor::{Elements, ElementsMut, TensorMut, TensorRef, TensorView, TensorViewMut};

/// Version of tract, which has no constant for it. A test compares it with `Cargo.lock`.
const VERSION: &str = "0.23.9";

/// Engine that needs no installed library.
#[derive(Debug, Default)]
pub(crate) struct PureRust;

const EXCEPTIONS: [SuiteException; 3] = [
    SuiteException {
        model: "deeplabv3_mnv2_257",
        reason: "it lacks Upsample, which ONNX replaced by Resize in opset 10",
    },
    SuiteException {
        model: "kws_dscnn_int8",
        reason: "this engine computes a Softmax between quantised tensors wrongly, so it does not take the model",
    },
    SuiteException {
        model: "silero_vad_16k_op15",
        reason: "it needs the same shape from both branches of an If",
    },
];

/// `tract`.
pub(super) const ENGINE: PureRust = PureRust;

impl Engine for PureRust {
    fn name(&self) -> &'static str {
        "tract"
    }

    fn check(&self, _context: &EngineContext) -> Result<EngineInfo, String> {
        Ok(EngineInfo { version: VERSION.to_owned(), library: None })
    }

    fn prepare(&self, file: &Path, _context: &EngineContext) -> Result<Box<dyn Prepared>, EngineError> {
        check_file(file)?;
        let model = catch_panic(|| TractModel::load(file));
        Ok(Box::new(model.unwrap_or_else(|panic| Err(EngineError::Unreadable(panic)))?))
    }

    fn exceptions(&self) -> &'static [SuiteException] {
        &EXCEPTIONS
    }
}

/// Shape of each input.
type Shapes = Vec<Vec<usize>>;

/// Model as tract has read it, before it infers types and shapes.
struct TractModel {
    graph: InferenceModel,
    inputs: Vec<TensorDesc>,
    outputs: Vec<TensorDesc>,
    /// Bound model of the latest shapes. Sessions with the same shapes share it, and with it the weights.
    plan: Mutex<Option<(Shapes, Arc<TypedRunnableModel>)>>,
}

impl TractModel {
    fn load(file: &Path) -> Result<Self, EngineError> {
        let onnx = tract_onnx::onnx();
        let not_onnx = || EngineError::Unreadable(NOT_ONNX.to_owned());
        let mut opened = File::open(file).map_err(|why| EngineError::Unreadable(why.to_string()))?;
        let mut proto = onnx.proto_model_for_read(&mut opened).map_err(|_| not_onnx())?;
        // Exporters declare the shapes between nodes with the names of dynamic axes. tract cannot unify such a name
        // with the size that a session fixes, but infers the shapes by itself.
        proto.graph.iter_mut().for_each(|graph| graph.value_info.clear());
        let graph = proto.graph.as_ref().ok_or_else(not_onnx)?;
        let mut graphs = Vec::new();
        graphs_in(graph, &mut graphs);
        check_operators(&onnx, &graphs)?;
        graphs.iter().try_for_each(|graph| check_computed(graph))?;
        let folder = file.parent().and_then(Path::to_str);
        let parsed = onnx.parse(&proto, folder).map_err(|why| parse_error(&why))?;
        if let Some(name) = parsed.unresolved_inputs.first() {
            return Err(EngineError::Unreadable(format!("nothing in the graph computes `{name}`")));
        }
        let initialised: BTreeSet<&str> =
            graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
        let inputs = graph.input.iter().filter(|input| !initialised.contains(input.name.as_str()));
        Ok(Self {
            inputs: inputs.map(describe).collect(),
            outputs: graph.output.iter().map(describe).collect(),
            graph: parsed.model,
            plan: Mutex::new(None),
        })
    }

    /// Fixes the shapes of the graph's inputs, and optimises it for this CPU. Operations on f16 are computed in f32.
    fn plan(&self, shapes: &[Vec<usize>]) -> TractResult<Arc<TypedRunnableModel>> {
        let mut graph = self.graph.clone();
        for (index, (input, shape)) in self.inputs.iter().zip(shapes).enumerate() {
            let element = input.element.and_then(datum_of).expect("check_binding lets known types through");
            graph.set_input_fact(index, InferenceFact::dt_shape(element, shape.as_slice()))?;
        }
        let mut typed = graph.into_typed()?;
        // tract adds f16 numbers in f16, where adding 1 to a sum of 2048 has no effect: means of 64 by 64 cells and
        // convolutions of 64 channels were wrong without an error (`tests/half.rs`). In f32 they are right, and faster
        // on processors without f16 arithmetic; the weights take twice the memory.
        FloatPrecisionTranslator::new(DatumType::F16, DatumType::F32).transform(&mut typed)?;
        typed.into_optimized()?.into_runnable()
    }
}

impl Prepared for TractModel {
    fn inputs(&self) -> &[TensorDesc] {
        &self.inputs
    }

    fn outputs(&self) -> &[TensorDesc] {
        &self.outputs
    }

    fn session(&self, wanted: &SessionSpec<'_>) -> Result<Box<dyn Session>, EngineError> {
        let shapes = wanted.shapes;
        check_binding(&self.inputs, &self.outputs, shapes)?;
        let mut cached = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = match cached.as_ref() {
            Some((known, plan)) if known == shapes => Arc::clone(plan),
            _ => {
                let plan = catch_panic(|| self.plan(shapes).map_err(|why| story(&why)));
                let plan = plan.and_then(|result| result).map_err(EngineError::Unsupported)?;
                Arc::clone(&cached.insert((shapes.to_vec(), plan)).1)
            }
        };
        let inputs = self.inputs.iter().zip(shapes);
        let inputs = inputs.map(|(input, shape)| {
            let element = input.element.and_then(datum_of).expect("check_binding lets known types through");
            Tensor::zero_dt(element, shape).map(Arc::new)
        });
        let inputs = inputs.collect::<TractResult<_>>().map_err(|why| EngineError::run(story(&why)))?;
        let elements = self.outputs.iter().filter_map(|output| output.element).collect();
        let shapes = shapes.to_vec();
        Ok(Box::new(TractSession { plan, inputs, shapes, elements, outputs: Vec::new() }))
    }
}

/// Refuses graphs with operators that tract does not have, and names all of them; tract itself would name one.
fn check_operators(onnx: &tract_onnx::Onnx, graphs: &[&pb::GraphProto]) -> Result<(), EngineError> {
    let used: BTreeSet<&str> =
        graphs.iter().flat_map(|graph| &graph.node).map(|node| node.op_type.as_str()).collect();
    let lacking: Vec<&str> =
        used.into_iter().filter(|name| !onnx.op_register.0.contains_key(*name)).collect();
    let why = match lacking.as_slice() {
        [] => return Ok(()),
        [one] => format!("tract lacks the operator {one}"),
        several => format!("tract lacks the operators {}", several.join(", ")),
    };
    Err(EngineError::Unsupported(why))
}

/// Collects a graph and the graphs inside its nodes, which are the bodies of If, Loop and Scan. The protobuf decoder
/// bounds the depth (100).
fn graphs_in<'a>(graph: &'a pb::GraphProto, all: &mut Vec<&'a pb::GraphProto>) {
    all.push(graph);
    for attribute in graph.node.iter().flat_map(|node| &node.attribute) {
        attribute.g.iter().chain(&attribute.graphs).for_each(|inner| graphs_in(inner, all));
    }
}

/// Refuses a graph with a node that tract computes wrongly.
fn check_computed(graph: &pb::GraphProto) -> Result<(), EngineError> {
    let refused = |node: &str, what: &str| {
        Err(EngineError::Unsupported(format!("tract computes node `{node}` wrongly: {what}")))
    };
    if let Some((node, what)) = graph.node.iter().find_map(|node| Some((node, miscomputed(node)?))) {
        return refused(&node.name, what);
    }
    match miscompiled_softmax(graph) {
        Some(node) => refused(node, "a Softmax between quantised tensors"),
        None => Ok(()),
    }
}

/// Returns a description of a node that tract 0.23.9 accepts but computes differently from the ONNX specification. Each
/// case was seen in ONNX's own operator tests.
fn miscomputed(node: &pb::NodeProto) -> Option<&'static str> {
    let attribute = |name: &str| node.attribute.iter().find(|attribute| attribute.name == name);
    let text = |name: &str| attribute(name).map(|attribute| attribute.s.as_slice());
    let direction = text("direction").unwrap_or(b"forward");
    // The inputs are X, W, R and B (bias).
    let bias = node.input.get(3).is_some_and(|name| !name.is_empty());
    let after_reset = attribute("linear_before_reset").is_none_or(|attribute| attribute.i == 0);
    match node.op_type.as_str() {
        "LSTM" | "GRU" | "RNN" if direction == b"reverse" => Some("a reverse LSTM, GRU or RNN"),
        "GRU" if direction == b"bidirectional" => Some("a bidirectional GRU"),
        // GRUs exported by PyTorch apply the bias before the reset.
        "GRU" if bias && after_reset => Some("a GRU with a bias and linear_before_reset = 0"),
        "SpaceToDepth" if text("mode") == Some(b"CRD") => Some("a SpaceToDepth with mode CRD"),
        "Attention"
            if attribute("left_window_size").is_some() || attribute("right_window_size").is_some() =>
        {
            Some("an Attention with a sliding window")
        }
        "DFT" => Some("a DFT"),
        _ => None,
    }
}

/// Returns the first Softmax that tract computes wrongly: only operators with one operand lie between a
/// DequantizeLinear before it and it, and between it and a QuantizeLinear after it. tract 0.23.9 treats a Softmax as an
/// element-wise operator, because its axes map one to one, and replaces all between the two by a table
/// (`DequantizeLinearF32::declutter`), so every output is the same number.
fn miscompiled_softmax(graph: &pb::GraphProto) -> Option<&str> {
    let flow = Flow::new(graph);
    let suspects =
        graph.node.iter().filter(|node| ["Softmax", "LogSoftmax"].contains(&node.op_type.as_str()));
    let mut caught = suspects.filter(|node| {
        flow.reaches(node, "DequantizeLinear", |node| flow.sole_source(node))
            && flow.reaches(node, "QuantizeLinear", |node| flow.sole_consumer(node))
    });
    caught.next().map(|node| node.name.as_str())
}

/// Data flow of a graph: the nodes that compute and that read each tensor.
struct Flow<'a> {
    sources: BTreeMap<&'a str, &'a pb::NodeProto>,
    consumers: BTreeMap<&'a str, Vec<&'a pb::NodeProto>>,
    nodes: usize,
}

impl<'a> Flow<'a> {
    fn new(graph: &'a pb::GraphProto) -> Self {
        let (mut sources, mut consumers) = (BTreeMap::new(), BTreeMap::<&str, Vec<_>>::new());
        for node in graph.node.iter().filter(|node| node.op_type != "Constant") {
            sources.extend(node.output.iter().map(|name| (name.as_str(), node)));
            node.input.iter().for_each(|name| consumers.entry(name).or_default().push(node));
        }
        Self { sources, consumers, nodes: graph.node.len() }
    }

    /// Returns the node that computes the only operand of `node` which a node computes; `None` without such an operand,
    /// or with several.
    fn sole_source(&self, node: &pb::NodeProto) -> Option<&'a pb::NodeProto> {
        let mut sources = node.input.iter().filter_map(|name| self.sources.get(name.as_str()));
        let source = sources.next();
        source.filter(|_| sources.next().is_none()).copied()
    }

    /// Returns the only node that reads the outputs of `node`, if that node has no other computed operand.
    fn sole_consumer(&self, node: &pb::NodeProto) -> Option<&'a pb::NodeProto> {
        let mut consumers = node.output.iter().filter_map(|name| self.consumers.get(name.as_str())).flatten();
        let consumer = consumers.next().filter(|_| consumers.next().is_none())?;
        self.sole_source(consumer).map(|_| *consumer)
    }

    /// Whether repeated `step`s lead from `node` to an `operator`. The number of steps is bounded by the size of the
    /// graph, because a malformed graph may have a cycle.
    fn reaches(
        &self,
        node: &'a pb::NodeProto,
        operator: &str,
        step: impl Fn(&pb::NodeProto) -> Option<&'a pb::NodeProto>,
    ) -> bool {
        let path = std::iter::successors(Some(node), |node| step(node)).take(self.nodes + 1);
        path.skip(1).any(|node| node.op_type == operator)
    }
}

fn parse_error(why: &TractError) -> EngineError {
    match why.to_string().starts_with("Building node ") {
        true => EngineError::Unsupported(story(why)),
        false => EngineError::Unreadable(story(why)),
    }
}

/// Returns the context and the root cause of an error of tract, without the causes between them.
fn story(why: &TractError) -> String {
    let (place, root) = (why.to_string(), why.root_cause().to_string());
    let place = place.lines().next().unwrap_or_default();
    if place == root { root } else { format!("{}: {root}", place.chars().take(90).collect::<String>()) }
}

fn describe(info: &pb::ValueInfoProto) -> TensorDesc {
    use pb::tensor_shape_proto::dimension::Value as Size;
    let kind = info.r#type.as_ref().and_then(|kind| kind.value.as_ref());
    let pb::type_proto::Value::TensorType(tensor) = kind.unwrap_or(&UNTYPED);
    let axis = |dimension: &pb::tensor_shape_proto::Dimension| match dimension.value {
        Some(Size::DimValue(n)) => usize::try_from(n).map_or(Dim::Dynamic, Dim::Fixed),
        _ => Dim::Dynamic,
    };
    let shape = tensor.shape.iter().flat_map(|shape| &shape.dim).map(axis).collect();
    TensorDesc { name: info.name.clone(), element: element_of(tensor.elem_type), shape }
}

static UNTYPED: pb::type_proto::Value =
    pb::type_proto::Value::TensorType(pb::type_proto::Tensor { elem_type: 0, shape: None });

/// Number in ONNX, type in Orinoco and type in tract of each element type.
const TYPES: [(pb::tensor_proto::DataType, ElementType, DatumType); 7] = {
    use pb::tensor_proto::DataType as Onnx;
    [
        (Onnx::Float, ElementType::F32, DatumType::F32),
        (Onnx::Float16, ElementType::F16, DatumType::F16),
        (Onnx::Uint8, ElementType::U8, DatumType::U8),
        (Onnx::Int8, ElementType::I8, DatumType::I8),
        (Onnx::Int32, ElementType::I32, DatumType::I32),
        (Onnx::Int64, ElementType::I64, DatumType::I64),
        (Onnx::Bool, ElementType::Bool, DatumType::Bool),
    ]
};

fn element_of(onnx: i32) -> Option<ElementType> {
    TYPES.iter().find(|(theirs, ..)| *theirs as i32 == onnx).map(|(_, ours, _)| *ours)
}

fn datum_of(element: ElementType) -> Option<DatumType> {
    TYPES.iter().find(|(_, ours, _)| *ours == element).map(|(.., theirs)| *theirs)
}

/// Bound model with its tensors.
struct TractSession {
    plan: Arc<TypedRunnableModel>,
    /// Inputs, shared with the engine during a run. Afterwards they have one owner again, unless an output is an input
    /// passed through unchanged; then the next write makes a copy.
    inputs: Vec<Arc<Tensor>>,
    shapes: Vec<Vec<usize>>,
    outputs: Vec<Arc<Tensor>>,
    /// Declared element types of the outputs.
    elements: Vec<ElementType>,
}

impl TractSession {
    fn infer(&self) -> TractResult<Vec<Arc<Tensor>>> {
        let inputs = self.inputs.iter().map(|input| match input.datum_type() {
            DatumType::F16 => Ok(input.cast_to_dt(DatumType::F32)?.into_owned().into_tvalue()),
            _ => Ok(Arc::clone(input).into_tvalue()),
        });
        let outputs = self.plan.run(inputs.collect::<TractResult<_>>()?)?;
        outputs
            .into_iter()
            .zip(&self.elements)
            .map(|(output, element)| as_declared(output, *element))
            .collect()
    }
}

/// Converts an output to its declared type: tract computes shapes in a type of its own (`TDim`) where the graph
/// declares i64, and f16 tensors in f32.
fn as_declared(output: TValue, element: ElementType) -> TractResult<Arc<Tensor>> {
    let declared = datum_of(element).expect("check_binding lets known types through");
    if output.datum_type().unquantized() == declared {
        return Ok(output.into_arc_tensor());
    }
    Ok(output.cast_to_dt(declared)?.into_owned().into_arc_tensor())
}

impl Session for TractSession {
    fn input(&mut self, index: usize) -> TensorMut<'_> {
        let tensor = &mut self.inputs[index];
        if Arc::get_mut(tensor).is_none() {
            *tensor = Arc::new(tensor.as_ref().deep_clone());
        }
        let tensor = Arc::get_mut(tensor).expect("a fresh copy is shared with nobody");
        TensorMut::Host(TensorViewMut { shape: &self.shapes[index], data: write(tensor) })
    }

    fn enqueue(&mut self, stream: &ExecutionStream) -> Result<(), EngineError> {
        stream.wait()?;
        let outputs = catch_panic(|| self.infer().map_err(|why| story(&why)));
        self.outputs = outputs.and_then(|result| result).map_err(EngineError::run)?;
        Ok(())
    }

    fn output(&self, index: usize) -> TensorRef<'_> {
        assert!(!self.outputs.is_empty(), "an output is read after a run");
        let tensor = &self.outputs[index];
        TensorRef::Host(TensorView { shape: tensor.shape(), data: read(tensor) })
    }
}

const CHECKED: &str = "only known types in host memory are bound";

fn read(tensor: &Tensor) -> Elements<'_> {
    fn typed<T: Datum>(tensor: &Tensor) -> &[T] {
        tensor.try_as_plain_ram().and_then(|plain| plain.as_slice()).expect(CHECKED)
    }
    match tensor.datum_type().unquantized() {
        DatumType::F32 => Elements::F32(typed(tensor)),
        DatumType::F16 => Elements::F16(typed::<f16>(tensor)),
        DatumType::U8 => Elements::U8(typed(tensor)),
        DatumType::I8 => Elements::I8(typed(tensor)),
        DatumType::I32 => Elements::I32(typed(tensor)),
        DatumType::I64 => Elements::I64(typed(tensor)),
        DatumType::Bool => Elements::Bool(typed(tensor)),
        other => unreachable!("{CHECKED}, not {other:?}"),
    }
}

fn write(tensor: &mut Tensor) -> ElementsMut<'_> {
    fn typed<T: Datum>(tensor: &mut Tensor) -> &mut [T] {
        tensor.to_plain_array_view_mut().ok().and_then(|view| view.into_slice()).expect(CHECKED)
    }
    match tensor.datum_type() {
        DatumType::F32 => ElementsMut::F32(typed(tensor)),
        DatumType::F16 => ElementsMut::F16(typed::<f16>(tensor)),
        DatumType::U8 => ElementsMut::U8(typed(tensor)),
        DatumType::I8 => ElementsMut::I8(typed(tensor)),
        DatumType::I32 => ElementsMut::I32(typed(tensor)),
        DatumType::I64 => ElementsMut::I64(typed(tensor)),
        DatumType::Bool => ElementsMut::Bool(typed(tensor)),
        other => unreachable!("{CHECKED}, not {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn attribute(name: &str) -> pb::AttributeProto {
        pb::AttributeProto { name: name.to_owned(), ..pb::AttributeProto::default() }
    }

    fn graph_of(operator: &str, attributes: Vec<pb::AttributeProto>) -> pb::GraphProto {
        let node = pb::NodeProto {
            name: format!("the {operator}"),
            op_type: operator.to_owned(),
            attribute: attributes,
            ..pb::NodeProto::default()
        };
        pb::GraphProto { node: vec![node], ..pb::GraphProto::default() }
    }

    #[test]
    fn what_is_computed_wrongly_is_found_inside_other_nodes() {
        let backwards = pb::AttributeProto { s: b"reverse".to_vec(), ..attribute("direction") };
        let branch = |lstm| pb::AttributeProto { g: Some(lstm), ..attribute("then_branch") };
        let check = |graph: pb::GraphProto, cause: &str| {
            let model = pb::ModelProto { graph: Some(graph), ..pb::ModelProto::default() };
            let file = tempfile::NamedTempFile::with_suffix(".onnx").unwrap();
            std::fs::write(file.path(), model.encode_to_vec()).unwrap();
            let error = PureRust.prepare(file.path(), &EngineContext::default()).err().unwrap();
            assert!(matches!(&error, EngineError::Unsupported(why) if why == cause), "{error:?}");
        };
        let lstm = graph_of("LSTM", vec![backwards]);
        let cause = "tract computes node `the LSTM` wrongly: a reverse LSTM, GRU or RNN";
        check(lstm.clone(), cause);
        let inner = graph_of("If", vec![branch(lstm)]);
        check(inner.clone(), cause);
        check(graph_of("If", vec![branch(inner)]), cause);
    }

    #[test]
    fn the_version_is_the_one_linked_in() {
        let lock = include_str!("../../../../Cargo.lock");
        let (_, entry) = lock.split_once("name = \"tract-onnx\"\n").unwrap();
        assert!(entry.starts_with(&format!("version = \"{VERSION}\"")), "{}", &entry[..30]);
    }
}
