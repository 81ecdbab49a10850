//! Energy of one frame or image.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Energy of one frame or image above the idle power, or the reason why it is not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnergyFigure {
    /// Energy in millijoules; absent where it is not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mj: Option<f64>,
    /// Half-width of the 95 % interval, in millijoules.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub half_width_mj: Option<f64>,
    /// Share that was split by busy time and not observed, from 0 to 1, because engines overlapped.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shared: Option<f64>,
    /// Reason why the energy is not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_measured: Option<String>,
}

/// Energy of one frame or image in one stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageEnergyFigure {
    /// Name of the stage.
    pub stage: String,
    /// Energy of one frame or image in this stage, or the reason why it is not measured.
    #[serde(flatten)]
    pub energy: EnergyFigure,
}
