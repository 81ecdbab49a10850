//! Run, as the exporter sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use orinoco_core::{Clock, ModelId, Nanos, StreamId};
use orinoco_telemetry::{Metric, TraceFeed};

use crate::RunId;

/// Running board whose telemetry is exported. Its methods are called on the exporter's thread.
pub trait Exported: Send + 'static {
    /// Returns the metrics of the run, without those of the exporter. Names of metrics are unique.
    fn metrics(&self) -> Vec<Metric>;

    /// Returns the names of what runs now.
    fn names(&self) -> Names;
}

/// Names of what runs, by the ids that records have.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Names of the streams.
    pub streams: BTreeMap<StreamId, String>,
    /// Names of the models and their engines.
    pub models: BTreeMap<ModelId, ModelLabels>,
}

/// Name of a model, and of the engine that executes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelLabels {
    /// Name of the model.
    pub model: String,
    /// Name of its engine.
    pub engine: String,
}

/// Run that an exporter reads.
pub struct Run {
    /// Its metrics and names.
    pub exported: Box<dyn Exported>,
    /// Its records; `None` sends no traces.
    pub records: Option<TraceFeed>,
    /// Clock whose times the records have.
    pub clock: Arc<dyn Clock>,
    /// Time at which the run started.
    pub started: Nanos,
    /// Identity of the run.
    pub id: RunId,
    /// Attributes of the machine and its board, such as `host.name`. Environment variables win over them.
    pub attributes: Vec<(&'static str, String)>,
}
