//! Half-widths of intervals that hold 95 % of an error with two independent parts.

/// Share of the cases in which an interval holds the true value.
const CONFIDENCE: f64 = 0.95;

/// Most degrees of freedom that are told apart: above, Student's t is the normal distribution within 1 %.
const FREEDOM_MAX: f64 = 200.0;

/// An error with two independent parts: the first is `deviation` times Student's t with `freedom` degrees of freedom, the
/// second lies uniformly within plus and minus `range`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Error {
    pub(super) deviation: f64,
    pub(super) freedom: f64,
    pub(super) range: f64,
}

impl Error {
    /// Returns the number within plus and minus which the error lies in 95 % of the cases.
    pub(super) fn half_width(&self) -> f64 {
        /// Halvings of the bracket: enough for nine decimals.
        const HALVINGS: u32 = 32;
        if self.deviation <= 0.0 {
            return CONFIDENCE * self.range;
        }
        let student = Student::new(self.freedom);
        // One part's quantile and the other's maximum bound the sum.
        let (mut low, mut high) = (0.0, self.range + self.deviation * student.quantile_max());
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            match self.probability_within(middle, &student) < CONFIDENCE {
                true => low = middle,
                false => high = middle,
            }
        }
        high
    }

    /// Returns the probability that the error lies within plus and minus `width`, by the midpoint rule over the uniform part.
    fn probability_within(&self, width: f64, student: &Student) -> f64 {
        const STEPS: usize = 128;
        let within = |step: usize| {
            let offset = self.range * ((2 * step + 1) as f64 / STEPS as f64 - 1.0);
            student.cumulative((width - offset) / self.deviation)
                - student.cumulative((-width - offset) / self.deviation)
        };
        (0..STEPS).map(within).sum::<f64>() / STEPS as f64
    }
}

/// Cumulative distribution of Student's t, as a table. With `t = sqrt(freedom) * tan(angle)` its density is proportional to
/// `cos(angle)^(freedom - 1)`, so that no gamma function is needed.
struct Student {
    root: f64,
    /// Integral of the density from angle 0 to each step of the angle, as a share of the whole.
    table: Vec<f64>,
}

impl Student {
    const STEPS: usize = 1024;

    fn new(freedom: f64) -> Self {
        let freedom = freedom.clamp(1.0, FREEDOM_MAX);
        let step = std::f64::consts::FRAC_PI_2 / Self::STEPS as f64;
        let density = |at: usize| ((at as f64) * step).cos().max(0.0).powf(freedom - 1.0);
        let mut table = Vec::with_capacity(Self::STEPS + 1);
        let (mut sum, mut before) = (0.0, density(0));
        table.push(0.0);
        for at in 1..=Self::STEPS {
            let here = density(at);
            sum += 0.5 * (before + here);
            before = here;
            table.push(sum);
        }
        table.iter_mut().for_each(|value| *value /= sum);
        Self { root: freedom.sqrt(), table }
    }

    fn cumulative(&self, t: f64) -> f64 {
        let position = (t.abs() / self.root).atan() / std::f64::consts::FRAC_PI_2 * Self::STEPS as f64;
        let at = (position as usize).min(Self::STEPS - 1);
        let part = self.table[at] + (position - at as f64) * (self.table[at + 1] - self.table[at]);
        0.5 + 0.5 * part.copysign(t)
    }

    /// Returns a bound on the 95 % quantile of |t|: at one degree of freedom it is 12.7.
    fn quantile_max(&self) -> f64 {
        13.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(deviation: f64, freedom: f64, range: f64) -> f64 {
        (Error { deviation, freedom, range }.half_width() * 1000.0).round() / 1000.0
    }

    #[test]
    fn a_half_width_is_the_quantile_of_the_sum() {
        // Tables of Student's t (two-sided, 95 %): 1, 5 and 30 degrees of freedom; the normal distribution has 1.960.
        assert_eq!([1.0, 5.0, 30.0].map(|freedom| check(1.0, freedom, 0.0)), [12.706, 2.571, 2.042]);
        assert!((check(1.0, 1e9, 0.0) - 1.960).abs() < 0.013);
        assert_eq!(check(0.0, 5.0, 1.0), 0.95);
        assert!((check(1e-6, 5.0, 1.0) - 0.95).abs() < 0.01);
        // The sum is wider than each part, and narrower than both added.
        let sum = check(1.0, 30.0, 1.0);
        assert!(2.042 < sum && sum < 2.042 + 0.95, "{sum}");
    }
}
