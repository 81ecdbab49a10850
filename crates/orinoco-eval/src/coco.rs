//! Average precision and recall of boxes, computed as COCO's own evaluator does (`pycocotools`, `COCOeval` with
//! `iouType = "bbox"`), down to rounding: thresholds, order of ties, crowds and the areas' edges included.

use std::collections::BTreeMap;

/// Number of IoU thresholds: 0.50, 0.55, .. 0.95.
pub const IOU_THRESHOLDS: usize = 10;
/// Number of recalls at which precision is read: 0.00, 0.01, .. 1.00.
pub const RECALL_POINTS: usize = 101;
/// Limits on the detections of a class and image that count.
const DETECTIONS_MAX: [usize; 3] = [1, 10, 100];
/// Ranges of areas in square pixels: all, small, medium, large. Both edges belong to a range.
const AREAS: [(f64, f64); 4] = [(0.0, 1e10), (0.0, 1024.0), (1024.0, 9216.0), (9216.0, 1e10)];
/// Value that `numpy.spacing(1)` returns, which COCO's evaluator adds to denominators.
const SPACING: f64 = f64::EPSILON;

/// Labelled box (ground truth).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// Index of the image.
    pub image: usize,
    /// Index of the class.
    pub class: usize,
    /// Left, top, width and height in pixels.
    pub bounds: [f64; 4],
    /// Area of the object in square pixels, which may be smaller than the box's.
    pub area: f64,
    /// Whether the box stands for a crowd: detections inside it count neither for nor against the model.
    pub crowd: bool,
}

/// Detected box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FoundBox {
    /// Index of the image.
    pub image: usize,
    /// Index of the class.
    pub class: usize,
    /// Confidence, 0 to 1.
    pub score: f64,
    /// Left, top, width and height in pixels.
    pub bounds: [f64; 4],
}

/// Detection figures of a dataset. A mean over nothing is `None`, where COCO prints -1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Average precision: the mean over all IoU thresholds.
    pub ap: Option<f64>,
    /// Average precision at IoU 0.5.
    pub ap50: Option<f64>,
    /// Average precision at IoU 0.75.
    pub ap75: Option<f64>,
    /// Average precision of small, medium and large objects.
    pub ap_by_area: [Option<f64>; 3],
    /// Average recall with at most 1, 10 and 100 detections in an image.
    pub recall: [Option<f64>; 3],
    /// Average recall of small, medium and large objects.
    pub recall_by_area: [Option<f64>; 3],
    /// Figures of each class.
    pub classes: Vec<ClassReport>,
}

/// Detection figures of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassReport {
    /// Labelled objects, without crowds.
    pub objects: usize,
    /// Average precision: the mean over all IoU thresholds; `None` without objects.
    pub ap: Option<f64>,
    /// Average precision at IoU 0.5; `None` without objects.
    pub ap50: Option<f64>,
    /// Precision at IoU 0.5 for recalls of 0.00, 0.01, .. 1.00; empty without objects.
    pub precision: Vec<f64>,
}

/// Evaluates the boxes `found` against the labelled ones of `classes` classes.
pub fn evaluate(truth: &[Truth], found: &[FoundBox], classes: usize) -> Report {
    let mut pairs: BTreeMap<(usize, usize), Boxes<'_>> = BTreeMap::new();
    for truth in truth {
        pairs.entry((truth.class, truth.image)).or_default().0.push(truth);
    }
    for found in found {
        pairs.entry((found.class, found.image)).or_default().1.push(found);
    }
    let mut curves = vec![ClassCurves::default(); classes];
    for (class, curves) in curves.iter_mut().enumerate() {
        let images = pairs.range((class, 0)..=(class, usize::MAX)).map(|(_, pair)| pair);
        let images: Vec<Image<'_>> = images.map(|(truth, found)| Image::new(truth, found)).collect();
        for (area, range) in AREAS.iter().enumerate() {
            let matched: Vec<MatchedBoxes> = images.iter().map(|image| image.match_within(*range)).collect();
            for (limit, max) in DETECTIONS_MAX.iter().enumerate() {
                curves[area][limit] = accumulate(&matched, *max);
            }
        }
    }
    summarise(&curves)
}

/// Labelled and detected boxes of one class in one image.
pub(crate) type Boxes<'a> = (Vec<&'a Truth>, Vec<&'a FoundBox>);

/// Curves for each range of areas and each limit of detections; `None` without objects.
type ClassCurves = [[Option<Curve>; 3]; 4];

/// Precision at each recall, and the highest recall, for each IoU threshold.
#[derive(Clone, Debug)]
struct Curve {
    precision: Vec<[f64; RECALL_POINTS]>,
    recall: [f64; IOU_THRESHOLDS],
    objects: usize,
}

/// Boxes of one class in one image.
struct Image<'a> {
    truth: Vec<&'a Truth>,
    /// Detections, best first, at most as many as count.
    found: Vec<&'a FoundBox>,
    /// IoU of each detected box with each labelled one.
    overlaps: Vec<Vec<f64>>,
}

