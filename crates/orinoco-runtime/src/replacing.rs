//! Replacement of models while streams use them: a lane takes the plan of a model's next generation between two batches.

use std::collections::BTreeSet;
use std::sync::Arc;

use orinoco_board::Board;

use crate::model_entry::ModelEntry;
use crate::model_version::{LanePlan, ModelVersion};
use crate::placement::LaneViews;
use crate::planning::{Measured, model_needs};
use crate::run_memory::Replacement;

/// Plan of a lane that is of another generation than the wanted board's model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StalePlan {
    pub(crate) plan: LanePlan,
    /// Index of the model on the wanted board.
    pub(crate) wanted: usize,
}

/// Returns the plans that lanes have of other generations than the `wanted` ones.
pub(crate) fn stale_plans(wanted: &[ModelVersion], lanes: &LaneViews) -> Vec<StalePlan> {
    let entries = lanes.lanes.iter().enumerate();
    let entries = entries.filter_map(|(lane, view)| Some((lane, view.entry.as_ref()?)));
    let of_lane = entries.flat_map(|(lane, entry)| {
        wanted.iter().enumerate().filter_map(move |(index, version)| {
            let generation = entry.generation(version.id).filter(|there| *there != version.generation)?;
            Some(StalePlan { plan: LanePlan { lane, model: version.id, generation }, wanted: index })
        })
    });
    of_lane.collect()
}

/// Returns the models, by their indices on the wanted board, that need more scratch memory than a lane has on which they
/// are to replace a plan: no area grows.
pub(crate) fn too_large(
    stale: &[StalePlan],
    measured: &[Arc<Measured>],
    lanes: &LaneViews,
) -> BTreeSet<usize> {
    let is_too_large = |stale: &&StalePlan| {
        let there = lanes.lanes[stale.plan.lane].scratch_size();
        there.is_some_and(|there| !measured[stale.wanted].scratch_size().fits(there))
    };
    stale.iter().filter(is_too_large).map(|stale| stale.wanted).collect()
}

/// Returns what the replacements change in the memory of a run.
pub(crate) fn replacements(
    board: &Board,
    stale: &[StalePlan],
    measured: &[Arc<Measured>],
    revisions: &[String],
) -> Vec<Replacement> {
    let replacement = |&StalePlan { plan, wanted }: &StalePlan| Replacement {
        old: plan,
        old_revision: ModelVersion::from(plan).revision(),
        new: model_needs(&board.models[wanted], &measured[wanted], plan.lane, revisions[wanted].clone()),
    };
    stale.iter().map(replacement).collect()
}

/// Whether the results of two models differ in values only, so that trackers and sinks can continue with the new ones.
pub(crate) fn have_same_results(old: &ModelEntry, new: &ModelEntry) -> bool {
    let has_state = old.has_state || new.has_state;
    !has_state
        && old.kind == new.kind
        && old.names.engine == new.names.engine
        && old.names.labels == new.names.labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{demo_model, known};
    use orinoco_core::{Choice, ModelId};
    use orinoco_infer::Scratch;
    use orinoco_vision::HeadKind;

    use crate::placement::LaneView;

    #[test]
    fn a_model_that_gives_other_results_replaces_none() {
        let model = known(&demo_model());
        assert!(have_same_results(&model, &model));
        let other = |change: &dyn Fn(&mut ModelEntry)| {
            let mut other = model.clone();
            change(&mut other);
            have_same_results(&model, &other) || have_same_results(&other, &model)
        };
        assert!(other(&|other| other.generation = 1));
        assert!(!other(&|other| other.has_state = true));
        assert!(!other(&|other| other.kind = HeadKind::ALL[1]));
        assert!(!other(&|other| Arc::make_mut(&mut other.names).engine = "other"));
        assert!(!other(&|other| Arc::make_mut(&mut other.names).labels.push("cat".to_owned())));
    }

    #[test]
    fn a_model_that_needs_a_larger_area_replaces_none() {
        const MIB: u64 = 1 << 20;
        let area = |mib: u64| LaneView {
            entry: None,
            scratch: Some(Scratch::new((mib * MIB) as usize).expect("little memory")),
            streams: 1,
        };
        let lanes =
            LaneViews { lanes: vec![area(2), area(1), LaneView { entry: None, scratch: None, streams: 1 }] };
        let measured: Vec<Arc<Measured>> =
            [2, 1].map(|mib| Arc::new(Measured::on_host(MIB, mib * MIB, MIB))).to_vec();
        let stale = |lane, wanted| {
            let plan = LanePlan { lane, model: ModelId::from_index(wanted), generation: 0 };
            StalePlan { plan, wanted }
        };
        let all = [stale(0, 0), stale(0, 1), stale(1, 0), stale(1, 1), stale(2, 0)];
        assert_eq!(too_large(&all, &measured, &lanes), BTreeSet::from([0]));
        assert!(too_large(&all[..2], &measured, &lanes).is_empty());
    }
}
