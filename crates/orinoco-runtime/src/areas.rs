//! Scratch areas of lanes.

use std::collections::BTreeMap;

use orinoco_api::{LaneMemory, ModelMemory};
use orinoco_infer::Scratch;

/// Scratch areas of the lanes of a run with a budget, and figures of areas that were removed.
#[derive(Default)]
pub(crate) struct LaneAreas {
    there: BTreeMap<usize, Scratch>,
    gone: BTreeMap<usize, LaneMemory>,
}

/// Scratch areas of the lanes that the streams of a change join.
#[derive(Default)]
pub(crate) struct PreparedAreas {
    /// Areas that the lanes had already when the change was prepared.
    pub(crate) kept: BTreeMap<usize, Scratch>,
    /// Areas that were mapped for the change.
    pub(crate) made: BTreeMap<usize, Scratch>,
}

impl LaneAreas {
    /// Returns the area of a lane, if it has one.
    pub(crate) fn get(&self, lane: usize) -> Option<&Scratch> {
        self.there.get(&lane)
    }

    /// Adds the areas of a change. A kept area is still here, unless its lane lost its last model meanwhile.
    pub(crate) fn extend(&mut self, areas: PreparedAreas) {
        for (lane, scratch) in areas.kept {
            self.there.entry(lane).or_insert(scratch);
        }
        for (lane, scratch) in areas.made {
            self.remove(lane);
            self.there.insert(lane, scratch);
        }
    }

    /// Removes the areas of lanes for which `held` is false. Models that are bound to an area keep it mapped until they are
    /// dropped.
    pub(crate) fn retain(&mut self, held: impl Fn(usize) -> bool) {
        let unheld: Vec<usize> = self.there.keys().copied().filter(|lane| !held(*lane)).collect();
        unheld.into_iter().for_each(|lane| self.remove(lane));
    }

    fn remove(&mut self, lane: usize) {
        if let Some(scratch) = self.there.remove(&lane) {
            let earlier = self.gone.remove(&lane);
            self.gone.insert(lane, with_earlier(summarise(&scratch), earlier));
        }
    }

    /// Returns the figures of every lane, up to the last one that ever had an area.
    pub(crate) fn summary(&self) -> Vec<LaneMemory> {
        let known = self.there.keys().chain(self.gone.keys());
        let lanes = known.max().map_or(0, |last| last + 1);
        let lane = |lane| {
            let gone = self.gone.get(&lane).cloned();
            match self.there.get(&lane) {
                Some(scratch) => with_earlier(summarise(scratch), gone),
                None => gone.unwrap_or_default(),
            }
        };
        (0..lanes).map(lane).collect()
    }
}

fn summarise(scratch: &Scratch) -> LaneMemory {
    let usage = scratch.usage();
    let owners = scratch.owners().into_iter().filter(|(_, usage)| usage.allocations > 0);
    LaneMemory {
        scratch_bytes: scratch.bytes() as u64,
        used_bytes: usage.reach_bytes as u64,
        used_on_device_bytes: scratch.device_usage().reach_bytes as u64,
        outside: usage.refused,
        models: owners
            .map(|(model, usage)| ModelMemory { model, used_bytes: usage.reach_bytes as u64 })
            .collect(),
    }
}

/// Combines the figures of a lane's area with those of its earlier areas. Sizes are those of the latest area, refused
/// requests are added up, and models that computed only in earlier areas are listed in addition.
fn with_earlier(mut latest: LaneMemory, earlier: Option<LaneMemory>) -> LaneMemory {
    let Some(earlier) = earlier else { return latest };
    latest.outside += earlier.outside;
    for model in earlier.models {
        if latest.models.iter().all(|known| known.model != model.model) {
            latest.models.push(model);
        }
    }
    latest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(bytes: usize) -> Scratch {
        Scratch::new(bytes).expect("little memory")
    }

    #[test]
    fn an_area_goes_with_the_last_model_of_its_lane_and_its_figures_stay() {
        let mut areas = LaneAreas::default();
        let made = |lane: usize, bytes| BTreeMap::from([(lane, area(bytes))]);
        areas.extend(PreparedAreas { made: made(1, 1 << 16), ..PreparedAreas::default() });
        let kept = BTreeMap::from([(1, areas.get(1).expect("it was made").clone())]);
        areas.retain(|_| false);
        assert!(areas.get(1).is_none());
        let sizes = |areas: &LaneAreas| -> Vec<u64> {
            areas.summary().iter().map(|lane| lane.scratch_bytes).collect()
        };
        assert_eq!(sizes(&areas), [0, 1 << 16]);
        // A change that was prepared before the removal brings the area back.
        areas.extend(PreparedAreas { kept, ..PreparedAreas::default() });
        assert_eq!(areas.get(1).map(Scratch::bytes), Some(1 << 16));
        areas.extend(PreparedAreas { made: made(1, 1 << 17), ..PreparedAreas::default() });
        assert_eq!((areas.get(1).map(Scratch::bytes), sizes(&areas)), (Some(1 << 17), vec![0, 1 << 17]));
    }

    #[test]
    fn figures_of_one_lane_add_up() {
        let model = |model: &str, used_bytes| ModelMemory { model: model.to_owned(), used_bytes };
        let lane = |scratch_bytes, outside, models| LaneMemory {
            scratch_bytes,
            outside,
            models,
            ..LaneMemory::default()
        };
        let earlier = lane(9, 2, vec![model("a", 9), model("b", 8)]);
        let latest = lane(5, 1, vec![model("b", 5)]);
        let both = lane(5, 3, vec![model("b", 5), model("a", 9)]);
        assert_eq!(with_earlier(latest, Some(earlier)), both);
    }
}
