use std::time::Duration;

use orinoco_core::{Celsius, Nanos, Watts};

use crate::Actuator;

/// Limits that the governor holds always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Greatest input power; `None` does not limit it.
    pub power: Option<Watts>,
    /// Greatest temperature of each zone; `None` keeps zones below their trip points only.
    pub temperature: Option<Celsius>,
}

/// Readings at one time, and the actuators as they are set. A reading that is not known is absent, and never 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// Time at which the sensors were read; `None` before the first reading.
    pub read_at: Option<Nanos>,
    /// Temperatures.
    pub zones: Vec<Zone>,
    /// Input power, averaged over about the last second.
    pub power: Option<Watts>,
    /// Latencies of the streams that have a target; empty where no latency is held.
    pub latencies: Vec<StreamLatency>,
    /// Share of the time in which the busiest lane worked, from 0 to 1.
    pub load: Option<f64>,
    /// Settings that the governor may change.
    pub actuators: Vec<Actuator>,
}

/// Temperature of one zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    /// Name of the zone.
    pub name: String,
    /// Temperature; `None` where it cannot be read, or the part is switched off.
    pub temperature: Option<Celsius>,
    /// Temperature at which the kernel throttles; `None` where the zone has no such trip point.
    pub throttle_at: Option<Celsius>,
}

/// Latency of one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamLatency {
    /// Name of the stream.
    pub stream: String,
    /// p99 latency of its frames since the latest step, or of the last seconds; `None` where too few frames came.
    pub p99: Option<Duration>,
    /// Wanted p99 latency.
    pub target: Duration,
}

impl StreamLatency {
    /// Returns the latency as a multiple of its target.
    pub(crate) fn ratio(&self) -> Option<f64> {
        Some(self.p99?.as_secs_f64() / self.target.as_secs_f64().max(1e-9))
    }
}
