//! Models that were removed from the board. The latest are kept in full, and only totals of the older ones.

use std::collections::VecDeque;

use orinoco_api::{MissedImages, ModelSummary, ModelTotals};
use orinoco_core::ModelId;

use super::totals::{Totals, add_known, entry_of};

/// Maximum number of removed models that are kept in full: more than a person reads.
const FULL_MAX: usize = 1000;

/// All models that were removed.
#[derive(Default)]
pub(crate) struct EndedModels {
    latest: VecDeque<(ModelId, ModelSummary)>,
    totals: Totals<ModelTotals>,
}

/// All models of a run, for its summary.
pub(crate) struct AllModels {
    pub(crate) models: Vec<ModelSummary>,
    pub(crate) totals: Vec<ModelTotals>,
}

impl EndedModels {
    pub(crate) fn add(&mut self, id: ModelId, summary: ModelSummary) {
        self.latest.push_back((id, summary));
        if self.latest.len() > FULL_MAX
            && let Some((_, oldest)) = self.latest.pop_front()
        {
            self.add_up(oldest);
        }
    }

    fn add_up(&mut self, model: ModelSummary) {
        let total = self.totals.of(&model.name, |name| ModelTotals { name, ..ModelTotals::default() });
        total.models += 1;
        total.images += model.images;
        total.inferences += model.inferences;
        total.graph_fallbacks += model.graph_fallbacks;
        total.not_finite += model.not_finite;
        add_known(&mut total.energy_j, model.energy_j);
        let Some(remote) = model.remote else { return };
        total.remote_images += remote.images;
        for MissedImages { cause, images } in remote.missed {
            let is_it = |missed: &MissedImages| missed.cause == cause;
            let empty = || MissedImages { cause: cause.clone(), images: 0 };
            entry_of(&mut total.missed, is_it, empty).images += images;
        }
    }

    /// Returns all removed models, the latest in the order in which they were added to the board.
    pub(crate) fn into_all(self) -> AllModels {
        let mut latest = Vec::from(self.latest);
        latest.sort_by_key(|(id, _)| *id);
        let models = latest.into_iter().map(|(_, summary)| summary).collect();
        AllModels { models, totals: self.totals.into_all() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str) -> ModelSummary {
        let summary = serde_json::json!({
            "name": name, "file": "model.onnx", "engine": "tract", "engine_version": "0.23", "batch": 4,
            "pictures": 7, "replays": 2, "graph_fallbacks": 1, "not_finite": 3, "energy_j": 0.5, "refused": [],
            "remote": { "seat": "big", "fallback": "skip", "images": 5,
                        "missed": [{ "cause": "late", "images": 2 }] },
        });
        serde_json::from_value(summary).expect("it is one")
    }

    #[test]
    fn older_models_become_totals_and_nothing_is_lost_of_their_counts() {
        let mut all = EndedModels::default();
        let models = FULL_MAX as u32 + 40;
        for id in (0..models).rev() {
            all.add(ModelId(id), model(if id % 2 == 0 { "even" } else { "odd" }));
        }
        let AllModels { models, totals } = all.into_all();
        assert_eq!((models.len(), &*models[0].name, &*models[1].name), (FULL_MAX, "even", "odd"));
        let names: Vec<_> = totals.iter().map(|total| (&*total.name, total.models)).collect();
        assert_eq!(names, [("even", 20), ("odd", 20)]);
        let total = &totals[0];
        assert_eq!((total.images, total.inferences, total.graph_fallbacks), (140, 40, 20));
        assert_eq!((total.not_finite, total.energy_j, total.remote_images), (60, Some(10.0), 100));
        assert_eq!(total.missed, [MissedImages { cause: "late".to_owned(), images: 40 }]);
    }
}
