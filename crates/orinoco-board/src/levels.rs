//! Levels of models between which the governor chooses while a board runs: inference intervals and variants.

use std::collections::BTreeMap;

use crate::{Board, BoardModel};

/// Levels of one model that its board file allows, in descending order of power. The first ones are the file's own settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelLevels {
    /// Inference intervals; empty where the interval is fixed.
    pub intervals: Vec<u32>,
    /// Names or paths of models, from the file's own to the lightest one; empty where the model is fixed.
    pub variants: Vec<String>,
}

/// Level of one model that is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelLevel {
    /// Inference interval; `None` for that of the board file.
    pub interval: Option<u32>,
    /// Name or path of the model; `None` for that of the board file.
    pub variant: Option<String>,
}

/// Levels that are chosen, by the names of the models. A model that is not listed has the level of its board file.
pub type ChosenLevels = BTreeMap<String, ModelLevel>;

impl ModelLevels {
    /// Makes the intervals from that of the file to the greatest one that is allowed: each is twice the one before it, as far
    /// as they go.
    pub(crate) fn intervals(interval: u32, interval_max: u32) -> Vec<u32> {
        let doubled = std::iter::successors(Some(interval), |last| last.checked_mul(2));
        let mut intervals: Vec<u32> = doubled.take_while(|interval| *interval < interval_max).collect();
        intervals.push(interval_max);
        intervals
    }
}

impl Board {
    /// Returns the board with these levels of its models. What its file does not allow is not taken.
    pub fn with_levels(mut self, chosen: &ChosenLevels) -> Self {
        for model in &mut self.models {
            let level = chosen.get(&model.name).cloned().unwrap_or_default();
            model.choose(&level);
        }
        self
    }
}

impl BoardModel {
    fn choose(&mut self, level: &ModelLevel) {
        let ModelLevels { intervals, variants } = &self.levels;
        let chosen = intervals.iter().find(|interval| level.interval == Some(**interval));
        if let Some(interval) = chosen.or(intervals.first()) {
            self.interval = *interval;
        }
        let chosen = variants.iter().find(|variant| level.variant.as_ref() == Some(*variant));
        if let Some(variant) = chosen.or(variants.first()) {
            self.model.clone_from(variant);
        }
    }

    /// Whether a plan of this model serves for the other one, too: only what a lane changes by itself differs, which is the
    /// inference interval, and the levels that are allowed.
    pub fn has_same_plan(&self, other: &Self) -> bool {
        *self == Self { interval: self.interval, levels: self.levels.clone(), ..other.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_doubled_up_to_the_greatest() {
        assert_eq!(ModelLevels::intervals(1, 4), [1, 2, 4]);
        assert_eq!(ModelLevels::intervals(3, 10), [3, 6, 10]);
        assert_eq!(ModelLevels::intervals(2, 2), [2]);
    }

    #[test]
    fn a_level_is_chosen_among_those_of_the_file_and_taken_back() {
        let levels = ModelLevels { intervals: vec![1, 2], variants: vec!["large".into(), "small".into()] };
        let mut model = BoardModel { levels, ..BoardModel::new("m", "large") };
        let mut choose = |interval, variant: Option<&str>| {
            model.choose(&ModelLevel { interval, variant: variant.map(str::to_owned) });
            (model.interval, model.model.clone())
        };
        assert_eq!(choose(Some(2), Some("small")), (2, "small".to_owned()));
        assert_eq!(choose(Some(2), None), (2, "large".to_owned()));
        assert_eq!(choose(Some(3), Some("other")), (1, "large".to_owned()), "the file does not have them");
        let mut fixed = BoardModel { interval: 5, ..BoardModel::new("m", "large") };
        fixed.choose(&ModelLevel { interval: Some(2), variant: Some("small".into()) });
        assert_eq!((fixed.interval, &*fixed.model), (5, "large"));
    }

    #[test]
    fn only_intervals_and_levels_may_differ_for_the_same_plan() {
        let model = BoardModel::new("m", "large");
        let levels = ModelLevels { intervals: vec![1, 2], variants: Vec::new() };
        assert!(model.has_same_plan(&BoardModel { interval: 2, levels, ..model.clone() }));
        assert!(!model.has_same_plan(&BoardModel::new("m", "small")));
        assert!(!model.has_same_plan(&BoardModel { batch: 2, ..model.clone() }));
    }
}
