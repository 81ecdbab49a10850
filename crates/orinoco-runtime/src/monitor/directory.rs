//! Names and fixed facts of what runs, and totals of what has ended.

use std::collections::{BTreeMap, BTreeSet};

use orinoco_api::ModelSummary;
use orinoco_board::{BoardModel, ModelLevels};
use orinoco_core::{ModelId, StreamId};
use orinoco_telemetry::{DropCause, StreamFold};

/// Streams, models and lanes of the board, by id.
#[derive(Default)]
pub(crate) struct Directory {
    pub(super) board: String,
    pub(super) streams: BTreeMap<StreamId, ListedStream>,
    pub(super) models: BTreeMap<ModelId, ModelSummary>,
    pub(super) lanes: usize,
    /// Bytes that the admitted plan needs, and the budget.
    pub(super) memory: Option<(u64, u64)>,
    /// Models of the board whose levels may be changed while it runs.
    levels: Vec<BoardModel>,
    pub(super) ended: Totals,
}

/// Facts of one stream that do not change while it runs.
pub(crate) struct ListedStream {
    pub(crate) name: String,
    /// Its source without secrets.
    pub(crate) source: String,
    pub(crate) lane: usize,
    pub(crate) models: Vec<ModelId>,
}

/// Counters over several streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) streams: u64,
    pub(super) frames_in: u64,
    pub(super) frames_out: u64,
    pub(super) late: u64,
    pub(super) detections: u64,
    pub(super) reconnects: u64,
    pub(super) dropped: [u64; DropCause::ALL.len()],
}

impl Totals {
    pub(super) fn add(&mut self, fold: &StreamFold) {
        self.streams += 1;
        self.frames_in += fold.frames_in;
        self.frames_out += fold.frames_out;
        self.late += fold.late;
        self.detections += fold.detections;
        self.reconnects += fold.reconnects;
        for (total, cause) in self.dropped.iter_mut().zip(DropCause::ALL) {
            *total += fold.dropped(cause);
        }
    }
}

impl Directory {
    pub(super) fn new(board: &str) -> Self {
        Self { board: board.to_owned(), ..Self::default() }
    }

    /// Lists a stream that has joined its lane.
    pub(crate) fn join(&mut self, id: StreamId, stream: ListedStream) {
        self.lanes = self.lanes.max(stream.lane + 1);
        self.streams.insert(id, stream);
    }

    /// Adds the figures of a stream that has ended to the totals. The caller removes its fold under the same lock, so that
    /// no reader misses them or counts them twice.
    pub(crate) fn end(&mut self, id: StreamId, fold: &StreamFold) {
        if self.streams.remove(&id).is_some() {
            self.ended.add(fold);
        }
    }

    /// Lists a model.
    pub(crate) fn add_model(&mut self, id: ModelId, summary: ModelSummary) {
        self.models.insert(id, summary);
    }

    /// Removes a model that is not used any more.
    pub(crate) fn remove_model(&mut self, id: ModelId) {
        self.models.remove(&id);
    }

    /// Sets the bytes that the admitted plan needs, and the budget of the board.
    pub(crate) fn set_memory(&mut self, planned: u64, budget: u64) {
        self.memory = Some((planned, budget));
    }

    /// Sets the models of the board, of which those are kept whose levels may be changed.
    pub(crate) fn set_levels(&mut self, models: &[BoardModel]) {
        let has_levels = |model: &&BoardModel| model.levels != ModelLevels::default();
        self.levels = models.iter().filter(has_levels).cloned().collect();
    }

    /// Returns the models of the board whose levels may be changed while it runs, with their present levels.
    pub(crate) fn levels(&self) -> &[BoardModel] {
        &self.levels
    }

    /// Sets the name of the board, which a change may replace.
    pub(crate) fn rename(&mut self, board: &str) {
        board.clone_into(&mut self.board);
    }

    /// Returns the number of lanes up to the last one that had a stream.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }

    /// Whether the stream has not ended.
    pub(crate) fn has_stream(&self, id: StreamId) -> bool {
        self.streams.contains_key(&id)
    }

    /// Whether the model is used.
    pub(crate) fn has_model(&self, id: ModelId) -> bool {
        self.models.contains_key(&id)
    }

    /// Returns the streams, of each name only the latest: a stream that leaves may still end while another with its name has
    /// joined, and a name means one series of a metric.
    pub(super) fn streams_by_name(&self) -> impl Iterator<Item = (StreamId, &ListedStream)> {
        latest_of_each_name(&self.streams, |stream| &stream.name)
    }

    /// Returns the models, of each name only the latest.
    pub(super) fn models_by_name(&self) -> impl Iterator<Item = (ModelId, &ModelSummary)> {
        latest_of_each_name(&self.models, |model| &model.name)
    }

    /// Returns the name of a model; its id where it has been removed.
    pub(super) fn model_name(&self, id: ModelId) -> String {
        self.models.get(&id).map_or_else(|| id.to_string(), |model| model.name.clone())
    }
}

fn latest_of_each_name<I: Copy + Ord, T>(
    all: &BTreeMap<I, T>,
    name: impl Fn(&T) -> &str,
) -> impl Iterator<Item = (I, &T)> {
    let latest: BTreeMap<&str, I> = all.iter().map(|(id, entry)| (name(entry), *id)).collect();
    let latest: BTreeSet<I> = latest.into_values().collect();
    all.iter().filter(move |(id, _)| latest.contains(id)).map(|(id, entry)| (*id, entry))
}
