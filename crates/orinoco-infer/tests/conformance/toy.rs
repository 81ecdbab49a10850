//! Toy engine for graphs of one node, Identity or Relu. It uses only the public interface of the crate, and shows what
//! an engine must implement to pass the suite.

use std::path::Path;
use std::sync::Arc;

use half::f16;
use orinoco_core::{Dim, ElementType, TensorDesc};
use orinoco_infer::{
    Elements, ElementsMut, Engine, EngineContext, EngineError, EngineInfo, ExecutionStream, Prepared,
    Session, SessionSpec, SuiteException, TensorMut, TensorRef, TensorView, TensorViewMut, check_binding,
};
use orinoco_model::check_file;
use prost::Message;

/// Toy engine.
pub(crate) struct Toy;

/// State of the toy engine in a context. A real engine keeps its library there.
struct ToyState {
    version: &'static str,
}

impl Engine for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn check(&self, context: &EngineContext) -> Result<EngineInfo, String> {
        let state = context.state(|| Ok::<_, String>(Arc::new(ToyState { version: "1.0" })))?;
        Ok(EngineInfo { version: state.version.to_owned(), library: None })
    }

    fn prepare(&self, file: &Path, _: &EngineContext) -> Result<Box<dyn Prepared>, EngineError> {
        check_file(file)?;
        let not_onnx = || EngineError::Unreadable("the file is not ONNX, or it was cut short".to_owned());
        let bytes = std::fs::read(file).map_err(|why| EngineError::Unreadable(why.to_string()))?;
        let model = proto::Model::decode(bytes.as_slice()).map_err(|_| not_onnx())?;
        let graph = model.graph.ok_or_else(not_onnx)?;
        let lacks = graph.nodes.iter().find(|node| !["Identity", "Relu"].contains(&node.operator.as_str()));
        let refused = match (lacks, graph.nodes.as_slice()) {
            (Some(node), _) => format!("the toy lacks the operator {:.80}", node.operator),
            (None, [node]) => {
                let is_relu = node.operator == "Relu";
                let inputs = graph.inputs.iter().map(proto::Value::describe).collect();
                let outputs = graph.outputs.iter().map(proto::Value::describe).collect();
                return Ok(Box::new(ToyModel { inputs, outputs, is_relu }));
            }
            (None, nodes) => format!("the toy runs graphs of one node, and this has {}", nodes.len()),
        };
        Err(EngineError::Unsupported(refused))
    }

    fn exceptions(&self) -> &'static [SuiteException] {
        &[SuiteException { model: "*", reason: "it has two operators, and its graphs have one node" }]
    }
}

struct ToyModel {
    inputs: Vec<TensorDesc>,
    outputs: Vec<TensorDesc>,
    is_relu: bool,
}

impl Prepared for ToyModel {
    fn inputs(&self) -> &[TensorDesc] {
        &self.inputs
    }

    fn outputs(&self) -> &[TensorDesc] {
        &self.outputs
    }

    fn session(&self, wanted: &SessionSpec<'_>) -> Result<Box<dyn Session>, EngineError> {
        check_binding(&self.inputs, &self.outputs, wanted.shapes)?;
        let ([input], [shape]) = (self.inputs.as_slice(), wanted.shapes) else {
            return Err(EngineError::Unreadable("its node has one input".to_owned()));
        };
        let element = input.element.expect("check_binding lets known types through");
        let x = Values::zeros(element, shape.iter().product());
        let session = ToySession { shape: shape.clone(), y: x.clone(), x, is_relu: self.is_relu };
        Ok(Box::new(session))
    }
}

struct ToySession {
    shape: Vec<usize>,
    x: Values,
    y: Values,
    is_relu: bool,
}

impl Session for ToySession {
    fn input(&mut self, _: usize) -> TensorMut<'_> {
        TensorMut::Host(TensorViewMut { shape: &self.shape, data: self.x.lend_mut() })
    }

    fn enqueue(&mut self, stream: &ExecutionStream) -> Result<(), EngineError> {
        stream.wait().unwrap_or_else(|why| panic!("the toy is never on a GPU: {why}"));
        self.y.copy(&self.x, self.is_relu);
        Ok(())
    }

    fn output(&self, _: usize) -> TensorRef<'_> {
        TensorRef::Host(TensorView { shape: &self.shape, data: self.y.lend() })
    }
}