/// Matches of one image's boxes at each threshold.
struct MatchedBoxes {
    scores: Vec<f64>,
    /// Verdicts by threshold and detection.
    hits: Vec<Vec<Verdict>>,
    /// Number of labelled boxes that count.
    objects: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Hit,
    Miss,
    /// Neither: the detection lies on a crowd, or is outside of the range of areas.
    Ignored,
}

impl<'a> Image<'a> {
    fn new(truth: &[&'a Truth], found: &[&'a FoundBox]) -> Self {
        let mut found = found.to_vec();
        // Stable like numpy's mergesort, so ties keep their order.
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        found.truncate(DETECTIONS_MAX[2]);
        let overlap = |found: &&FoundBox| truth.iter().map(|truth| overlap(found, truth)).collect();
        let overlaps = found.iter().map(overlap).collect();
        Self { truth: truth.to_vec(), found, overlaps }
    }

    fn match_within(&self, (least, most): (f64, f64)) -> MatchedBoxes {
        let outside = |area: f64| area < least || area > most;
        let ignored = |truth: &Truth| truth.crowd || outside(truth.area);
        // Boxes that count come first; otherwise the order is kept.
        let mut order: Vec<usize> = (0..self.truth.len()).collect();
        order.sort_by_key(|index| ignored(self.truth[*index]));
        let hits = (0..IOU_THRESHOLDS).map(|threshold| {
            let mut taken = vec![false; self.truth.len()];
            let verdict = |(found, overlaps): (&&FoundBox, &Vec<f64>)| match self.best_match(
                &order,
                &taken,
                overlaps,
                iou_threshold(threshold),
                &ignored,
            ) {
                Some(index) => {
                    taken[index] = true;
                    if ignored(self.truth[index]) { Verdict::Ignored } else { Verdict::Hit }
                }
                None if outside(found.bounds[2] * found.bounds[3]) => Verdict::Ignored,
                None => Verdict::Miss,
            };
            self.found.iter().zip(&self.overlaps).map(verdict).collect()
        });
        MatchedBoxes {
            hits: hits.collect(),
            scores: self.found.iter().map(|found| found.score).collect(),
            objects: self.truth.iter().filter(|truth| !ignored(truth)).count(),
        }
    }

    /// Returns the free labelled box that a detection overlaps most. A box that counts precedes one that does not.
    fn best_match(
        &self,
        order: &[usize],
        taken: &[bool],
        overlaps: &[f64],
        threshold: f64,
        ignored: &impl Fn(&Truth) -> bool,
    ) -> Option<usize> {
        let mut least = threshold.min(1.0 - 1e-10);
        let mut best: Option<usize> = None;
        for &index in order {
            if taken[index] && !self.truth[index].crowd {
                continue;
            }
            // The remaining boxes do not count, and a match that counts has been found.
            if best.is_some_and(|best| !ignored(self.truth[best])) && ignored(self.truth[index]) {
                break;
            }
            if overlaps[index] >= least {
                least = overlaps[index];
                best = Some(index);
            }
        }
        best
    }
}

/// Returns a threshold as `numpy.linspace(0.5, 0.95, 10)` computes it.
fn iou_threshold(index: usize) -> f64 {
    index as f64 * ((0.95 - 0.5) / 9.0) + 0.5
}

/// Returns the intersection over union; over the detected box alone where the labelled one is a crowd.
pub(crate) fn overlap(found: &FoundBox, truth: &Truth) -> f64 {
    let along = |axis: usize| {
        let end =
            (found.bounds[axis] + found.bounds[axis + 2]).min(truth.bounds[axis] + truth.bounds[axis + 2]);
        end - found.bounds[axis].max(truth.bounds[axis])
    };
    let (w, h) = (along(0), along(1));
    if w <= 0.0 || h <= 0.0 {
        return 0.0;
    }
    let area = |bounds: &[f64; 4]| bounds[2] * bounds[3];
    let (shared, own) = (w * h, area(&found.bounds));
    let union = if truth.crowd { own } else { own + area(&truth.bounds) - shared };
    shared / union
}

fn accumulate(images: &[MatchedBoxes], max: usize) -> Option<Curve> {
    let objects: usize = images.iter().map(|image| image.objects).sum();
    if objects == 0 {
        return None;
    }
    let mut ranked: Vec<(f64, usize, usize)> = Vec::new();
    for (image, matched) in images.iter().enumerate() {
        ranked
            .extend(matched.scores.iter().take(max).enumerate().map(|(found, score)| (*score, image, found)));
    }
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut curve = Curve { precision: Vec::new(), recall: [0.0; IOU_THRESHOLDS], objects };
    for threshold in 0..IOU_THRESHOLDS {
        let verdicts = ranked.iter().map(|(_, image, found)| images[*image].hits[threshold][*found]);
        let (recalls, precisions) = recall_and_precision(verdicts, objects);
        curve.recall[threshold] = recalls.last().copied().unwrap_or(0.0);
        let mut read = [0.0; RECALL_POINTS];
        for (point, value) in read.iter_mut().enumerate() {
            let wanted = point as f64 * 0.01;
            let reached = recalls.partition_point(|recall| *recall < wanted);
            *value = precisions.get(reached).copied().unwrap_or(0.0);
        }
        curve.precision.push(read);
    }
    Some(curve)
}

