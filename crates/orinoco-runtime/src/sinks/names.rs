use std::collections::BTreeMap;
use std::sync::Arc;

use orinoco_core::ModelId;

/// Names with which sinks write the results of a model.
#[derive(Clone, Debug)]
pub(crate) struct ModelNames {
    pub(crate) name: String,
    pub(crate) engine: &'static str,
    pub(crate) labels: Vec<String>,
}

/// Names of a stream's models, for its sinks.
pub(crate) type NamesOfModels = Arc<BTreeMap<ModelId, Arc<ModelNames>>>;
