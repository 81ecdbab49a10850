//! Removes the rows that MOTChallenge does not evaluate, as TrackEval's `MotChallenge2DBox` does.

use std::collections::HashSet;

use super::{IOU_MIN, Row, Sequence, by_frame, matching, overlap};

/// Class that is evaluated. Boxes of other classes only mark detections that are not counted as wrong.
pub const PEDESTRIAN: u32 = 1;
/// Classes of objects that look like a pedestrian and are not evaluated as one: a person on a vehicle, a person who
/// does not move, a likeness such as a mannequin, a reflection.
const DISTRACTORS: &[u32] = &[2, 7, 8, 12];
/// Distractors of MOT20, which also include vehicles without a motor.
const DISTRACTORS_MOT20: &[u32] = &[2, 6, 7, 8, 12];

/// Rules for the labelled and found boxes that count:
///
/// - Labelled boxes count if their class is [`PEDESTRIAN`] and their confidence is not 0.
/// - Found boxes count unless they lie on a distractor: in each frame the found boxes are matched with all labelled
///   ones, of any class and confidence, and those that match a distractor are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    distractors: &'static [u32],
}

impl Rules {
    /// Returns the rules for the sequence `name`, which begins with its challenge as in `MOT20-01`.
    pub fn of(name: &str) -> Self {
        Self { distractors: if name.starts_with("MOT20") { DISTRACTORS_MOT20 } else { DISTRACTORS } }
    }

    /// Whether a labelled row is evaluated.
    pub fn judges(row: &Row) -> bool {
        row.class == PEDESTRIAN && row.confidence != 0.0
    }

    /// Returns the rows of `truth` and of `found` that count. All rows of `found` must be pedestrians.
    pub fn apply(self, truth: &Sequence, found: &Sequence) -> (Sequence, Sequence) {
        let mut passed = HashSet::new();
        for (truth, found) in by_frame(truth.rows.iter(), found.rows.iter()).values() {
            let weight = |row: usize, column: usize| {
                let overlap = overlap(&truth[row].bounds, &found[column].bounds);
                if overlap >= IOU_MIN - f64::EPSILON { overlap } else { 0.0 }
            };
            let pairs = matching::heaviest(truth.len(), found.len(), weight).into_iter();
            let distracted = pairs.filter(|(row, _)| self.distractors.contains(&truth[*row].class));
            passed.extend(distracted.map(|(_, column)| (found[column].frame, found[column].id)));
        }
        let truth = truth.rows.iter().filter(|row| Self::judges(row)).copied().collect();
        let found = found.rows.iter().filter(|row| !passed.contains(&(row.frame, row.id))).copied().collect();
        (Sequence { rows: truth }, Sequence { rows: found })
    }
}
