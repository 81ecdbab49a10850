use orinoco_core::Detection;

/// Greedy non-maximum suppression, class by class: a box survives unless a better one of its class overlaps it by more
/// than `iou_max`. Leaves `found` best first, at most `keep_max`; ties keep their order. Does not allocate.
pub fn suppress(found: &mut Vec<Detection>, iou_max: f32, keep_max: usize) {
    // A stable sort would allocate; candidates come in raster order, so ties are broken by place instead.
    found.sort_unstable_by(|a, b| {
        let place = |d: &Detection| (d.class_id, d.bounds.y1, d.bounds.x1);
        let (pa, pb) = (place(a), place(b));
        b.score
            .total_cmp(&a.score)
            .then(pa.0.cmp(&pb.0))
            .then(pa.1.total_cmp(&pb.1))
            .then(pa.2.total_cmp(&pb.2))
    });
    let mut kept = 0;
    for next in 0..found.len() {
        if kept == keep_max {
            break;
        }
        let candidate = found[next];
        let hidden = found[..kept].iter().any(|better| {
            better.class_id == candidate.class_id && better.bounds.iou(&candidate.bounds) > iou_max
        });
        if !hidden {
            found[kept] = candidate;
            kept += 1;
        }
    }
    found.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_core::BoxF;

    fn at(x: f32, score: f32, class_id: u32) -> Detection {
        Detection { class_id, score, bounds: BoxF { x1: x, y1: 0.0, x2: x + 10.0, y2: 10.0 } }
    }

    fn check(mut found: Vec<Detection>, keep_max: usize, scores: &[f32]) {
        suppress(&mut found, 0.5, keep_max);
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
