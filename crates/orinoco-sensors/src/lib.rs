#![doc = include_str!("../README.md")]
#![no_std]
#![warn(missing_docs)]

mod alert;
mod conversion;
mod error;
mod fan;
mod heartbeat;
pub mod ina226;
pub mod ina228;
pub mod ina3221;
mod reading;
mod registers;
mod sampler;
mod scale;
pub mod simulated;
pub mod tmp451;
pub mod tmp75;
mod trigger;

pub use alert::{AlertLatch, AlertPolarity, ConversionSignal};
pub use conversion::{Averaging, ConversionTime, Mode};
pub use error::{Device, SensorError};
pub use fan::{
    CurveError, CurvePoint, Duty, FanConfig, FanCurve, FanStatus, PulseCounter, PwmFan, Rpm, Tachometer,
};
pub use heartbeat::{Heartbeat, HeartbeatState};
pub use ina226::Ina226;
pub use ina228::Ina228;
pub use ina3221::Ina3221;
pub use reading::{RailMeter, RailReading};
pub use sampler::{Poll, Rail, RailSample, RailSampler, SamplerConfig};
pub use tmp75::Tmp75;
pub use tmp451::Tmp451;
pub use trigger::{Polarity, Start, Trigger, TriggerConfig};
