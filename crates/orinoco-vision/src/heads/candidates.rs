//! What the heads of detectors share: candidates above a threshold, and their suppression.

use orinoco_core::{Detection, InferenceResult};

use super::HeadSpec;
use crate::suppress;

/// Hands on the classes of a box that are above the threshold, with their scores: all of them, or the best. `score_of`
/// makes a score of a class value, and grows with it.
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

/// Whether something of this score may be a detection: it is above the threshold, or is no number, which [`add`] counts.
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

/// The index and value of the greatest. What is no number counts only where there is nothing else.
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

/// The probability of a class value. An infinite one is no confidence, although the logistic function makes 1 of it.
pub(super) fn probability(value: f32) -> f32 {
    if value == f32::INFINITY { f32::NAN } else { sigmoid(value) }
}

/// Suppression as the spec wants it.
pub(super) fn suppress_as(spec: &HeadSpec, found: &mut Vec<Detection>) {
    suppress(found, spec.iou_threshold, spec.detections_max, spec.across);
}
