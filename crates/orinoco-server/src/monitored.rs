//! Board, as the server sees it.

use std::num::NonZeroU64;

use orinoco_api::{ClusterModels, Dump, EventJson, MODEL_DATA_BYTES_MAX, Status};
use orinoco_core::Diagnosis;
use orinoco_telemetry::Metric;
use serde::Deserialize;

/// Part of a file of another board's model, as the query of a request names it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPart {
    /// Seat of the board.
    pub seat: String,
    /// Name of the model.
    pub model: String,
    /// Path of the file in the model's folder.
    pub file: String,
    /// First byte of the part.
    pub offset: u64,
    /// Length of the part in bytes; [`MODEL_DATA_BYTES_MAX`] if it is absent or longer than that.
    pub length: Option<NonZeroU64>,
}

impl ModelPart {
    /// Largest length of the part in bytes. The file may end sooner.
    pub fn bytes_max(&self) -> u64 {
        self.length.map_or(MODEL_DATA_BYTES_MAX, |length| length.get().min(MODEL_DATA_BYTES_MAX))
    }
}

/// Running board that the server reports on. Its methods are called on blocking threads of the server, at most one call of
/// each method at a time; a call that hangs delays only answers of its kind, which then report a time-out.
pub trait Monitored: Send + Sync + 'static {
    /// Returns the state of the board.
    fn status(&self) -> Status;

    /// Returns the metrics of the board. Names of metrics are unique.
    fn metrics(&self) -> Vec<Metric>;

    /// Returns the events that are still kept and whose number is greater than `number`, oldest first.
    fn events_after(&self, number: u64) -> Vec<EventJson>;

    /// Has `wake` called after each new event, on whichever thread emits it. `wake` does not block, and calls in a row may
    /// count as one. The server calls this method once.
    fn on_event(&self, wake: Box<dyn Fn() + Send + Sync>);

    /// Returns the post-mortem dump: status, events and trace, without secrets of addresses.
    fn dump(&self) -> Dump;

    /// Returns the models that the other boards of the cluster share.
    ///
    /// # Errors
    /// If the board is in no cluster.
    fn cluster_models(&self) -> Result<ClusterModels, Diagnosis>;

    /// Returns a part of a file of another board's model: [`ModelPart::bytes_max`] bytes, fewer at the end of the file, none after it.
    ///
    /// # Errors
    /// If the other board does not share the file, or does not answer.
    fn model_data(&self, part: &ModelPart) -> Result<Vec<u8>, Diagnosis>;
}
