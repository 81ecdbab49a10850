//! Functions that the heads of detectors share: candidates above a threshold, and their suppression.

use orinoco_core::{Detection, InferenceResult};

use super::HeadSpec;
use crate::nms::{CANDIDATES_MAX, best_first};
use crate::suppress;

/// Reports the classes of a box above the threshold with their scores: all of them, or only the best one. `score_of`
/// computes the score of a class value, and must increase with it.
#[inline]
pub(super) fn labels_above(
    spec: &HeadSpec,
    values: &[f32],
    score_of: impl Fn(f32) -> f32,
    mut report: impl FnMut(u32, f32),
) {
    let mut consider = |class_id: u32, value: f32| {
        let score = score_of(value);
        if is_candidate(score, spec) {
            report(class_id, score);
        }
    };
    if spec.multi_label {
        (0u32..).zip(values).for_each(|(class_id, value)| consider(class_id, *value));
    } else {
        let (class_id, value) = best(values);
        consider(class_id, value);
    }
}

/// Whether a candidate with this score may be a detection: it is above the threshold, or NaN, which [`add`] counts.
#[inline]
pub(super) fn is_candidate(score: f32, spec: &HeadSpec) -> bool {
    score > spec.score_threshold || score.is_nan()
}

/// Adds a candidate to the detections, or counts it where its score or its box is not a finite number. Candidates that
/// [`CANDIDATES_MAX`] better ones precede may be left out, since they take no part in the suppression.
#[inline]
pub(super) fn add(found: &mut InferenceResult, candidate: Detection) {
    if candidate.is_finite() {
        add_best(&mut found.detections, CANDIDATES_MAX, candidate);
    } else {
        found.not_finite += 1;
    }
}

/// Adds a candidate to `found`, of which the best `keep_max` matter: at most twice as many are held.
#[inline]
fn add_best(found: &mut Vec<Detection>, keep_max: usize, candidate: Detection) {
    if found.len() == keep_max || found.len() == 2 * keep_max {
        // Afterwards a candidate has to be better than the last of these.
        found.select_nth_unstable_by(keep_max - 1, best_first);
        found.truncate(keep_max);
    } else if found.len() > keep_max && best_first(&candidate, &found[keep_max - 1]).is_gt() {
        return;
    }
    found.push(candidate);
}

/// Returns the index and value of the greatest score. NaN is returned only if there is nothing else.
#[inline]
pub(super) fn best(scores: &[f32]) -> (u32, f32) {
    let mut best = (0, f32::NAN);
    for (index, score) in (0u32..).zip(scores) {
        if *score > best.1 || best.1.is_nan() {
            best = (index, *score);
        }
    }
    best
}

pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Returns the probability of a class value. An infinite value gives NaN, although its logistic function is 1.
pub(super) fn probability(value: f32) -> f32 {
    if value == f32::INFINITY { f32::NAN } else { sigmoid(value) }
}

/// Suppresses overlapping boxes with the settings of `spec`.
pub(super) fn suppress_as(spec: &HeadSpec, found: &mut Vec<Detection>) {
    suppress(found, spec.iou_threshold, spec.detections_max, spec.across);
}

#[cfg(test)]
mod tests {
    use orinoco_core::BoxF;
    use proptest::prelude::*;

    use super::*;
    use crate::nms::keep_best;

    proptest! {
        #[test]
        fn the_best_are_among_those_added(scores in prop::collection::vec(0u8..20, 0..200), keep_max in 1usize..20) {
            // Many have the same score; no two have the same position.
            let candidates = scores.iter().enumerate().map(|(index, score)| {
                let bounds = BoxF { x1: index as f32, y1: 0.0, x2: index as f32 + 1.0, y2: 1.0 };
                Detection { class_id: 0, score: f32::from(*score), bounds }
            });
            let mut all: Vec<Detection> = candidates.collect();
            let mut added = Vec::new();
            for candidate in &all {
                add_best(&mut added, keep_max, *candidate);
                prop_assert!(added.len() <= 2 * keep_max);
            }
            keep_best(&mut added, keep_max);
            keep_best(&mut all, keep_max);
            prop_assert_eq!(added, all);
        }
    }
}
