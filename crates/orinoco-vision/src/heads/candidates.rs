//! Functions that the heads of detectors share: candidates above a threshold, and their suppression.

use orinoco_core::{Detection, InferenceResult};

use super::HeadSpec;
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

/// Adds a candidate to the detections, or counts it where its score or its box is not a finite number.
#[inline]
pub(super) fn add(found: &mut InferenceResult, candidate: Detection) {
    if candidate.is_finite() {
        found.detections.push(candidate);
    } else {
        found.not_finite += 1;
    }
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
