//! Oriented boxes: boxes that are rotated about their centre.

use orinoco_core::{BoxF, Point};

use crate::Mapping;

/// Oriented box, in model pixels.
#[derive(Clone, Copy)]
pub(super) struct Oriented {
    /// Centre and size.
    place: [f32; 4],
    angle: f32,
    /// Variances along x and y, and the covariance, of the box as a Gaussian.
    covariance: (f64, f64, f64),
}

/// Returns the distance beyond which two boxes overlap by less than `iou_max` (ProbIoU), whatever their shape: the term
/// of the Bhattacharyya distance that comes from the centres alone, with a margin far above rounding errors.
pub(super) fn far_distance(iou_max: f32) -> f64 {
    let hellinger = 1.0 - f64::from(iou_max);
    // If boxes may not overlap at all, no distance is far enough; the logarithm covers that case.
    -(1.0 - hellinger * hellinger).max(f64::MIN_POSITIVE).ln() + 1e-3
}

impl Oriented {
    pub(super) fn new(place: [f32; 4], angle: f32) -> Self {
        let mut oriented = Self { place, angle, covariance: (0.0, 0.0, 0.0) };
        oriented.covariance = oriented.as_gaussian();
        oriented
    }

    pub(super) fn corners(&self, mapping: &Mapping) -> [Point; 4] {
        let [cx, cy, w, h] = self.place;
        let (sin, cos) = self.angle.sin_cos();
        [(-w, -h), (w, -h), (w, h), (-w, h)].map(|(dx, dy)| {
            let (dx, dy) = (dx / 2.0, dy / 2.0);
            mapping.point(cx + dx * cos - dy * sin, cy + dx * sin + dy * cos)
        })
    }

    /// Returns the upright box around it.
    pub(super) fn bounds(&self, mapping: &Mapping) -> BoxF {
        let corners = self.corners(mapping);
        let least = |of: fn(&Point) -> f32| corners.iter().map(of).fold(f32::INFINITY, f32::min);
        let most = |of: fn(&Point) -> f32| corners.iter().map(of).fold(f32::NEG_INFINITY, f32::max);
        BoxF { x1: least(|p| p.x), y1: least(|p| p.y), x2: most(|p| p.x), y2: most(|p| p.y) }
    }

    /// Whether the ProbIoU of two boxes is above `iou_max`. ProbIoU (Llerena et al. 2021) is one minus the Hellinger
    /// distance of the boxes as Gaussians; the trainers suppress oriented boxes by it.
    ///
    /// `far` is [`far_distance`] of `iou_max`; beyond it no logarithm is needed.
    #[inline]
    pub(super) fn overlaps(&self, other: &Self, iou_max: f32, far: f64) -> bool {
        const EPSILON: f64 = 1e-7;
        let (a, b) = (self.covariance, other.covariance);
        let [dx, dy] = [0, 1].map(|i| f64::from(self.place[i]) - f64::from(other.place[i]));
        let (xx, yy, xy) = (a.0 + b.0, a.1 + b.1, a.2 + b.2);
        let determinant = xx * yy - xy * xy + EPSILON;
        let distance = (xx * dy * dy + yy * dx * dx - 2.0 * xy * dx * dy) / determinant / 4.0;
        if distance > far {
            return false;
        }
        let sizes = [a, b].map(|(xx, yy, xy)| (xx * yy - xy * xy).max(0.0));
        let shape = (determinant / (4.0 * (sizes[0] * sizes[1]).sqrt() + EPSILON)).ln() / 2.0;
        let bhattacharyya = (distance + shape).clamp(EPSILON, 100.0);
        (1.0 - (1.0 - (-bhattacharyya).exp() + EPSILON).sqrt()) as f32 > iou_max
    }

    /// Returns the covariance of the box as a Gaussian: a uniform side has a variance of its square over 12.
    fn as_gaussian(&self) -> (f64, f64, f64) {
        let [w, h] = [2, 3].map(|i| f64::from(self.place[i]).powi(2) / 12.0);
        let (sin, cos) = f64::from(self.angle).sin_cos();
        (w * cos * cos + h * sin * sin, w * sin * sin + h * cos * cos, (w - h) * sin * cos)
    }
}
