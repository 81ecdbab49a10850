use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{Joules, ModelId, StreamId, Watts};

use super::settings::Covers;
use crate::Stage;

/// Energy figures of a board at one time.
#[derive(Clone, Debug)]
pub struct EnergyReport {
    /// Every rail, in the order of the settings.
    pub rails: Vec<RailEnergy>,
    /// The rails of the total together.
    pub total: TotalEnergy,
    /// Power of the board while no lane is busy.
    pub baseline: Result<Baseline, NotMeasured>,
    /// Every model that has executed, in the order of their first batches.
    pub models: Vec<ModelEnergy>,
    /// Every stream that has been part of a batch, in the order of their first batches.
    pub streams: Vec<StreamEnergy>,
    /// Readings and batches that were left out.
    pub losses: Losses,
}

/// Energy of one rail.
#[derive(Clone, Debug)]
pub struct RailEnergy {
    /// Name of the rail.
    pub name: Arc<str>,
    /// Energy since the meter was created. It never goes back.
    pub energy: Joules,
    /// Latest power, if there was a reading.
    pub power: Option<Watts>,
    /// Time for which no energy was counted, because readings were missing.
    pub unmeasured: Duration,
}

/// Energy of the rails that are in the total.
#[derive(Clone, Debug)]
pub struct TotalEnergy {
    /// Part of the board's consumption that these rails cover.
    pub covers: Covers,
    /// Their names.
    pub rails: Vec<Arc<str>>,
    /// Energy since the meter was created, while all of these rails had readings. It never goes back.
    pub energy: Joules,
    /// Time over which energy was counted. Energy by this time is the mean power.
    pub measured: Duration,
    /// Time for which no energy was counted, because readings of a rail were missing.
    pub unmeasured: Duration,
}

/// Power of the idle board.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Baseline {
    /// Mean power.
    pub power: Watts,
    /// Number within plus and minus which the error of `power` lies in 95 % of the cases.
    pub half_width: Watts,
    /// Change of the power in an hour, and the half-width of its 95 % interval; `None` for a given baseline.
    pub drift_per_hour: Option<(Watts, Watts)>,
    /// Origin of the figure.
    pub source: BaselineSource,
}

/// Origin of a [`Baseline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselineSource {
    /// Readings in which no lane was busy.
    IdleReadings {
        /// Number of these readings.
        readings: u64,
    },
    /// The settings.
    Given,
}

/// An energy above the baseline, with its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The energy.
    pub energy: Joules,
    /// Number within plus and minus which its whole error lies in 95 % of the cases.
    pub half_width: Joules,
    /// The same for the part of the error that further readings make smaller: other processes, drift, the phase of the
    /// sensor, and the split between models where it is uncertain.
    pub statistical: Joules,
    /// Greatest error that all readings share: the gain of shunt and sensor, and the resolution where the readings are too
    /// quiet to average it out. Further readings do not make it smaller.
    pub systematic: Joules,
    /// Part of the energy that was apportioned by busy time rather than observed, from 0 to 1, because engines overlapped so
    /// that the readings cannot tell them apart.
    pub shared: f64,
}

/// An energy, or the reason why there is none.
pub type Figure = Result<Estimate, NotMeasured>;

/// Reason why a figure is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotMeasured {
    /// Nothing was executed since the measurement (re)started.
    NoItems,
    /// The board was never idle, so that there is no reading of its idle power, and none was given.
    NeverIdle,
    /// The readings are too few, or the load was too constant, to tell the energy from the idle power.
    TooFewReadings,
    /// The error is as large as the energy.
    TooUncertain,
}

impl fmt::Display for NotMeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoItems => "nothing was executed yet",
            Self::NeverIdle => "the board was never idle",
            Self::TooFewReadings => "too few readings, or the load never changed",
            Self::TooUncertain => "the error is as large as the energy",
        })
    }
}

/// Energy of one model above the baseline.
#[derive(Clone, Debug)]
pub struct ModelEnergy {
    /// Id of the model.
    pub model: ModelId,
    /// Number of images that were inferred since the measurement (re)started.
    pub items: u64,
    /// Energy of one inference: all stages, by image, since the measurement (re)started.
    pub per_item: Figure,
    /// Energy since the model's first batch, over all restarts.
    pub total: Figure,
    /// Number of images whose energy is not in `total`, because a restart came before it could be measured.
    pub items_unmeasured: u64,
    /// Energy by stage.
    pub stages: Vec<StageEnergy>,
}

/// Energy of one stage above the baseline.
#[derive(Clone, Copy, Debug)]
pub struct StageEnergy {
    /// The stage.
    pub stage: Stage,
    /// Energy per image of a model, or per frame of a stream.
    pub per_item: Figure,
}

/// Energy that a stream's frames used in all models, above the baseline. A batch is split by the stream's items in it.
#[derive(Clone, Debug)]
pub struct StreamEnergy {
    /// Id of the stream.
    pub stream: StreamId,
    /// Number of frames that went through all models since the measurement (re)started.
    pub frames: u64,
    /// Energy of one frame.
    pub per_frame: Figure,
    /// Energy since the stream's first batch, over all restarts; without what was not measured.
    pub total: Figure,
    /// Energy of one frame by stage, over all models.
    pub stages: Vec<StageEnergy>,
}

/// Readings and batches that the figures leave out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Readings without a power of every rail of the total.
    pub readings_missing: u64,
    /// Readings that could not be attributed, because batches of their time had been lost, or the measurement had just
    /// started.
    pub readings_skipped: u64,
    /// Batches that were reported so late that readings had been attributed without them. From then on readings wait longer.
    pub batches_late: u64,
    /// Batches of stages that share one place, because `columns_max` others were known.
    pub batches_without_column: u64,
}