macro_rules! values {
    ($($variant:ident $type:ty, $zero:expr;)*) => {
        /// Elements of a tensor.
        #[derive(Clone)]
        enum Values { $($variant(Vec<$type>),)* }

        impl Values {
            fn zeros(element: ElementType, count: usize) -> Self {
                match element {
                    $(ElementType::$variant => Self::$variant(vec![$zero; count]),)*
                    other => unreachable!("{other:?} is not carried"),
                }
            }

            fn lend(&self) -> Elements<'_> {
                match self { $(Self::$variant(values) => Elements::$variant(values),)* }
            }

            fn lend_mut(&mut self) -> ElementsMut<'_> {
                match self { $(Self::$variant(values) => ElementsMut::$variant(values),)* }
            }

            /// Replaces the elements by those of `source`, or by zero if `is_relu` and they are negative.
            fn copy(&mut self, source: &Self, is_relu: bool) {
                match (self, source) {
                    $((Self::$variant(target), Self::$variant(source)) => {
                        let relu = |x: $type| if is_relu && PartialOrd::lt(&x, &$zero) { $zero } else { x };
                        target.iter_mut().zip(source).for_each(|(target, x)| *target = relu(*x));
                    })*
                    _ => unreachable!("input and output are of one type"),
                }
            }
        }
    };
}

values! {
    F32 f32, 0.0;
    F16 f16, f16::ZERO;
    U8 u8, 0;
    I8 i8, 0;
    I32 i32, 0;
    I64 i64, 0;
    Bool bool, false;
}

/// Messages of onnx.proto that such graphs use.
mod proto {
    use super::{Dim, ElementType, Message, TensorDesc};

    #[derive(Message)]
    pub(super) struct Model {
        #[prost(message, tag = "7")]
        pub(super) graph: Option<Graph>,
    }

    #[derive(Message)]
    pub(super) struct Graph {
        #[prost(message, repeated, tag = "1")]
        pub(super) nodes: Vec<Node>,
        #[prost(message, repeated, tag = "11")]
        pub(super) inputs: Vec<Value>,
        #[prost(message, repeated, tag = "12")]
        pub(super) outputs: Vec<Value>,
    }

    #[derive(Message)]
    pub(super) struct Node {
        #[prost(string, tag = "4")]
        pub(super) operator: String,
    }

    #[derive(Message)]
    pub(super) struct Value {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, tag = "2")]
        kind: Option<Kind>,
    }

    #[derive(Message)]
    struct Kind {
        #[prost(message, tag = "1")]
        tensor: Option<Tensor>,
    }

    #[derive(Message)]
    struct Tensor {
        #[prost(int32, tag = "1")]
        element: i32,
        #[prost(message, tag = "2")]
        shape: Option<Shape>,
    }

    #[derive(Message)]
    struct Shape {
        #[prost(message, repeated, tag = "1")]
        axes: Vec<Axis>,
    }

    #[derive(Message)]
    struct Axis {
        #[prost(int64, optional, tag = "1")]
        size: Option<i64>,
    }

    /// Numbers in ONNX of the element types that Orinoco supports.
    const TYPES: [(i32, ElementType); 7] = [
        (1, ElementType::F32),
        (10, ElementType::F16),
        (2, ElementType::U8),
        (3, ElementType::I8),
        (6, ElementType::I32),
        (7, ElementType::I64),
        (9, ElementType::Bool),
    ];

    impl Value {
        pub(super) fn describe(&self) -> TensorDesc {
            let tensor = self.kind.as_ref().and_then(|kind| kind.tensor.as_ref());
            let known =
                TYPES.iter().find(|(number, _)| tensor.is_some_and(|tensor| tensor.element == *number));
            let axes =
                tensor.and_then(|tensor| tensor.shape.as_ref()).into_iter().flat_map(|shape| &shape.axes);
            let size = |axis: &Axis| axis.size.and_then(|size| usize::try_from(size).ok());
            TensorDesc {
                name: self.name.clone(),
                element: known.map(|(_, element)| *element),
                shape: axes.map(|axis| size(axis).map_or(Dim::Dynamic, Dim::Fixed)).collect(),
            }
        }
    }
}