/// Returns the recall after each detection, and the best precision at that recall or a higher one.
fn recall_and_precision(verdicts: impl Iterator<Item = Verdict>, objects: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut hits, mut misses) = (0.0, 0.0);
    let (mut recalls, mut precisions) = (Vec::new(), Vec::new());
    for verdict in verdicts {
        match verdict {
            Verdict::Hit => hits += 1.0,
            Verdict::Miss => misses += 1.0,
            Verdict::Ignored => {}
        }
        recalls.push(hits / objects as f64);
        precisions.push(hits / (misses + hits + SPACING));
    }
    for index in (1..precisions.len()).rev() {
        if precisions[index] > precisions[index - 1] {
            precisions[index - 1] = precisions[index];
        }
    }
    (recalls, precisions)
}

fn summarise(classes: &[ClassCurves]) -> Report {
    let curves =
        |area: usize, limit: usize| classes.iter().filter_map(move |class| class[area][limit].as_ref());
    let ap = |area: usize, thresholds: std::ops::Range<usize>| {
        mean(curves(area, 2).flat_map(|curve| curve.precision[thresholds.clone()].iter().flatten().copied()))
    };
    let recall = |area: usize, limit: usize| mean(curves(area, limit).flat_map(|curve| curve.recall));
    Report {
        ap: ap(0, 0..IOU_THRESHOLDS),
        ap50: ap(0, 0..1),
        ap75: ap(0, 5..6),
        ap_by_area: [1, 2, 3].map(|area| ap(area, 0..IOU_THRESHOLDS)),
        recall: [0, 1, 2].map(|limit| recall(0, limit)),
        recall_by_area: [1, 2, 3].map(|area| recall(area, 2)),
        classes: classes.iter().map(|class| summarise_class(class[0][2].as_ref())).collect(),
    }
}

fn summarise_class(curve: Option<&Curve>) -> ClassReport {
    let Some(curve) = curve else { return ClassReport::default() };
    ClassReport {
        objects: curve.objects,
        ap: mean(curve.precision.iter().flatten().copied()),
        ap50: mean(curve.precision[0].iter().copied()),
        precision: curve.precision[0].to_vec(),
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u64), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(class: usize, x: f64, crowd: bool) -> Truth {
        Truth { image: 0, class, bounds: [x, 0.0, 10.0, 10.0], area: 100.0, crowd }
    }

    fn found(class: usize, x: f64, score: f64) -> FoundBox {
        FoundBox { image: 0, class, score, bounds: [x, 0.0, 10.0, 10.0] }
    }

    fn ap50(truth: &[Truth], found: &[FoundBox]) -> Option<f64> {
        evaluate(truth, found, 2).ap50
    }

    #[test]
    fn known_precisions() {
        assert_eq!(ap50(&[], &[found(0, 0.0, 0.9)]), None);
        assert_eq!(ap50(&[truth(0, 0.0, false)], &[]), Some(0.0));
        let close =
            |seen: Option<f64>, exact: f64| assert!((seen.unwrap() - exact).abs() < 1e-12, "{seen:?}");
        close(ap50(&[truth(0, 0.0, false)], &[found(0, 0.0, 0.9)]), 1.0);
        // One of two objects is found: precision is 1 up to a recall of 0.5, which 51 of the 101 points do not exceed.
        close(ap50(&[truth(0, 0.0, false), truth(0, 50.0, false)], &[found(0, 0.0, 0.9)]), 51.0 / 101.0);
        // A false positive with a higher score halves the precision.
        close(ap50(&[truth(0, 0.0, false)], &[found(0, 50.0, 0.9), found(0, 0.0, 0.8)]), 0.5);
        // The second box on one object is a false positive, but costs nothing after the recall is reached.
        close(ap50(&[truth(0, 0.0, false)], &[found(0, 0.0, 0.9), found(0, 1.0, 0.8)]), 1.0);
        // A detection on a crowd does not count.
        let crowd = [truth(0, 0.0, false), truth(0, 50.0, true)];
        close(ap50(&crowd, &[found(0, 50.0, 0.9), found(0, 52.0, 0.85), found(0, 0.0, 0.8)]), 1.0);
    }

    #[test]
    fn classes_without_objects_are_left_out_of_the_mean() {
        let report = evaluate(&[truth(0, 0.0, false)], &[found(0, 0.0, 0.9), found(1, 0.0, 0.9)], 2);
        assert_eq!(report.classes[1].ap, None);
        assert!(report.ap.is_some_and(|ap| (ap - 1.0).abs() < 1e-12));
        assert_eq!(report.ap_by_area[2], None);
    }
}
