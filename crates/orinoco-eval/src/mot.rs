//! How well objects are followed: HOTA, CLEAR MOT and the identity measures, over boxes with ids.
//!
//! The figures are those of TrackEval, which the MOTChallenge uses; `tests/mot` holds them to it and to py-motmetrics.
//! Classes are judged each on its own and their counts summed ("detection averaged" in TrackEval's words). What the
//! challenge leaves out before it judges is [`Rules`]; a sequence on disk is a [`Folder`].

mod clear;
mod folder;
mod hota;
mod identity;
mod matching;
mod rules;
mod text;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::AddAssign;

pub use clear::Clear;
pub use folder::Folder;
pub use hota::{ALPHAS, Hota, HotaAt, alpha};
pub use identity::Identity;
pub use rules::{PEDESTRIAN, Rules};

/// Boxes that overlap less are not the same object, for CLEAR MOT and the identity measures.
pub const IOU_MIN: f64 = 0.5;

/// One object in one frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The frame's number; MOTChallenge counts from 1.
    pub frame: u32,
    /// Who it is: the same number in every frame.
    pub id: u64,
    /// What it is.
    pub class: u32,
    /// Left, top, width, height in pixels.
    pub bounds: [f64; 4],
    /// Of what was found, the detector's confidence. Of what is labelled, 0 where the row is not to be judged.
    pub confidence: f64,
    /// Share of the object that can be seen, 0 to 1; labelled rows only.
    pub visibility: f64,
}

/// The rows of one video: no id is twice in a frame as the same class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sequence {
    rows: Vec<Row>,
}

/// An id that is twice in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedId {
    /// Index of the second of the two rows.
    pub row: usize,
    /// The frame.
    pub frame: u32,
    /// The id.
    pub id: u64,
}

impl fmt::Display for RepeatedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "id {} is twice in frame {}", self.id, self.frame)
    }
}

impl std::error::Error for RepeatedId {}

impl Sequence {
    /// Takes `rows` in any order.
    pub fn new(rows: Vec<Row>) -> Result<Self, RepeatedId> {
        let mut seen = std::collections::HashSet::with_capacity(rows.len());
        let again = rows.iter().position(|row| !seen.insert((row.frame, row.class, row.id)));
        match again {
            Some(index) => Err(RepeatedId { row: index, frame: rows[index].frame, id: rows[index].id }),
            None => Ok(Self { rows }),
        }
    }

    /// Its rows, in the order in which they were given.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows of the frames up to `last`.
    pub fn until(&self, last: u32) -> Self {
        Self { rows: self.rows.iter().filter(|row| row.frame <= last).copied().collect() }
    }
}

/// Every figure of one sequence or, added up, of several. Adding sums the counts, so that a long sequence weighs more
/// than a short one, as TrackEval's `COMBINED_SEQ` does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Detection and association weighed alike.
    pub hota: Hota,
    /// Misses, strays and switches.
    pub clear: Clear,
    /// How long the right id was kept.
    pub identity: Identity,
    /// How many objects there were.
    pub objects: ObjectCounts,
}

/// How many objects were labelled, and how many were found: one for each id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Labelled ones.
    pub labelled: u64,
    /// Found ones.
    pub found: u64,
}

impl AddAssign<&Report> for Report {
    fn add_assign(&mut self, other: &Report) {
        self.hota += &other.hota;
        self.clear += &other.clear;
        self.identity += &other.identity;
        self.objects.labelled += other.objects.labelled;
        self.objects.found += other.objects.found;
    }
}

/// Judges what was `found` in one video by its `truth`. Labelled rows of confidence 0 are left out, as MOTChallenge
/// demands; what was found on them is a stray. What else the challenge leaves out is for [`Rules`].
pub fn evaluate(truth: &Sequence, found: &Sequence) -> Report {
    let mut classes: BTreeMap<u32, (Vec<&Row>, Vec<&Row>)> = BTreeMap::new();
    for row in truth.rows.iter().filter(|row| row.confidence != 0.0) {
        classes.entry(row.class).or_default().0.push(row);
    }
    for row in &found.rows {
        classes.entry(row.class).or_default().1.push(row);
    }
    let mut report = Report::default();
    for (truth, found) in classes.values() {
        let video = Video::of(truth, found);
        report += &Report {
            hota: hota::evaluate(&video),
            clear: clear::evaluate(&video),
            identity: identity::evaluate(&video),
            objects: ObjectCounts {
                labelled: video.truth_frames.len() as u64,
                found: video.found_frames.len() as u64,
            },
        };
    }
    report
}

