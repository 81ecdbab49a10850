use orinoco_core::BoxF;

/// Deviation of a measured coordinate, as a share of the box's side: 1/20, as in DeepSORT and ByteTrack.
const PLACE_SHARE: f64 = 1.0 / 20.0;
/// Deviation of the change of a speed between frames, as a share of the box's side: 1/160, from the same sources.
const SPEED_SHARE: f64 = 1.0 / 160.0;
/// Frame rate of the pedestrian videos to which those shares apply; here they are converted to seconds.
const FRAMES_PER_SECOND: f64 = 30.0;
/// Minimum side for uncertainties, in pixels: smaller boxes are as uncertain as a box of this side, because coordinates
/// are not more accurate than that.
const SIDE_UNCERTAIN_MIN: f64 = 1.0;
/// Minimum predicted side, in pixels, so that a shrinking box remains one.
const SIDE_MIN: f64 = 0.1;

/// Position and velocity of a box: a Kalman filter with constant velocity over its centre and its sides. The noise of
/// the coordinates is independent, so the filter of eight states is four of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Motion {
    x: Axis,
    y: Axis,
    width: Axis,
    height: Axis,
}

impl Motion {
    pub(super) fn at(bounds: &BoxF) -> Self {
        let [x, y, width, height] = centre_and_sides(bounds);
        Self {
            x: Axis::new(x, width),
            y: Axis::new(y, height),
            width: Axis::new(width, width),
            height: Axis::new(height, height),
        }
    }

    /// Predicts the box after `seconds`. The sides of a `hidden` object stay: it was often half covered when last
    /// detected, and its box would shrink to nothing.
    pub(super) fn predict(&mut self, seconds: f64, hidden: bool) {
        let (width, height) = (self.width.at, self.height.at);
        if hidden {
            self.width.speed = 0.0;
            self.height.speed = 0.0;
        }
        self.x.predict(seconds, width);
        self.y.predict(seconds, height);
        self.width.predict(seconds, width);
        self.height.predict(seconds, height);
        self.width.at = self.width.at.max(SIDE_MIN);
        self.height.at = self.height.at.max(SIDE_MIN);
    }

    /// Corrects the filter with a measured box.
    pub(super) fn correct(&mut self, bounds: &BoxF) {
        let [x, y, width, height] = centre_and_sides(bounds);
        self.x.correct(x, width);
        self.y.correct(y, height);
        self.width.correct(width, width);
        self.height.correct(height, height);
    }

    pub(super) fn bounds(&self) -> BoxF {
        let (half_width, half_height) = (self.width.at / 2.0, self.height.at / 2.0);
        BoxF {
            x1: (self.x.at - half_width) as f32,
            y1: (self.y.at - half_height) as f32,
            x2: (self.x.at + half_width) as f32,
            y2: (self.y.at + half_height) as f32,
        }
    }
}

fn centre_and_sides(bounds: &BoxF) -> [f64; 4] {
    let [x1, y1, x2, y2] = [bounds.x1, bounds.y1, bounds.x2, bounds.y2].map(f64::from);
    [(x1 + x2) / 2.0, (y1 + y2) / 2.0, x2 - x1, y2 - y1]
}

/// Coordinate in pixels, its speed in pixels per second, and their covariance. `side` is always the length of the box
/// along it, by which uncertainty is scaled.
#[derive(Clone, Copy, Debug)]
struct Axis {
    at: f64,
    speed: f64,
    at_variance: f64,
    covariance: f64,
    speed_variance: f64,
}

impl Axis {
    fn new(at: f64, side: f64) -> Self {
        // DeepSORT's initial state: twice the measurement's deviation, and ten times the speed's.
        let (place, speed) = (2.0 * place_deviation(side), 10.0 * speed_deviation(side));
        Self { at, speed: 0.0, at_variance: place * place, covariance: 0.0, speed_variance: speed * speed }
    }

    /// Predicts position and speed, both as random walks whose variances grow with time.
    fn predict(&mut self, seconds: f64, side: f64) {
        let place_walk = place_deviation(side).powi(2) * FRAMES_PER_SECOND;
        let speed_walk = speed_deviation(side).powi(2) * FRAMES_PER_SECOND;
        self.at += self.speed * seconds;
        self.at_variance += seconds
            * (2.0 * self.covariance
                + seconds * self.speed_variance
                + place_walk
                + speed_walk * seconds * seconds / 3.0);
        self.covariance += seconds * (self.speed_variance + speed_walk * seconds / 2.0);
        self.speed_variance += speed_walk * seconds;
    }

    fn correct(&mut self, measured: f64, side: f64) {
        let whole = self.at_variance + place_deviation(side).powi(2);
        let (place_gain, speed_gain) = (self.at_variance / whole, self.covariance / whole);
        let off = measured - self.at;
        self.at += place_gain * off;
        self.speed += speed_gain * off;
        // Rounding must not make a variance negative.
        self.speed_variance = (self.speed_variance - speed_gain * self.covariance).max(0.0);
        self.covariance *= 1.0 - place_gain;
        self.at_variance *= 1.0 - place_gain;
    }
}

/// Returns the deviation of a measured coordinate, in pixels.
fn place_deviation(side: f64) -> f64 {
    side.max(SIDE_UNCERTAIN_MIN) * PLACE_SHARE
}

/// Returns the deviation of a speed's change, in pixels per second.
fn speed_deviation(side: f64) -> f64 {
    side.max(SIDE_UNCERTAIN_MIN) * SPEED_SHARE * FRAMES_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walked(seconds: f64) -> BoxF {
        let x = (100.0 * seconds) as f32;
        BoxF { x1: x, y1: 10.0, x2: x + 40.0, y2: 90.0 }
    }

    #[test]
    fn the_speed_is_learnt_whatever_the_steps() {
        for steps in [[0.04, 0.04], [0.1, 0.1], [0.02, 0.2]] {
            let mut motion = Motion::at(&walked(0.0));
            let mut now = 0.0;
            for index in 0..40 {
                now += steps[index % 2];
                motion.predict(steps[index % 2], false);
                motion.correct(&walked(now));
            }
            assert!((motion.x.speed - 100.0).abs() < 1.0, "{steps:?}: {}", motion.x.speed);
            motion.predict(0.5, true);
            let overlap = motion.bounds().iou(&walked(now + 0.5));
            assert!(overlap > 0.95, "{steps:?}: {overlap}");
        }
    }

    #[test]
    fn one_long_step_is_as_uncertain_as_many_short_ones() {
        let mut once = Motion::at(&walked(0.0));
        let mut often = once;
        once.predict(1.0, true);
        (0..100).for_each(|_| often.predict(0.01, true));
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6 * a.abs(), "{a} {b}");
        near(once.x.at_variance, often.x.at_variance);
        near(once.x.covariance, often.x.covariance);
        near(once.x.speed_variance, often.x.speed_variance);
    }
}
