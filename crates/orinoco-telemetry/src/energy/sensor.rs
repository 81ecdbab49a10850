use std::time::Duration;

use orinoco_core::{Nanos, TimeSpan};

/// Timing of a power sensor: what time a reading of it is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sensor {
    /// Time between two updates of the register that is read. A reading is the latest update, so it ended up to this time
    /// before the read. For an INA3221 it is the number of enabled channels times the sum of both conversion times (datasheet
    /// SBOS576, section 7.4.2.2).
    pub update_period: Duration,
    /// Averaging of one update.
    pub averaging: Averaging,
    /// Greatest relative error of both times, as a ratio, because the sensor runs by a clock of its own. For an INA3221 it is
    /// 0.1: a conversion of 1.1 ms takes at most 1.21 ms (section 6.5). The error itself is estimated with the energies.
    pub clock_tolerance: f64,
}

/// Averaging of one update of a sensor's register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Averaging {
    /// The mean over a window that ends with the update: INA226, INA228, INA238, and an INA3221 that does not average (the
    /// window is then one conversion).
    Window(Duration),
    /// Each update moves the register by one part in `samples` towards the latest conversion: an INA3221 that averages
    /// (datasheet SBOS576, section 7.4.1). Its memory lasts for several times `samples` updates.
    Exponential {
        /// The sensor's number of averages.
        samples: u16,
        /// Duration of one conversion.
        conversion: Duration,
    },
}

/// Weight of the past in a reading, by age.
///
/// The phase of the sensor's updates is not known. Since the times of the readings are drawn at random, the age of the latest
/// update is uniform within an update period, whatever the models do. A reading is therefore compared with the *expected*
/// share of each age in it. That leaves an error that is independent of the busy times used (Berkson, 1950), which makes
/// regression noisier, and not biased, unlike a wrong guess of the window.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    update: f64,
    averaging: KernelShape,
}

#[derive(Clone, Debug)]
enum KernelShape {
    Window(f64),
    Exponential {
        /// Part of the register that an update keeps.
        keep: f64,
        delay: f64,
        /// Weight of what is older than each number of updates, down to [`Kernel::TAIL`].
        older: Box<[f64]>,
    },
}

impl Kernel {
    /// Weight of what is older than the reach, in an exponential average.
    const TAIL: f64 = 1e-4;

    /// Creates the kernel of a sensor whose times are `stretch` times as long as nominal.
    pub(super) fn new(sensor: &Sensor, stretch: f64) -> Self {
        let averaging = match sensor.averaging {
            Averaging::Window(window) => KernelShape::Window(stretch * window.as_secs_f64()),
            Averaging::Exponential { samples, conversion } => {
                let keep = 1.0 - 1.0 / f64::from(samples.max(1));
                let weights = std::iter::successors(Some(1.0), |older| Some(older * keep));
                let older = weights.take_while(|&older| older > Self::TAIL).collect();
                KernelShape::Exponential { keep, delay: 0.5 * stretch * conversion.as_secs_f64(), older }
            }
        };
        Self { update: (stretch * sensor.update_period.as_secs_f64()).max(1e-9), averaging }
    }

    /// Returns the age above which nothing has a weight.
    pub(super) fn reach(&self) -> Duration {
        Duration::from_secs_f64(match &self.averaging {
            KernelShape::Window(window) => self.update + window,
            KernelShape::Exponential { delay, older, .. } => delay + self.update * older.len() as f64,
        })
    }

    /// Returns the time over which a reading mostly averages.
    pub(super) fn width(&self) -> Duration {
        Duration::from_secs_f64(match &self.averaging {
            KernelShape::Window(window) => self.update + window,
            KernelShape::Exponential { keep, .. } => self.update / (1.0 - keep),
        })
    }

    /// Returns the weight of a span in a reading at `at`: 1 for a span that covers all of it.
    pub(super) fn weight(&self, at: Nanos, span: TimeSpan) -> f64 {
        let age = |of: Nanos| at.since(of).as_secs_f64();
        self.cumulative(age(span.start())) - self.cumulative(age(span.end()))
    }

    /// Returns the weight of all ages up to `age`, in seconds.
    fn cumulative(&self, age: f64) -> f64 {
        match &self.averaging {
            // The sum of two uniform ages: that of the update, and that within its window.
            KernelShape::Window(window) => {
                let window = window.max(1e-9);
                let square = |x: f64| x.max(0.0).powi(2);
                let corners = square(age) - square(age - self.update) - square(age - window)
                    + square(age - self.update - window);
                (corners / (2.0 * self.update * window)).clamp(0.0, 1.0)
            }
            // Update number k has the weight (1 - keep) * keep^k, and is between k and k + 1 periods old.
            KernelShape::Exponential { keep, delay, older } => {
                let periods = ((age - delay) / self.update).max(0.0);
                let rest = 1.0 - (1.0 - keep) * periods.fract();
                older.get(periods as usize).map_or(1.0, |older| 1.0 - older * rest)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn kernel(update_ms: u64, averaging: Averaging) -> Kernel {
        let update_period = Duration::from_millis(update_ms);
        Kernel::new(&Sensor { update_period, averaging, clock_tolerance: 0.0 }, 1.0)
    }

    /// Weight of the span from `from` to `to` ms of age in a reading, in thousandths.
    fn check(kernel: &Kernel, from: u64, to: u64) -> i64 {
        let at = Nanos(10_000 * MS);
        let span = TimeSpan::new(Nanos(at.0 - to * MS), Nanos(at.0 - from * MS));
        (kernel.weight(at, span) * 1000.0).round() as i64
    }

    #[test]
    fn a_window_is_seen_through_the_unknown_age_of_its_update() {
        let kernel = kernel(10, Averaging::Window(Duration::from_millis(30)));
        assert_eq!(kernel.reach(), Duration::from_millis(40));
        assert_eq!(check(&kernel, 0, 40), 1000);
        // Full weight is one part in 30 per ms; the first and the last 10 ms are ramps.
        assert_eq!([check(&kernel, 0, 10), check(&kernel, 10, 30), check(&kernel, 30, 40)], [167, 667, 167]);
        assert_eq!(check(&kernel, 40, 90), 0);
    }

    #[test]
    fn an_exponential_average_forgets_slowly() {
        let kernel = kernel(10, Averaging::Exponential { samples: 4, conversion: Duration::ZERO });
        // 1/4, then 3/4 of that, and so on.
        assert_eq!([check(&kernel, 0, 10), check(&kernel, 10, 20), check(&kernel, 20, 25)], [250, 188, 70]);
        let reach = u64::try_from(kernel.reach().as_millis()).expect("a short time");
        assert!((330..=350).contains(&reach) && check(&kernel, 0, reach) == 1000, "{reach} ms");
        let last = self::kernel(10, Averaging::Exponential { samples: 1, conversion: Duration::ZERO });
        assert_eq!((check(&last, 0, 5), check(&last, 0, 10), last.reach().as_millis()), (500, 1000, 10));
    }

    #[test]
    fn a_span_after_the_reading_has_no_weight() {
        let kernel = kernel(10, Averaging::Window(Duration::from_millis(1)));
        let span = TimeSpan::new(Nanos(60), Nanos(90));
        assert_eq!(kernel.weight(Nanos(50), span), 0.0);
    }
}
