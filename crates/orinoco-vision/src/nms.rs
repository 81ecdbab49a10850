use orinoco_core::Detection;

/// Greedy non-maximum suppression: a box survives unless a better one overlaps it by more than `iou_max`, of its class
/// or, when `across` classes, of any. Leaves `found` best first, at most `keep_max`; ties keep their order. Does not
/// allocate.
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

/// Whether boxes of different classes may hide one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Across {
    /// Each class on its own.
    #[default]
    NoClasses,
    /// All classes as one.
    AllClasses,
}

/// As [`suppress`], with `hides(better, candidate)` in place of the overlap of upright boxes.
pub(crate) fn suppress_by<T: AsRef<Detection> + Copy>(
    found: &mut Vec<T>,
    keep_max: usize,
    across: Across,
    hides: impl Fn(&T, &T) -> bool,
) {
    sort_by_score(found);
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

/// Best first. A stable sort would allocate; candidates come in raster order, so ties are broken by place instead.
pub(crate) fn sort_by_score<T: AsRef<Detection>>(found: &mut [T]) {
    found.sort_unstable_by(|a, b| {
        let (a, b) = (a.as_ref(), b.as_ref());
        let place = |d: &Detection| (d.class_id, d.bounds.y1, d.bounds.x1);
        let (pa, pb) = (place(a), place(b));
        b.score
            .total_cmp(&a.score)
            .then(pa.0.cmp(&pb.0))
            .then(pa.1.total_cmp(&pb.1))
            .then(pa.2.total_cmp(&pb.2))
    });
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
}
