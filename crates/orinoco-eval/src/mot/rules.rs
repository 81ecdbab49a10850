//! What MOTChallenge leaves out before it judges, as TrackEval's `MotChallenge2DBox` does.

use std::collections::HashSet;

use super::{IOU_MIN, Row, Sequence, by_frame, matching, overlap};

/// The class that is judged. The others only tell what may be found without being wrong.
pub const PEDESTRIAN: u32 = 1;
/// What looks like a pedestrian and is not judged as one: a person on a vehicle, one who does not move, a likeness such
/// as a mannequin, a reflection.
const DISTRACTORS: &[u32] = &[2, 7, 8, 12];
/// In MOT20 vehicles without a motor too.
const DISTRACTORS_MOT20: &[u32] = &[2, 6, 7, 8, 12];

/// Which of the labelled and found boxes count:
///
/// - Of what is labelled, rows of [`PEDESTRIAN`] whose confidence is not 0.
/// - Of what was found, all but the boxes that lie on a distractor: in each frame the found boxes are matched with all
///   labelled ones, of any class and confidence, and those whose partner is a distractor are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    distractors: &'static [u32],
}

impl Rules {
    /// The rules for the sequence called `name`, which begins with its challenge as in `MOT20-01`.
    pub fn of(name: &str) -> Self {
        Self { distractors: if name.starts_with("MOT20") { DISTRACTORS_MOT20 } else { DISTRACTORS } }
    }

    /// Whether a labelled row is judged.
    pub fn judges(row: &Row) -> bool {
        row.class == PEDESTRIAN && row.confidence != 0.0
    }

    /// What counts of `truth` and of `found`, whose rows are all pedestrians.
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
