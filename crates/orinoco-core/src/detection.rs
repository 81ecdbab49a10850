/// Bounding box by its corners, in source pixels: `x1 <= x2`, `y1 <= y2`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BoxF {
    /// Left edge.
    pub x1: f32,
    /// Top edge.
    pub y1: f32,
    /// Right edge.
    pub x2: f32,
    /// Bottom edge.
    pub y2: f32,
}

impl BoxF {
    /// Returns the area in square pixels; zero for an empty or inverted box.
    pub fn area(&self) -> f32 {
        (self.x2 - self.x1).max(0.0) * (self.y2 - self.y1).max(0.0)
    }

    /// Whether every coordinate is a finite number.
    pub fn is_finite(&self) -> bool {
        [self.x1, self.y1, self.x2, self.y2].iter().all(|coordinate| coordinate.is_finite())
    }

    /// Returns the intersection over union with `other`, 0 to 1; 0 when either box is empty.
    pub fn iou(&self, other: &BoxF) -> f32 {
        let overlap = BoxF {
            x1: self.x1.max(other.x1),
            y1: self.y1.max(other.y1),
            x2: self.x2.min(other.x2),
            y2: self.y2.min(other.y2),
        }
        .area();
        let union = self.area() + other.area() - overlap;
        if !union.is_finite() {
            return self.iou_of_huge(other);
        }
        if union > 0.0 { overlap / union } else { 0.0 }
    }

    /// Computes [`BoxF::iou`] in double precision, for boxes whose area single precision cannot hold: sides of more
    /// than 1e19 pixels.
    #[cold]
    fn iou_of_huge(&self, other: &BoxF) -> f32 {
        let area = |x1: f32, y1: f32, x2: f32, y2: f32| {
            (f64::from(x2) - f64::from(x1)).max(0.0) * (f64::from(y2) - f64::from(y1)).max(0.0)
        };
        let overlap =
            area(self.x1.max(other.x1), self.y1.max(other.y1), self.x2.min(other.x2), self.y2.min(other.y2));
        let whole = [self, other].map(|b| area(b.x1, b.y1, b.x2, b.y2));
        let union = whole[0] + whole[1] - overlap;
        if union > 0.0 { (overlap / union) as f32 } else { 0.0 }
    }
}

/// Track id: identifies one object as long as its stream runs. A tracker never assigns an id twice; the first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TrackId(pub u64);

impl core::fmt::Display for TrackId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One object that a model found.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Detection {
    /// Index into the model's labels.
    pub class_id: u32,
    /// Confidence, 0 to 1.
    pub score: f32,
    /// Bounding box in source pixels.
    pub bounds: BoxF,
}

impl Detection {
    /// Whether the score and the box are finite numbers.
    pub fn is_finite(&self) -> bool {
        self.score.is_finite() && self.bounds.is_finite()
    }
}

impl AsRef<Self> for Detection {
    fn as_ref(&self) -> &Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iou_of_known_boxes() {
        let unit = BoxF { x1: 0.0, y1: 0.0, x2: 2.0, y2: 2.0 };
        let shifted = BoxF { x1: 1.0, y1: 0.0, x2: 3.0, y2: 2.0 };
        assert!((unit.iou(&shifted) - 1.0 / 3.0).abs() < 1e-6);
        assert_eq!(unit.iou(&BoxF::default()), 0.0);
        assert_eq!(unit.iou(&unit), 1.0);
    }

    #[test]
    fn huge_boxes_overlap_as_small_ones_do() {
        let at = |x: f32, side: f32| BoxF { x1: x, y1: 0.0, x2: x + side, y2: side };
        for side in [1e10, 1e19, 1e25, 1e30, 1e38] {
            assert_eq!(at(0.0, side).iou(&at(0.0, side)), 1.0, "{side}");
            let shifted = at(0.0, side).iou(&at(side / 2.0, side));
            assert!((shifted - 1.0 / 3.0).abs() < 1e-6, "{side}: {shifted}");
            assert!(at(0.0, side).iou(&at(0.0, 10.0)) < 1e-6, "{side}");
        }
        let infinite = BoxF { x1: f32::NEG_INFINITY, y1: 0.0, x2: f32::INFINITY, y2: 1.0 };
        assert!(!infinite.is_finite() && infinite.iou(&infinite) <= 1.0);
    }
}
