//! Prediction of a temperature from its latest readings.

use std::collections::VecDeque;
use std::time::Duration;

use orinoco_core::{Celsius, Nanos};

/// Age up to which readings count. The die of a Jetson follows its power within a few seconds, its heat sink within minutes.
const HISTORY: Duration = Duration::from_secs(12);
/// Number of readings of a slope: fewer would take the sensor's steps of up to 0.5 °C for a slope.
const READINGS_MIN: usize = 3;
/// Rise between two readings, in degrees, that may be the sensor's steps and noise. A greater one is a sudden load, and counts at
/// once.
const SENSOR_ERROR: f64 = 1.5;
/// Maximum number of readings, if they come more often than once a second.
const READINGS_MAX: usize = 32;
/// Time ahead for which a straight line is drawn. The true curve flattens, so the line is above it.
pub(crate) const AHEAD: Duration = Duration::from_secs(8);

/// Latest readings of one zone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trend {
    readings: VecDeque<(Nanos, Celsius)>,
}

impl Trend {
    pub(crate) fn add(&mut self, at: Nanos, temperature: Celsius) {
        if self.readings.back().is_some_and(|(last, _)| *last >= at) {
            return;
        }
        self.readings.push_back((at, temperature));
        while self.readings.len() > READINGS_MAX
            || self.readings.front().is_some_and(|(first, _)| at.since(*first) > HISTORY)
        {
            self.readings.pop_front();
        }
    }

    /// Forgets all but the latest reading: after a step, the slope before it says nothing.
    pub(crate) fn restart(&mut self) {
        let before = self.readings.len().saturating_sub(1);
        self.readings.drain(..before);
    }

    pub(crate) fn last(&self) -> Option<(Nanos, Celsius)> {
        self.readings.back().copied()
    }

    /// Returns the rise since the reading before the latest, in degrees per second, without what sensors err.
    fn latest_rise(&self) -> Option<f64> {
        let mut latest = self.readings.iter().rev();
        let ((last_at, last), (before_at, before)) = (latest.next()?, latest.next()?);
        let rise = (last.to_f64() - before.to_f64() - SENSOR_ERROR).max(0.0);
        Some(rise / last_at.since(*before_at).as_secs_f64().max(0.1))
    }

    /// Returns the temperature that is expected after [`AHEAD`]. A temperature that falls is expected to stay.
    pub(crate) fn soon(&self) -> Option<Celsius> {
        let (_, last) = self.last()?;
        let slope = self.slope().unwrap_or(0.0).max(self.latest_rise().unwrap_or(0.0));
        let rise = slope * AHEAD.as_secs_f64();
        Some(last + Celsius::from_f64(rise))
    }

    /// Returns the slope of the line of least squares, in degrees per second.
    fn slope(&self) -> Option<f64> {
        if self.readings.len() < READINGS_MIN {
            return None;
        }
        let (first, _) = *self.readings.front()?;
        let points =
            self.readings.iter().map(|(at, celsius)| (at.since(first).as_secs_f64(), celsius.to_f64()));
        let count = self.readings.len() as f64;
        let (sum_t, sum_c) = points.clone().fold((0.0, 0.0), |(t, c), point| (t + point.0, c + point.1));
        let (mean_t, mean_c) = (sum_t / count, sum_c / count);
        let (top, bottom) = points.fold((0.0, 0.0), |(top, bottom), (t, c)| {
            (top + (t - mean_t) * (c - mean_c), bottom + (t - mean_t) * (t - mean_t))
        });
        (bottom > 0.0).then(|| top / bottom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trend(readings: &[f64]) -> Trend {
        let mut trend = Trend::default();
        for (second, celsius) in (0..).zip(readings) {
            trend.add(Nanos(0) + Duration::from_secs(second), Celsius::from_f64(*celsius));
        }
        trend
    }

    #[test]
    fn a_rise_goes_on_and_a_fall_does_not() {
        assert_eq!(trend(&[50.0, 51.0, 52.0, 53.0]).soon(), Some(Celsius::from_units(61)));
        assert_eq!(trend(&[53.0, 52.0, 51.0]).soon(), Some(Celsius::from_units(51)));
        assert_eq!(trend(&[50.0, 51.5]).soon(), Some(Celsius::from_f64(51.5)), "two readings are no slope");
        assert_eq!(trend(&[50.0, 50.0, 50.0, 54.5]).soon(), Some(Celsius::from_f64(78.5)), "a jump is");
        assert_eq!(trend(&[]).soon(), None);
    }

    #[test]
    fn only_the_latest_seconds_count() {
        let mut readings = vec![20.0; 30];
        readings.extend([60.0; 13]);
        let trend = trend(&readings);
        assert_eq!((trend.soon(), trend.readings.len()), (Some(Celsius::from_units(60)), 13));
    }
}
