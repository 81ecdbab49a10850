use std::fmt;
use std::time::Duration;

use orinoco_core::{Celsius, Choice, Watts};

use crate::trend::AHEAD;

/// Result of one tick: the state, and at most one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// State of the governor.
    pub state: State,
    /// Step to take now.
    pub step: Option<Step>,
}

/// State of the governor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Limits and latencies hold.
    Holding,
    /// A limit is, or would be, exceeded: it lowers the power, or waits until it may.
    Limiting,
    /// A latency is above its target, and the limits leave no room for more speed.
    Slow,
    /// Readings are missing: it lowers the power, or keeps it low.
    Blind,
    /// A limit is exceeded at the lowest levels of all actuators.
    Exhausted,
}

impl Choice for State {
    const ALL: &'static [Self] = &[Self::Holding, Self::Limiting, Self::Slow, Self::Blind, Self::Exhausted];

    fn name(self) -> &'static str {
        match self {
            Self::Holding => "holding",
            Self::Limiting => "limiting",
            Self::Slow => "slow",
            Self::Blind => "blind",
            Self::Exhausted => "exhausted",
        }
    }
}

/// Change of one actuator to another level.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Index of the actuator in the inputs.
    pub actuator: usize,
    /// Index of the level to set.
    pub level: usize,
    /// Clocks to set together with a power mode: index of the actuator, and of its level. They are lower than now, so that the
    /// mode takes little more power by itself; a clock that is not listed stays.
    pub clocks: Vec<(usize, usize)>,
    /// Direction of the change.
    pub direction: Direction,
    /// Reason.
    pub reason: Reason,
}

/// Direction of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To a level that takes more power.
    Up,
    /// To a level that takes less power.
    Down,
}

impl Choice for Direction {
    const ALL: &'static [Self] = &[Self::Up, Self::Down];

    fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// Reason of a step. Displayed, it is a part of a sentence: `the input power of 16.2 W is above 15.0 W`.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// The input power is above its limit.
    Power {
        /// Input power.
        power: Watts,
        /// Limit.
        limit: Watts,
    },
    /// A zone is about to pass its limit.
    Temperature {
        /// Name of the zone.
        zone: String,
        /// Temperature now.
        now: Celsius,
        /// Temperature that is expected soon.
        soon: Celsius,
        /// Limit: the smaller of the board's limit and the zone's trip point less a margin.
        limit: Celsius,
    },
    /// A stream is slower than wanted.
    Latency {
        /// Name of the stream.
        stream: String,
        /// p99 latency.
        p99: Duration,
        /// Wanted p99 latency.
        target: Duration,
    },
    /// The limits leave room.
    Room,
    /// Readings are missing.
    Blind(Missing),
}

/// Reading that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// All of them: the sensors have not been read in time.
    Readings,
    /// The input power, which has a limit.
    Power,
    /// Temperatures: no zone with a limit can be read.
    Temperatures,
    /// A zone that was near its limit.
    Zone(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Readings => write!(f, "the sensors have not been read in time"),
            Self::Power => write!(f, "the input power cannot be read"),
            Self::Temperatures => write!(f, "no temperature with a limit can be read"),
            Self::Zone(zone) => write!(f, "{zone} was near its limit and cannot be read any more"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Power { power, limit } => {
                write!(f, "the input power of {power:.1} is too high for the limit of {limit:.1}")
            }
            Self::Temperature { zone, now, soon, limit } => {
                let ahead = AHEAD.as_secs();
                write!(
                    f,
                    "{zone} is at {now:.1} and expected at {soon:.1} in {ahead} s, too high for its limit of {limit:.1}"
                )
            }
            Self::Latency { stream, p99, target } => {
                let (p99, target) = (p99.as_secs_f64() * 1e3, target.as_secs_f64() * 1e3);
                write!(f, "p99 of stream {stream} is {p99:.1} ms instead of {target:.1} ms")
            }
            Self::Room => write!(f, "the limits leave room"),
            Self::Blind(missing) => missing.fmt(f),
        }
    }
}
