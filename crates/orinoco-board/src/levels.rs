//! Levels of models between which the governor chooses while a board runs: inference intervals and variants.

use std::collections::BTreeMap;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_doubled_up_to_the_greatest() {
        assert_eq!(ModelLevels::intervals(1, 4), [1, 2, 4]);
        assert_eq!(ModelLevels::intervals(3, 10), [3, 6, 10]);
        assert_eq!(ModelLevels::intervals(2, 2), [2]);
    }
}
