//! Names of what runs, for exporters of its records.

use std::collections::BTreeMap;

use orinoco_core::{ModelId, StreamId};

use super::directory::Directory;

/// Names of a run's streams and models, by the ids that records have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunNames {
    /// Name of the board.
    pub board: String,
    /// Names of the streams that have not ended.
    pub streams: BTreeMap<StreamId, String>,
    /// Names of the models that are used.
    pub models: BTreeMap<ModelId, ModelName>,
}

/// Name of a model, and of the engine that executes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelName {
    /// Name in the board file.
    pub model: String,
    /// Name of the engine.
    pub engine: String,
}

pub(super) fn of(directory: &Directory) -> RunNames {
    let streams = directory.streams.iter().map(|(id, stream)| (*id, stream.name.clone()));
    let models = directory
        .models
        .iter()
        .map(|(id, model)| (*id, ModelName { model: model.name.clone(), engine: model.engine.clone() }));
    RunNames { board: directory.board.clone(), streams: streams.collect(), models: models.collect() }
}
