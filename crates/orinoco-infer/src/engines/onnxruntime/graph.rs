//! Inputs and outputs of a model's graph, as ONNX Runtime reports them.

use std::path::{Path, PathBuf};

use orinoco_core::TensorDesc;
use ort::session::Session as OrtSession;

use super::spare::Overrides;
use super::tensors::{describe, symbols_of};
use crate::engine_error::EngineError;

/// Inputs and outputs of a model's graph.
pub(super) struct GraphDesc {
    pub(super) file: PathBuf,
    pub(super) inputs: Vec<TensorDesc>,
    pub(super) outputs: Vec<TensorDesc>,
    /// Names of each input's axes if they are dynamic; empty strings for fixed axes.
    symbols: Vec<Vec<String>>,
}

impl GraphDesc {
    /// Returns the graph of `file`, which `session` has read.
    pub(super) fn of(file: &Path, session: &OrtSession) -> Self {
        Self {
            file: file.to_owned(),
            inputs: session.inputs().iter().map(describe).collect(),
            outputs: session.outputs().iter().map(describe).collect(),
            symbols: session.inputs().iter().map(symbols_of).collect(),
        }
    }

    /// Returns the sizes that `shapes` fixes for named axes. They are set before the graph is optimised, because ONNX
    /// Runtime plans its memory and infers the shapes of the outputs with them.
    pub(super) fn overrides(&self, shapes: &[Vec<usize>]) -> Result<Overrides, EngineError> {
        let mut fixed = Overrides::new();
        for (symbol, size) in self.symbols.iter().flatten().zip(shapes.iter().flatten()) {
            let size = i64::try_from(*size).expect("check_binding keeps sizes below isize::MAX");
            match fixed.iter().find(|(name, _)| name == symbol) {
                _ if symbol.is_empty() => {}
                None => fixed.push((symbol.clone(), size)),
                Some((_, other)) if *other == size => {}
                Some((_, other)) => {
                    let why = format!("axis `{symbol}` cannot be both {other} and {size}");
                    return Err(EngineError::Unsupported(why));
                }
            }
        }
        Ok(fixed)
    }
}
