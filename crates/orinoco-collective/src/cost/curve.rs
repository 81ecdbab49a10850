/// A time in seconds as a function of bytes, made of straight pieces between measured points.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// By bytes, at least one.
    points: Vec<(f64, f64)>,
    /// Seconds per byte after the last point.
    slope: f64,
}

impl Curve {
    /// Creates the line `start + slope * bytes`.
    pub fn line(start: f64, slope: f64) -> Self {
        Self { points: vec![(0.0, start)], slope }
    }

    /// Creates a curve through measured points (bytes, seconds). Below the first point it is constant, above the last it goes
    /// on as between the last two.
    ///
    /// # Panics
    /// If there are fewer than two points, or if their bytes do not increase.
    pub fn through(points: &[(f64, f64)]) -> Self {
        assert!(points.len() >= 2, "a curve has two points or more");
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0), "points are in order");
        let [.., (from, low), (to, high)] = points else { unreachable!("two points or more") };
        // Noise must not make large messages free.
        let slope = ((high - low) / (to - from)).max(0.0);
        Self { points: points.to_vec(), slope }
    }

    /// Seconds for that many bytes.
    pub fn at(&self, bytes: usize) -> f64 {
        let bytes = bytes as f64;
        let above = self.points.partition_point(|(from, _)| *from <= bytes);
        match (above.checked_sub(1).map(|below| self.points[below]), self.points.get(above)) {
            (None, Some((_, seconds))) => *seconds,
            (Some((from, low)), Some((to, high))) => low + (high - low) * (bytes - from) / (to - from),
            (Some((from, low)), None) => low + self.slope * (bytes - from),
            (None, None) => unreachable!("a curve has one point or more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Curve;

    #[test]
    fn a_curve_goes_through_its_points_and_beyond() {
        let curve = Curve::through(&[(8.0, 1.0), (16.0, 2.0), (32.0, 6.0)]);
        let at: Vec<f64> = [0, 8, 12, 16, 24, 32, 64].into_iter().map(|bytes| curve.at(bytes)).collect();
        assert_eq!(at, [1.0, 1.0, 1.5, 2.0, 4.0, 6.0, 14.0]);
        assert_eq!(Curve::line(3.0, 0.5).at(4), 5.0);
    }
}
