use std::collections::BTreeMap;
use std::sync::Arc;

use orinoco_core::ModelId;

/// Names by which sinks write what a model found.
#[derive(Clone, Debug)]
pub(crate) struct ModelNames {
    pub(crate) name: String,
    pub(crate) engine: &'static str,
    pub(crate) labels: Vec<String>,
}

/// The models of a stream, for its sinks.
pub(crate) type NamesOfModels = Arc<BTreeMap<ModelId, Arc<ModelNames>>>;
