use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use orinoco_core::Watts;

use super::sensor::{Averaging, Sensor};

/// Settings of an [`EnergyMeter`](super::EnergyMeter).
#[derive(Clone, Debug)]
pub struct MeterSettings {
    /// The board's rails, in the order in which their powers are passed.
    pub rails: Vec<Rail>,
    /// Part of the board's consumption that the rails in the total cover together.
    pub covers: Covers,
    /// Timing of the sensor of the rails that are in the total. Where rails have sensors of different kinds, only those of one
    /// kind can be in the total.
    pub sensor: Sensor,
    /// Mean time between two readings.
    pub sample_period: Duration,
    /// Power of the idle board, if it was measured beforehand.
    pub idle: Option<IdlePower>,
    /// Age at which a reading is attributed: batches are expected to be reported by then. After a later one, readings wait one
    /// and a half times as long as it needed, a minute at most.
    pub lateness_max: Duration,
    /// Maximum number of pairs of a model's stage and a unit that are told apart. Those beyond it share one place. Time per
    /// reading and memory grow with the square of the number in use.
    pub columns_max: usize,
}

/// One measured rail of a board.
#[derive(Clone, Debug)]
pub struct Rail {
    /// Name of the rail on this board.
    pub name: Arc<str>,
    /// Smallest difference between two readings. For an INA3221 it is 40 µV over the shunt's resistance, times the voltage of
    /// the rail (datasheet SBOS576, section 7.6.2.2).
    pub resolution: Watts,
    /// Greatest relative error of the gain, which shunt and sensor share, as a ratio: 0.01 for 1 %. The error is taken to be
    /// constant, and equally probable everywhere within plus and minus this.
    pub gain_tolerance: f64,
    /// Whether the rail is part of the total from which energy is attributed to models. Rails that supply one another must not
    /// both be.
    pub is_in_total: bool,
    /// Whether a reading is the mean power since the reading before, as a sensor that counts energy gives it.
    pub is_mean: bool,
}

/// Part of the board's consumption that a total covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covers {
    /// The whole input of the board or module.
    Input,
    /// Only the rails that are named, such as that of the GPU: everything else consumes energy that is not seen.
    NamedRails,
}

/// Power of the idle board that was measured beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdlePower {
    /// Mean power of the rails in the total.
    pub power: Watts,
    /// Number within plus and minus which its error lies in 95 % of the cases, without the error of the gain.
    pub half_width: Watts,
}

/// Reason why settings are refused.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingsError {
    /// No rail is in the total.
    NoRail,
    /// A time is zero, or longer than [`TIME_MAX`].
    Time {
        /// Name of the setting.
        setting: &'static str,
        /// Its value.
        time: Duration,
    },
    /// The tolerance of a rail's gain is not a ratio from 0 to below 1.
    Gain {
        /// Name of the rail.
        rail: Arc<str>,
        /// The tolerance.
        tolerance: f64,
    },
    /// The tolerance of the sensor's clock is not a ratio from 0 to 0.5.
    Clock(f64),
    /// `columns_max` is 0 or more than [`COLUMNS_MAX`].
    Columns(usize),
}

/// Greatest of the times in [`MeterSettings`].
pub const TIME_MAX: Duration = Duration::from_secs(10);

/// Greatest `columns_max`: it needs about 8 MiB where all are in use.
pub const COLUMNS_MAX: usize = 32;

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRail => write!(f, "no power rail counts towards the total; mark one with `is_in_total`"),
            Self::Time { setting, time } => {
                let (ms, max) = (time.as_secs_f64() * 1e3, TIME_MAX.as_secs());
                write!(f, "`{setting}` is {ms} ms; it must be more than 0 and at most {max} s")
            }
            Self::Gain { rail, tolerance } => {
                write!(
                    f,
                    "the gain tolerance of rail `{rail}` is {tolerance}; it must be a ratio, such as 0.01 for 1 %"
                )
            }
            Self::Clock(tolerance) => {
                write!(
                    f,
                    "`clock_tolerance` is {tolerance}; it must be a ratio of at most 0.5, such as 0.1 for 10 %"
                )
            }
            Self::Columns(columns) => {
                write!(f, "`columns_max` is {columns}; it must be at least 1 and at most {COLUMNS_MAX}")
            }
        }
    }
}

impl Error for SettingsError {}

impl MeterSettings {
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        if !self.rails.iter().any(|rail| rail.is_in_total) {
            return Err(SettingsError::NoRail);
        }
        let mut times = vec![
            ("sample_period", self.sample_period),
            ("update_period", self.sensor.update_period),
            ("lateness_max", self.lateness_max),
        ];
        match self.sensor.averaging {
            Averaging::Window(window) => times.push(("window", window)),
            Averaging::Exponential { conversion, .. } => times.push(("conversion", conversion)),
        }
        let wrong = |time: &Duration| time.is_zero() || *time > TIME_MAX;
        if let Some(&(setting, time)) = times.iter().find(|(_, time)| wrong(time)) {
            return Err(SettingsError::Time { setting, time });
        }
        if let Some(rail) = self.rails.iter().find(|rail| !(0.0..1.0).contains(&rail.gain_tolerance)) {
            return Err(SettingsError::Gain { rail: Arc::clone(&rail.name), tolerance: rail.gain_tolerance });
        }
        if !(0.0..=0.5).contains(&self.sensor.clock_tolerance) {
            return Err(SettingsError::Clock(self.sensor.clock_tolerance));
        }
        match self.columns_max {
            1..=COLUMNS_MAX => Ok(()),
            columns => Err(SettingsError::Columns(columns)),
        }
    }

    /// Returns the rails that are in the total.
    pub fn total_rails(&self) -> impl Iterator<Item = &Rail> {
        self.rails.iter().filter(|rail| rail.is_in_total)
    }
}
