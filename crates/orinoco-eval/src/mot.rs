//! Tracking accuracy: HOTA, CLEAR MOT and the identity measures, over boxes with track ids.
//!
//! The figures are those of TrackEval, which the MOTChallenge uses; `tests/mot` compares them with it and with
//! py-motmetrics. Each class is evaluated by itself and the counts are summed ("detection averaged" in TrackEval's
//! words). [`Rules`] removes the rows that the challenge leaves out; [`Folder`] is a sequence on disk.

mod clear;
mod errors;
mod folder;
mod hota;
mod identity;
mod matching;
mod rules;
mod sequence;
mod text;
mod video;

use std::collections::BTreeMap;
use std::ops::AddAssign;

use self::video::Video;

pub use clear::Clear;
pub use folder::Folder;
pub use hota::{ALPHAS, Hota, HotaAt, alpha};
pub use identity::Identity;
pub use rules::{PEDESTRIAN, Rules};
pub use sequence::{RepeatedId, Row, Sequence};
pub use video::IOU_MIN;

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
    for row in truth.rows().iter().filter(|row| row.confidence != 0.0) {
        classes.entry(row.class).or_default().0.push(row);
    }
    for row in found.rows() {
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
