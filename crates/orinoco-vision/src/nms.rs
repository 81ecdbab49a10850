use std::cmp::Ordering;

use orinoco_core::Detection;

/// Maximum number of candidates of one image that are compared with one another: the best ones, like Ultralytics'
/// `max_nms`. With the usual 300 detections that is at most 9 million comparisons: 30 ms of a server's core.
pub const CANDIDATES_MAX: usize = 30_000;

/// Applies greedy non-maximum suppression: a box is kept unless a better one overlaps it by more than `iou_max`, of its
/// class or, if `across` includes all classes, of any class. Sorts `found` best first and keeps at most `keep_max`;
/// ties keep their order. Only the best [`CANDIDATES_MAX`] take part. Does not allocate.
pub fn suppress<T: AsRef<Detection> + Copy>(
    found: &mut Vec<T>,
    iou_max: f32,
    keep_max: usize,
    across: Across,
) {
    suppress_by(found, keep_max, across, |better, candidate| {
        better.as_ref().bounds.iou(&candidate.as_ref().bounds) > iou_max
    });
}

/// Whether boxes of different classes suppress one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Across {
    /// Each class is suppressed by itself.
    #[default]
    NoClasses,
    /// All classes are suppressed together.
    AllClasses,
}

/// Suppresses as [`suppress`] does, with `hides(better, candidate)` in place of the overlap of upright boxes.
pub(crate) fn suppress_by<T: AsRef<Detection> + Copy>(
    found: &mut Vec<T>,
    keep_max: usize,
    across: Across,
    hides: impl Fn(&T, &T) -> bool,
) {
    keep_best(found, CANDIDATES_MAX);
    let mut kept = 0;
    for next in 0..found.len() {
        if kept == keep_max {
            break;
        }
        let candidate = found[next];
        let class_id = candidate.as_ref().class_id;
        let rivals = |better: &T| across == Across::AllClasses || better.as_ref().class_id == class_id;
        if !found[..kept].iter().any(|better| rivals(better) && hides(better, &candidate)) {
            found[kept] = candidate;
            kept += 1;
        }
    }
    found.truncate(kept);
}

/// Keeps the best `keep_max` boxes, best first.
pub(crate) fn keep_best<T: AsRef<Detection>>(found: &mut Vec<T>, keep_max: usize) {
    if found.len() > keep_max {
        found.select_nth_unstable_by(keep_max, best_first);
        found.truncate(keep_max);
    }
    found.sort_unstable_by(best_first);
}

/// Orders boxes best first. A stable sort would allocate; candidates come in raster order, so ties are broken by
/// position instead.
pub(crate) fn best_first<T: AsRef<Detection>>(a: &T, b: &T) -> Ordering {
    let (a, b) = (a.as_ref(), b.as_ref());
    let place = |d: &Detection| (d.class_id, d.bounds.y1, d.bounds.x1);
    let (pa, pb) = (place(a), place(b));
    b.score.total_cmp(&a.score).then(pa.0.cmp(&pb.0)).then(pa.1.total_cmp(&pb.1)).then(pa.2.total_cmp(&pb.2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_core::BoxF;

    fn at(x: f32, score: f32, class_id: u32) -> Detection {
        Detection { class_id, score, bounds: BoxF { x1: x, y1: 0.0, x2: x + 10.0, y2: 10.0 } }
    }

    fn check(mut found: Vec<Detection>, keep_max: usize, scores: &[f32]) {
        suppress(&mut found, 0.5, keep_max, Across::NoClasses);
        assert_eq!(found.iter().map(|d| d.score).collect::<Vec<_>>(), scores);
    }

    #[test]
    fn better_boxes_hide_worse_ones_of_their_class() {
        check(vec![at(0.0, 0.5, 0), at(1.0, 0.9, 0), at(20.0, 0.4, 0)], 10, &[0.9, 0.4]);
        check(vec![at(0.0, 0.5, 0), at(1.0, 0.9, 1)], 10, &[0.9, 0.5]);
        check(vec![at(0.0, 0.5, 0), at(20.0, 0.9, 0), at(40.0, 0.7, 0)], 2, &[0.9, 0.7]);
        check(vec![], 10, &[]);
    }

    #[test]
    fn only_the_best_candidates_are_compared() {
        // All but one have the same position; that one is apart from them, and has the lowest score.
        let with = |crowd: usize| {
            let mut found = vec![at(0.0, 0.5, 0); crowd];
            found.insert(crowd / 2, at(50.0, 0.4, 0));
            suppress(&mut found, 0.5, 10, Across::NoClasses);
            found.iter().map(|found| found.score).collect::<Vec<_>>()
        };
        assert_eq!(with(CANDIDATES_MAX - 1), [0.5, 0.4]);
        assert_eq!(with(CANDIDATES_MAX), [0.5]);
    }
}
