//! Engines of a board, with their shared context.

use orinoco_board::Inference;
use orinoco_core::Diagnosis;
use orinoco_infer::{EngineContext, EngineOrder, Options};

/// Engines that a board may use, in order of preference, and their context. Clones share the context.
#[derive(Clone)]
pub struct BoardEngines {
    /// Engines, in order of preference.
    pub order: EngineOrder,
    /// Context that the engines share.
    pub context: EngineContext,
}

impl BoardEngines {
    /// Creates the engines that `inference` names, with its settings.
    ///
    /// # Errors
    /// `E0301` for a name that no engine has, `E0303` for a required engine that is not in the order.
    pub fn new(inference: &Inference) -> Result<Self, Diagnosis> {
        let Inference { engines, require, threads, ort_library, shared_scratch } = inference;
        let order = EngineOrder::parse(engines, require)?;
        let options =
            Options { threads: *threads, ort_library: ort_library.clone(), shared_scratch: *shared_scratch };
        Ok(Self { order, context: EngineContext::new(options) })
    }
}
