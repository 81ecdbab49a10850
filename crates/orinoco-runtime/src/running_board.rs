//! Running board, from which a change starts: its settings, and every model that it or one of its streams uses.

use std::collections::{BTreeMap, BTreeSet};

use orinoco_board::{Board, BoardModel, BoardStream};
use orinoco_core::ModelId;

/// Board that was applied last, with its models and the models that leaving streams still use.
pub(crate) struct RunningBoard<M> {
    board: Board,
    models: BTreeMap<ModelId, M>,
    /// Ids of the models of the board.
    on_board: BTreeSet<ModelId>,
}

impl<M: Clone + AsRef<BoardModel>> RunningBoard<M> {
    /// Creates a board of which no model is known yet.
    pub(crate) fn new(board: Board) -> Self {
        Self { board, models: BTreeMap::new(), on_board: BTreeSet::new() }
    }

    /// Returns the name of the board.
    pub(crate) fn name(&self) -> &str {
        &self.board.name
    }

    /// Replaces the board. Returns the ids of its models that were not known.
    pub(crate) fn replace(&mut self, board: Board, models: BTreeMap<ModelId, M>) -> Vec<ModelId> {
        let new = models.keys().copied().filter(|model| !self.models.contains_key(model)).collect();
        self.on_board = models.keys().copied().collect();
        self.models.extend(models);
        self.board = board;
        new
    }

    /// Returns the board with all known models, and with `streams` in place of its own; and its models, in its order.
    pub(crate) fn with_streams<'a>(
        &self,
        streams: impl Iterator<Item = (&'a BoardStream, &'a [ModelId])>,
    ) -> (Board, Vec<(ModelId, M)>) {
        let models: Vec<(ModelId, M)> = self.models.iter().map(|(id, known)| (*id, known.clone())).collect();
        let index = |model: &ModelId| {
            models.iter().position(|(id, _)| id == model).expect("a stream's model is known")
        };
        let placed = streams
            .map(|(spec, models)| BoardStream { models: models.iter().map(index).collect(), ..spec.clone() });
        let board = Board {
            streams: placed.collect(),
            models: models.iter().map(|(_, known)| known.as_ref().clone()).collect(),
            ..self.board.clone()
        };
        (board, models)
    }

    /// Returns the known models, by their ids.
    pub(crate) fn models(&self) -> &BTreeMap<ModelId, M> {
        &self.models
    }

    /// Removes the models that neither the board nor a stream uses, and returns them.
    pub(crate) fn remove_unused(&mut self, used: impl Iterator<Item = ModelId>) -> Vec<(ModelId, M)> {
        let used: BTreeSet<ModelId> = used.chain(self.on_board.iter().copied()).collect();
        self.models.extract_if(.., |id, _| !used.contains(id)).collect()
    }

    /// Removes all models, when the run is over, and returns them.
    pub(crate) fn take_models(&mut self) -> BTreeMap<ModelId, M> {
        self.on_board.clear();
        std::mem::take(&mut self.models)
    }
}

#[cfg(test)]
impl<M> RunningBoard<M> {
    /// Adds a model to those of the board.
    pub(crate) fn insert(&mut self, id: ModelId, model: M) {
        self.models.insert(id, model);
        self.on_board.insert(id);
    }
}
