//! One class of one video, frame by frame, as every measure counts it.

use std::collections::{BTreeMap, HashMap};

use super::sequence::Row;

/// Boxes that overlap less are not the same object, for CLEAR MOT and the identity measures.
pub const IOU_MIN: f64 = 0.5;

/// One class of one video, with ids as indices.
pub(super) struct Video {
    pub(super) frames: Vec<Frame>,
    /// In how many frames each labelled object is.
    pub(super) truth_frames: Vec<u64>,
    /// In how many frames each found object is.
    pub(super) found_frames: Vec<u64>,
}

#[derive(Default)]
pub(super) struct Frame {
    /// Indices of the labelled objects.
    pub(super) truth: Vec<usize>,
    /// Indices of the found objects.
    pub(super) found: Vec<usize>,
    /// Intersection over union: a row for each labelled object, a column for each found one.
    pub(super) overlaps: Vec<f64>,
}

impl Frame {
    pub(super) fn overlap(&self, row: usize, column: usize) -> f64 {
        self.overlaps[row * self.found.len() + column]
    }
}

impl Video {
    pub(super) fn of(truth: &[&Row], found: &[&Row]) -> Self {
        let frames = by_frame(truth.iter().copied(), found.iter().copied());
        let (mut truth_ids, mut found_ids) = (Ids::default(), Ids::default());
        let frames = frames.values().map(|(truth, found)| Frame {
            truth: truth.iter().map(|row| truth_ids.index(row.id)).collect(),
            found: found.iter().map(|row| found_ids.index(row.id)).collect(),
            overlaps: truth
                .iter()
                .flat_map(|t| found.iter().map(|f| overlap(&t.bounds, &f.bounds)))
                .collect(),
        });
        let frames = frames.collect();
        Self { frames, truth_frames: truth_ids.counts, found_frames: found_ids.counts }
    }
}

/// The labelled and the found rows of each frame that has any.
pub(super) fn by_frame<'a>(
    truth: impl Iterator<Item = &'a Row>,
    found: impl Iterator<Item = &'a Row>,
) -> BTreeMap<u32, (Vec<&'a Row>, Vec<&'a Row>)> {
    let mut frames: BTreeMap<u32, (Vec<&Row>, Vec<&Row>)> = BTreeMap::new();
    truth.for_each(|row| frames.entry(row.frame).or_default().0.push(row));
    found.for_each(|row| frames.entry(row.frame).or_default().1.push(row));
    frames
}

/// Ids as indices, in the order in which they appear, with how often each was asked for.
#[derive(Default)]
struct Ids {
    known: HashMap<u64, usize>,
    counts: Vec<u64>,
}

impl Ids {
    fn index(&mut self, id: u64) -> usize {
        let index = *self.known.entry(id).or_insert(self.counts.len());
        if index == self.counts.len() {
            self.counts.push(0);
        }
        self.counts[index] += 1;
        index
    }
}

/// Intersection over union of two boxes of left, top, width, height.
pub(super) fn overlap(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    let along = |axis: usize| {
        let end = (a[axis] + a[axis + 2]).min(b[axis] + b[axis + 2]);
        (end - a[axis].max(b[axis])).max(0.0)
    };
    let shared = along(0) * along(1);
    let union = a[2] * a[3] + b[2] * b[3] - shared;
    if shared > 0.0 && union > 0.0 { shared / union } else { 0.0 }
}

/// `part / whole`; `None` of nothing.
pub(super) fn share(part: f64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part / whole as f64)
}
