//! Tracking accuracy: HOTA, CLEAR MOT and the identity measures, over boxes with track ids.
//!
//! The figures are those of TrackEval, which the MOTChallenge uses; `tests/mot` compares them with it and with
//! py-motmetrics. Each class is evaluated by itself and the counts are summed ("detection averaged" in TrackEval's
//! words). [`Rules`] removes the rows that the challenge leaves out; [`Folder`] is a sequence on disk.

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

/// IoU threshold of CLEAR MOT and the identity measures: boxes that overlap less do not match.
pub const IOU_MIN: f64 = 0.5;

/// Box of one object in one frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Number of the frame; MOTChallenge counts from 1.
    pub frame: u32,
    /// Id of the object, the same in every frame.
    pub id: u64,
    /// Class of the object.
    pub class: u32,
    /// Left, top, width and height in pixels.
    pub bounds: [f64; 4],
    /// Confidence of the detector in a tracker's row. In a labelled row, 0 if the row is not to be evaluated.
    pub confidence: f64,
    /// Share of the object that is visible, 0 to 1; labelled rows only.
    pub visibility: f64,
}

/// Rows of one video. No id occurs twice in a frame for one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sequence {
    rows: Vec<Row>,
}

/// Error: an id occurs twice in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedId {
    /// Index of the second of the two rows.
    pub row: usize,
    /// Number of the frame.
    pub frame: u32,
    /// Repeated id.
    pub id: u64,
}

impl fmt::Display for RepeatedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "id {} is twice in frame {}", self.id, self.frame)
    }
}

impl std::error::Error for RepeatedId {}

impl Sequence {
    /// Creates a sequence of `rows` in any order.
    pub fn new(rows: Vec<Row>) -> Result<Self, RepeatedId> {
        let mut seen = std::collections::HashSet::with_capacity(rows.len());
        let again = rows.iter().position(|row| !seen.insert((row.frame, row.class, row.id)));
        match again {
            Some(index) => Err(RepeatedId { row: index, frame: rows[index].frame, id: rows[index].id }),
            None => Ok(Self { rows }),
        }
    }

    /// Returns the rows in the order in which they were given.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the rows of the frames up to `last`.
    pub fn until(&self, last: u32) -> Self {
        Self { rows: self.rows.iter().filter(|row| row.frame <= last).copied().collect() }
    }
}

/// All tracking figures of one sequence or, summed up, of several. Adding sums the counts, so a long sequence weighs
/// more than a short one, as in TrackEval's `COMBINED_SEQ`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// HOTA, which weighs detection and association equally.
    pub hota: Hota,
    /// CLEAR MOT: misses, false positives and identity switches.
    pub clear: Clear,
    /// Identity measures: for how long each object kept the correct id.
    pub identity: Identity,
    /// Number of objects.
    pub objects: ObjectCounts,
}

/// Number of labelled and of found objects: one for each id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Labelled objects.
    pub labelled: u64,
    /// Found objects.
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

/// Evaluates the tracks `found` in one video against its `truth`. Labelled rows of confidence 0 are left out, as
/// MOTChallenge requires; boxes found on them are false positives. [`Rules`] handles the other rows that the challenge
/// leaves out.
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

/// Rows of one class of one video, with ids as indices.
struct Video {
    frames: Vec<Frame>,
    /// Number of frames with each labelled object.
    truth_frames: Vec<u64>,
    /// Number of frames with each found object.
    found_frames: Vec<u64>,
}

#[derive(Default)]
struct Frame {
    /// Indices of the labelled objects.
    truth: Vec<usize>,
    /// Indices of the found objects.
    found: Vec<usize>,
    /// Intersection over union, with a row for each labelled object and a column for each found one.
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

/// Groups the labelled and the found rows by frame.
fn by_frame<'a>(
    truth: impl Iterator<Item = &'a Row>,
    found: impl Iterator<Item = &'a Row>,
) -> BTreeMap<u32, (Vec<&'a Row>, Vec<&'a Row>)> {
    let mut frames: BTreeMap<u32, (Vec<&Row>, Vec<&Row>)> = BTreeMap::new();
    truth.for_each(|row| frames.entry(row.frame).or_default().0.push(row));
    found.for_each(|row| frames.entry(row.frame).or_default().1.push(row));
    frames
}

/// Maps ids to indices, in the order in which they appear, and counts the requests for each.
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

/// Returns the intersection over union of two boxes of left, top, width and height.
fn overlap(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    let along = |axis: usize| {
        let end = (a[axis] + a[axis + 2]).min(b[axis] + b[axis + 2]);
        (end - a[axis].max(b[axis])).max(0.0)
    };
    let shared = along(0) * along(1);
    let union = a[2] * a[3] + b[2] * b[3] - shared;
    if shared > 0.0 && union > 0.0 { shared / union } else { 0.0 }
}

/// Returns `part / whole`; `None` if `whole` is 0.
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
        // Each half is associated with 5 of 10 frames, and all detections are correct.
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