/// One class of one video, with ids as indices.
struct Video {
    frames: Vec<Frame>,
    /// In how many frames each labelled object is.
    truth_frames: Vec<u64>,
    /// In how many frames each found object is.
    found_frames: Vec<u64>,
}

#[derive(Default)]
struct Frame {
    /// Indices of the labelled objects.
    truth: Vec<usize>,
    /// Indices of the found objects.
    found: Vec<usize>,
    /// Intersection over union: a row for each labelled object, a column for each found one.
    overlaps: Vec<f64>,
}

impl Frame {
    fn overlap(&self, row: usize, column: usize) -> f64 {
        self.overlaps[row * self.found.len() + column]
    }
}

impl Video {
    fn of(truth: &[&Row], found: &[&Row]) -> Self {
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
fn by_frame<'a>(
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
fn overlap(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    let along = |axis: usize| {
        let end = (a[axis] + a[axis + 2]).min(b[axis] + b[axis + 2]);
        (end - a[axis].max(b[axis])).max(0.0)
    };
    let shared = along(0) * along(1);
    let union = a[2] * a[3] + b[2] * b[3] - shared;
    if shared > 0.0 && union > 0.0 { shared / union } else { 0.0 }
}

/// `part / whole`; `None` of nothing.
fn share(part: f64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(frame: u32, id: u64, x: f64) -> Row {
        Row { frame, id, class: 1, bounds: [x, 0.0, 10.0, 10.0], confidence: 1.0, visibility: 1.0 }
    }

    fn judge(truth: &[Row], found: &[Row]) -> Report {
        let sequence = |rows: &[Row]| Sequence::new(rows.to_vec()).expect("ids are unique");
        evaluate(&sequence(truth), &sequence(found))
    }

    #[test]
    fn what_is_followed_perfectly_scores_one() {
        let rows: Vec<Row> = (1..5).flat_map(|frame| [row(frame, 1, 0.0), row(frame, 2, 50.0)]).collect();
        let report = judge(&rows, &rows);
        let figures = [report.hota.hota(), report.hota.loc_a()];
        assert!(figures.iter().all(|figure| (figure - 1.0).abs() < 1e-12), "{figures:?}");
        assert_eq!((report.clear.mota(), report.clear.motp()), (Some(1.0), Some(1.0)));
        assert_eq!(report.identity.idf1(), Some(1.0));
        assert_eq!((report.clear.switches, report.clear.mostly_tracked), (0, 2));
    }

    #[test]
    fn a_new_id_halfway_is_a_switch_and_halves_the_identity() {
        let truth: Vec<Row> = (1..=10).map(|frame| row(frame, 1, 0.0)).collect();
        let found: Vec<Row> = (1..=10).map(|frame| row(frame, 1 + u64::from(frame > 5), 0.0)).collect();
        let report = judge(&truth, &found);
        assert_eq!((report.clear.switches, report.clear.mota()), (1, Some(0.9)));
        assert_eq!(report.identity.idf1(), Some(0.5));
        // Each half is associated with 5 of 10 frames, and found without a mistake.
        assert!((report.hota.ass_a() - 0.5).abs() < 1e-12);
        assert!((report.hota.hota() - 0.5f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn classes_do_not_match_each_other() {
        let car = Row { class: 3, ..row(1, 1, 0.0) };
        let report = judge(&[row(1, 1, 0.0)], &[car]);
        assert_eq!((report.clear.misses, report.clear.strays, report.clear.hits), (1, 1, 0));
    }

    #[test]
    fn nothing_has_no_figures() {
        let report = judge(&[], &[]);
        assert_eq!((report.clear.mota(), report.clear.motp(), report.identity.idf1()), (None, None, None));
        assert_eq!(report.hota.hota(), 0.0);
        let ignored = Row { confidence: 0.0, ..row(1, 1, 0.0) };
        assert_eq!(judge(&[ignored], &[]).clear, Clear::default());
    }

    #[test]
    fn an_id_is_once_in_a_frame() {
        let twice = Sequence::new(vec![row(1, 1, 0.0), row(2, 7, 0.0), row(2, 7, 5.0)]);
        assert_eq!(twice, Err(RepeatedId { row: 2, frame: 2, id: 7 }));
    }
}
