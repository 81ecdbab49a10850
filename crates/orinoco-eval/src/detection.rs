//! Detection figures at one operating point: those of a deployment with a fixed score threshold.

use std::collections::BTreeMap;

use crate::Confusion;
use crate::coco::{Boxes, FoundBox, Truth};

/// Operating point at which detections are evaluated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Score threshold: detections below it do not count.
    pub score: f64,
    /// IoU threshold: boxes that overlap less do not match.
    pub iou: f64,
}

/// Detection figures at one operating point.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Recall: the share of labelled objects that were found, with any class; `None` without objects.
    pub recall: Option<f64>,
    /// Precision: the share of detections that match an object of their class; `None` without detections.
    pub precision: Option<f64>,
    /// Labelled objects, without crowds.
    pub objects: u64,
    /// Detections at or above the threshold.
    pub detections: u64,
    /// Confusion matrix. The last row is for detections where nothing is labelled, the last column for objects that
    /// were not found.
    pub confusion: Confusion,
}

/// Evaluates the boxes `found` of `classes` classes at `point`. Boxes are matched greedily, the largest overlap first,
/// and across classes, so that a car found as a truck is counted as that.
pub fn evaluate(truth: &[Truth], found: &[FoundBox], classes: usize, point: Point) -> Report {
    let mut images: BTreeMap<usize, Boxes<'_>> = BTreeMap::new();
    for truth in truth.iter().filter(|truth| !truth.crowd) {
        images.entry(truth.image).or_default().0.push(truth);
    }
    for found in found.iter().filter(|found| found.score >= point.score) {
        images.entry(found.image).or_default().1.push(found);
    }
    let mut confusion = Confusion::new(classes + 1);
    let (mut seen, mut right, mut objects, mut detections) = (0, 0, 0, 0);
    for (truth, found) in images.values() {
        let pairs = pairs(truth, found, point.iou);
        for (labelled, what) in &pairs {
            confusion.count(truth[*labelled].class, found[*what].class);
            right += u64::from(truth[*labelled].class == found[*what].class);
        }
        let missed = (0..truth.len()).filter(|index| !pairs.iter().any(|(labelled, _)| labelled == index));
        missed.for_each(|index| confusion.count(truth[index].class, classes));
        let stray = (0..found.len()).filter(|index| !pairs.iter().any(|(_, what)| what == index));
        stray.for_each(|index| confusion.count(classes, found[index].class));
        seen += pairs.len() as u64;
        objects += truth.len() as u64;
        detections += found.len() as u64;
    }
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    Report {
        recall: share(seen, objects),
        precision: share(right, detections),
        objects,
        detections,
        confusion,
    }
}

/// Returns the matches as indices of labelled and detected boxes. A box is in at most one match.
fn pairs(truth: &[&Truth], found: &[&FoundBox], iou_min: f64) -> Vec<(usize, usize)> {
    let mut close: Vec<(f64, usize, usize)> = Vec::new();
    for (labelled, truth) in truth.iter().enumerate() {
        for (what, found) in found.iter().enumerate() {
            let overlap = crate::coco::overlap(found, truth);
            if overlap >= iou_min {
                close.push((overlap, labelled, what));
            }
        }
    }
    // Among equal overlaps, a match of the same class comes first.
    let wrong = |pair: &(f64, usize, usize)| truth[pair.1].class != found[pair.2].class;
    close.sort_by(|a, b| b.0.total_cmp(&a.0).then(wrong(a).cmp(&wrong(b))));
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (_, labelled, what) in close {
        if !pairs.iter().any(|(other, another)| *other == labelled || *another == what) {
            pairs.push((labelled, what));
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_strays_and_mistakes_are_told_apart() {
        let bounds = |x: f64| [x, 0.0, 10.0, 10.0];
        let truth = |class, x| Truth { image: 0, class, bounds: bounds(x), area: 100.0, crowd: false };
        let found = |class, x, score| FoundBox { image: 0, class, score, bounds: bounds(x) };
        let labelled = [truth(0, 0.0), truth(0, 50.0), truth(1, 100.0)];
        let seen = [
            found(0, 1.0, 0.9),
            found(1, 101.0, 0.9),
            found(0, 101.0, 0.8),
            found(1, 50.0, 0.1),
            found(1, 200.0, 0.5),
        ];
        let report = evaluate(&labelled, &seen, 2, Point { score: 0.25, iou: 0.5 });
        assert_eq!((report.objects, report.detections), (3, 4));
        assert_eq!((report.recall, report.precision), (Some(2.0 / 3.0), Some(0.5)));
        let at = |row, column| report.confusion.at(row, column);
        assert_eq!((at(0, 0), at(0, 2), at(1, 1), at(2, 0), at(2, 1)), (1, 1, 1, 1, 1));
    }
}
