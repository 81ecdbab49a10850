//! Inputs of the control law: sensors, latencies and load of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use orinoco_core::{Celsius, ComputeUnit, Joules, LaneId, Nanos, StreamId, Watts};
use orinoco_governor::{StreamLatency, Zone};
use orinoco_telemetry::{Histogram, LaneFold, Stage};

use crate::monitor::{Latest, Monitor};

/// Number of frames from which their p99 counts.
const FRAMES_MIN: u64 = 10;
/// Time after which older frames no longer count, once enough newer ones came.
const RENEW_AFTER: Duration = Duration::from_secs(5);
/// Number of newer frames that are enough.
const FRAMES_RENEW: u64 = 50;
/// Time after which older frames no longer count, however few newer ones came.
const RENEW_AT_LAST: Duration = Duration::from_secs(30);

/// Readings of a run, as far as they need earlier ones.
#[derive(Default)]
pub(super) struct Readings {
    energy: Option<(Nanos, Joules, Duration)>,
    power: Option<Watts>,
    streams: BTreeMap<StreamId, RecentFrames>,
    busy: BTreeMap<usize, Duration>,
    busy_at: Option<Nanos>,
}

/// Copies of a stream's latencies, of which the older one bounds the frames that count.
struct RecentFrames {
    older: Histogram,
    newer: Histogram,
    newer_at: Nanos,
}

impl Readings {
    /// Returns the mean power since the reading before; `None` where it is not known.
    pub(super) fn power(&mut self, latest: &Latest) -> Option<Watts> {
        let (Some(at), Ok(report)) = (latest.at, &latest.energy) else {
            self.energy = None;
            return None;
        };
        let (energy, unmeasured) = (report.total.energy, report.total.unmeasured);
        let before = self.energy.replace((at, energy, unmeasured));
        let (before_at, before_energy, before_unmeasured) = before?;
        if before_at == at {
            // No reading since: the law sees by its time that it is the same one.
            return self.power;
        }
        let is_whole = unmeasured == before_unmeasured && energy > before_energy;
        self.power = is_whole.then(|| (energy - before_energy) / at.since(before_at));
        self.power
    }

    /// Returns the p99 latency of the recent frames of each stream.
    pub(super) fn latencies(
        &mut self,
        now: Nanos,
        monitor: &Monitor,
        target: Duration,
    ) -> Vec<StreamLatency> {
        let streams = monitor.stream_names();
        self.streams.retain(|id, _| streams.iter().any(|(known, _)| known == id));
        let mut total = Histogram::default();
        let latency = |(id, stream): (StreamId, String)| {
            monitor.telemetry().stream(id).read(|fold| total.copy_from(fold.stage(Stage::Total)));
            let recent = self.streams.entry(id).or_insert_with(|| RecentFrames::new(now, &total));
            let p99 = recent.p99(now, &total);
            StreamLatency { stream, p99, target }
        };
        streams.into_iter().map(latency).collect()
    }

    /// Forgets the frames before a step.
    pub(super) fn restart_latencies(&mut self) {
        self.streams.clear();
    }

    /// Returns the share of the time since the last call in which the busiest lane worked.
    pub(super) fn load(&mut self, now: Nanos, monitor: &Monitor) -> Option<f64> {
        let lanes = 0..monitor.directory().lanes();
        let busy: BTreeMap<usize, Duration> = lanes
            .map(|lane| {
                let fold = monitor.telemetry().lane(LaneId::from_index(lane)).read(LaneFold::clone);
                (lane, fold.busy(ComputeUnit::Cpu))
            })
            .collect();
        let since = self.busy_at.replace(now).map(|before| now.since(before).as_secs_f64());
        let before = std::mem::replace(&mut self.busy, busy);
        let since = since.filter(|since| *since > 0.0)?;
        let shares = self.busy.iter().map(|(lane, busy)| {
            let worked = busy.saturating_sub(before.get(lane).copied().unwrap_or_default());
            (worked.as_secs_f64() / since).min(1.0)
        });
        shares.reduce(f64::max)
    }
}

impl RecentFrames {
    fn new(now: Nanos, total: &Histogram) -> Self {
        Self { older: total.clone(), newer: total.clone(), newer_at: now }
    }

    fn p99(&mut self, now: Nanos, total: &Histogram) -> Option<Duration> {
        if total.count() < self.newer.count() {
            // The stream has just ended, and its fold was removed.
            *self = Self::new(now, total);
        }
        let age = now.since(self.newer_at);
        let newer = total.count() - self.newer.count();
        if age >= RENEW_AT_LAST || (age >= RENEW_AFTER && newer >= FRAMES_RENEW) {
            self.older = std::mem::replace(&mut self.newer, total.clone());
            self.newer_at = now;
        }
        let recent = total.since(&self.older);
        (recent.count() >= FRAMES_MIN).then(|| recent.percentile(99.0))
    }
}

/// Returns the temperatures, each with the temperature at which the kernel throttles.
pub(super) fn zones(latest: &Latest) -> Vec<Zone> {
    let zones = latest.sensors.temperatures.iter().map(|zone| Zone {
        name: zone.name.clone(),
        temperature: zone.celsius.map(Celsius::from_f64),
        throttle_at: zone.limit_celsius.map(Celsius::from_f64),
    });
    zones.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_p99_is_that_of_recent_frames() {
        let at = |second| Nanos(0) + Duration::from_secs(second);
        let mut total = Histogram::default();
        (0..1000).for_each(|_| total.record(Duration::from_millis(500)));
        let mut recent = RecentFrames::new(at(0), &total);
        assert_eq!(recent.p99(at(1), &total), None, "frames before a step do not count");
        (0..100).for_each(|_| total.record(Duration::from_millis(20)));
        let millis = |p99: Option<Duration>| p99.map(|p99| p99.as_millis());
        assert_eq!(millis(recent.p99(at(2), &total)), Some(20));
        for second in 5..30 {
            (0..30).for_each(|_| total.record(Duration::from_millis(40)));
            recent.p99(at(second), &total);
        }
        assert_eq!(millis(recent.p99(at(31), &total)), Some(40));
        assert_eq!(recent.p99(at(62), &total), None, "the frames are too old");
    }
}
