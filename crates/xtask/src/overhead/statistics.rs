//! Means with their 95 % intervals.

use std::fmt;

/// Time of a frame in one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Wall time, in microseconds.
    pub(super) wall_us: f64,
    /// Processor time of the whole daemon, in microseconds.
    pub(super) cpu_us: f64,
}

/// Mean with the ends of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) mean: f64,
    pub(super) lower: f64,
    pub(super) upper: f64,
}

impl Interval {
    /// Turns the interval of a logarithm into that of its number.
    pub(super) fn exp(self) -> Self {
        Self { mean: self.mean.exp(), lower: self.lower.exp(), upper: self.upper.exp() }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ({:.3} to {:.3})", self.mean, self.lower, self.upper)
    }
}

/// Quantiles of Student's t for two-sided 95 %, for 1 to 30 degrees of freedom.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// Returns the mean of at least two values, with its 95 % interval by Student's t.
pub(super) fn interval(values: &[f64]) -> Interval {
    let count = values.len();
    assert!(count >= 2, "{count} values have no interval");
    let mean = values.iter().sum::<f64>() / count as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / (count - 1) as f64 / count as f64).sqrt();
    // Beyond the table the last one is wider than needed by less than 4 %.
    let half_width = T_95[(count - 2).min(T_95.len() - 1)] * deviation;
    Interval { mean, lower: mean - half_width, upper: mean + half_width }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_that_of_students_t() {
        // Deviation 1, so 4.303 / sqrt(3) each way.
        let Interval { mean, lower, upper } = interval(&[1.0, 2.0, 3.0]);
        assert!((mean - 2.0).abs() < 1e-12 && (upper - mean - 2.4843).abs() < 1e-3, "{lower} to {upper}");
        assert!((mean - lower - (upper - mean)).abs() < 1e-12);
        let twenty: Vec<f64> = (0..20).map(f64::from).collect();
        // Deviation 5.9161, over sqrt(20), times 2.093.
        assert!((interval(&twenty).upper - 9.5 - 2.7688).abs() < 1e-3, "{}", interval(&twenty));
    }

    #[test]
    fn ratios_are_averaged_as_logarithms() {
        let logs = [2.0_f64.ln(), 0.5_f64.ln()];
        assert!((interval(&logs).exp().mean - 1.0).abs() < 1e-12);
    }
}
