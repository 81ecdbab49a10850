//! Services that every thread of a run shares.

use std::sync::Arc;

use orinoco_board::Board;
use orinoco_config::{FaultList, Faults};
use orinoco_core::{Clock, Diagnosis};
use orinoco_infer::Scratch;
use orinoco_pipeline::{BoundPlan, Stop};
use orinoco_telemetry::{EventSink, Telemetry};

use crate::model_version::ModelVersion;
use crate::planning::stopped;
use crate::seats::{Seats, ServedModels};
use crate::{BoardEngines, LoadedModel, bind_plan};

/// Services that every thread of a run shares.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    /// Seed of the run, from which each thread that needs chance makes its own.
    pub(crate) seed: u64,
    pub(crate) events: Arc<dyn EventSink>,
    pub(crate) telemetry: Telemetry,
    pub(crate) stop: Stop,
    pub(crate) engines: BoardEngines,
    /// Other seats of the cluster.
    pub(crate) seats: Arc<dyn Seats>,
    /// Models that other seats may use.
    pub(crate) served: ServedModels,
}

impl Shared {
    /// Returns a fault if a stop was requested while the board is being prepared.
    pub(crate) fn check_stop(&self, board: &Board) -> Result<(), Diagnosis> {
        if self.stop.requested() { Err(stopped(board)) } else { Ok(()) }
    }

    /// Binds a model for one lane.
    pub(crate) fn bind(
        &self,
        version: ModelVersion,
        loaded: &mut LoadedModel,
        scratch: Option<&Scratch>,
    ) -> Result<BoundPlan, Diagnosis> {
        let executor = bind_plan(loaded, Arc::clone(&self.clock), scratch)?;
        let ModelVersion { id, generation } = version;
        Ok(BoundPlan { generation, ..BoundPlan::new(id, loaded.name.clone(), executor) })
    }
}

/// Returns all values, or all faults.
pub(crate) fn collect<T>(results: impl Iterator<Item = Result<T, Faults>>) -> Result<Vec<T>, Faults> {
    let mut faults = FaultList::default();
    let values = results.filter_map(|result| faults.value_of(result)).collect();
    faults.finish(values)
}
