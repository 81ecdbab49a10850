//! State of a run, comparable with that of another one: without ids, counters and lanes.

use std::collections::BTreeSet;

use orinoco_board::BoardStream;
use orinoco_core::ModelId;

use super::prepare::{shown_model, shown_models};
use super::run::Run;
use crate::supervisor::state::Source;

/// State of a run, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Streams with their settings, their models and their progress.
    streams: BTreeSet<String>,
    /// Models that are loaded.
    models: BTreeSet<String>,
    /// Models that a lane holds.
    on_lanes: BTreeSet<String>,
    is_over: bool,
}

impl Run<'_> {
    /// Returns the state of the run.
    pub(super) fn state(&self) -> State {
        let Some(supervisor) = &self.supervisor else { return State { is_over: true, ..State::default() } };
        let mut state = State::default();
        let spec = |model: &ModelId| &self.board.models()[model].spec;
        let shown = |model: &ModelId| shown_model(spec(model), self.board.models()[model].plan);
        for (id, known) in &supervisor.streams {
            let stream = &self.streams[id];
            let phase = match known.source {
                Source::Waits { .. } => "waits",
                Source::Runs => "runs",
                Source::Refused | Source::Ended(_) => "ends",
                Source::Retired => "has ended",
            };
            let models: Vec<String> = stream.models.iter().map(shown).collect();
            // The lane that a stream names is a setting; the lane that it is assigned to is not.
            let spec = BoardStream { models: Vec::new(), ..stream.spec.clone() };
            let leaves = if known.left { ", leaves" } else { "" };
            state.streams.insert(format!("{phase}{leaves}: {spec:?} with {models:?}"));
        }
        for lane in self.lanes.iter().flatten() {
            let books = lane.books.borrow();
            let held = (0..self.next_model).map(ModelId).filter(|model| books.has_model(*model));
            state.on_lanes.extend(held.map(|model| shown_model(spec(&model), lane.plans[&model])));
        }
        state.models = shown_models(&self.board).into_iter().collect();
        state
    }
}
