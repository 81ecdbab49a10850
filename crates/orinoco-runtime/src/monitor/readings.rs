//! Latest readings of the board's sensors, and its energy.

use std::sync::{Arc, Mutex, PoisonError};

use orinoco_api::{EnergyFigure, SensorsStatus, StageEnergyFigure};
use orinoco_core::Nanos;
use orinoco_telemetry::energy::{EnergyReport, Figure, StageEnergy};

/// Latest readings and energy figures. One thread replaces them, and others copy the pointer.
#[derive(Clone, Default)]
pub(crate) struct Readings(Arc<Mutex<Arc<Latest>>>);

/// Readings and energy figures at one time.
pub(crate) struct Latest {
    /// Time of the readings; `None` before the first.
    pub(crate) at: Option<Nanos>,
    pub(crate) sensors: SensorsStatus,
    pub(crate) machine_bytes: Option<u64>,
    pub(crate) available_bytes: Option<u64>,
    /// Energy, or the reason why it is not measured.
    pub(crate) energy: Result<Arc<EnergyReport>, String>,
}

impl Default for Latest {
    fn default() -> Self {
        let energy = Err("the sensors have not been read yet".to_owned());
        Self {
            at: None,
            sensors: SensorsStatus::default(),
            machine_bytes: None,
            available_bytes: None,
            energy,
        }
    }
}

impl Latest {
    /// Returns readings of a run that reads no sensors.
    pub(crate) fn off() -> Self {
        let energy = Err("sensors are switched off ([sensors] enabled = false)".to_owned());
        Self { energy, ..Self::default() }
    }

    /// Returns readings of a run whose thread for sensors has panicked, after its last readings at `at`.
    pub(crate) fn failed(at: Option<Nanos>) -> Self {
        let energy = Err("the thread that reads the sensors has failed".to_owned());
        Self { at, energy, ..Self::default() }
    }
}

impl Readings {
    /// Returns the latest readings.
    pub(crate) fn latest(&self) -> Arc<Latest> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set(&self, latest: Latest) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(latest);
    }
}

/// Returns an energy in joules, if it is measured.
pub(crate) fn joules(figure: &Figure) -> Option<f64> {
    figure.as_ref().ok().map(|estimate| estimate.energy.to_f64())
}

/// Returns an energy figure as the contract has it.
pub(crate) fn figure_json(figure: &Figure) -> EnergyFigure {
    match figure {
        Ok(estimate) => EnergyFigure {
            mj: Some(estimate.energy.to_f64() * 1e3),
            half_width_mj: Some(estimate.half_width.to_f64() * 1e3),
            shared: Some(estimate.shared),
            not_measured: None,
        },
        Err(why) => {
            EnergyFigure { mj: None, half_width_mj: None, shared: None, not_measured: Some(why.to_string()) }
        }
    }
}

/// Returns the energies of stages as the contract has them.
pub(super) fn stages_json(stages: &[StageEnergy]) -> Vec<StageEnergyFigure> {
    let figure = |of: &StageEnergy| StageEnergyFigure {
        stage: of.stage.name().to_owned(),
        energy: figure_json(&of.per_item),
    };
    stages.iter().map(figure).collect()
}
