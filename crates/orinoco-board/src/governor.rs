//! Checked form of `[governor]`.

use std::path::PathBuf;
use std::time::Duration;

use orinoco_core::{Celsius, Choice, Watts};

/// Power and thermal governor of a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GovernorSpec {
    /// Greatest input power; `None` does not limit it.
    pub power_limit: Option<Watts>,
    /// Greatest temperature of each thermal zone; `None` keeps the zones below their trip points only.
    pub temperature_limit: Option<Celsius>,
    /// Wanted p99 latency of each stream; `None` holds none.
    pub p99: Option<Duration>,
    /// Names of the power modes that may be set; `None` for all that need no reboot.
    pub modes: Option<Vec<String>>,
    /// Settings that may be changed.
    pub actuators: Vec<GovernorActuator>,
    /// Socket of the helper; `None` for the usual one.
    pub helper: Option<PathBuf>,
}

impl GovernorSpec {
    /// Whether the helper changes any of the settings that may be changed. Levels of models need none.
    pub fn needs_helper(&self) -> bool {
        let of_models = |actuator: &GovernorActuator| {
            matches!(actuator, GovernorActuator::Interval | GovernorActuator::ModelVariant)
        };
        !self.actuators.iter().all(of_models)
    }
}

/// Setting of the board that the governor may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GovernorActuator {
    /// Power mode of `nvpmodel`.
    PowerMode,
    /// Highest clock of the GPU.
    GpuClock,
    /// Highest clocks of the groups of cores.
    CpuClock,
    /// Inference intervals of the models that allow others (`interval_max`).
    Interval,
    /// Models that have variants.
    ModelVariant,
}

impl Choice for GovernorActuator {
    const ALL: &'static [Self] =
        &[Self::PowerMode, Self::GpuClock, Self::CpuClock, Self::Interval, Self::ModelVariant];

    fn name(self) -> &'static str {
        match self {
            Self::PowerMode => "power-mode",
            Self::GpuClock => "gpu-clock",
            Self::CpuClock => "cpu-clock",
            Self::Interval => "interval",
            Self::ModelVariant => "model-variant",
        }
    }
}
