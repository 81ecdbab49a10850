//! View of a run from outside: its status, metrics and events, read by the control socket on threads of its own.
//!
//! Readers take the lock of the directory, which the supervisor's thread also takes when a stream joins or leaves, and for
//! moments the locks of folds. No thread of the data plane ever waits for a reader's work.

mod directory;
mod metrics;
mod status;

use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use orinoco_api::{EventJson, Status};
use orinoco_core::{Clock, Nanos};
use orinoco_telemetry::{Metric, Telemetry};

use crate::event_log::EventLog;
use crate::sampler::Readings;

pub(crate) use directory::{Directory, ListedStream};
pub(crate) use status::figure_json;

/// View of a run, from its preparation to its end. Clones show the same run.
#[derive(Clone)]
pub struct Monitor(Arc<Shown>);

struct Shown {
    clock: Arc<dyn Clock>,
    started: Nanos,
    telemetry: Telemetry,
    events: Arc<EventLog>,
    directory: RwLock<Directory>,
    readings: Readings,
}

impl Monitor {
    /// Creates the view of a run that starts now.
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        telemetry: Telemetry,
        events: Arc<EventLog>,
        board: &str,
    ) -> Self {
        let started = clock.now();
        let directory = RwLock::new(Directory::new(board));
        Self(Arc::new(Shown { clock, started, telemetry, events, directory, readings: Readings::default() }))
    }

    /// Returns the state of the run.
    pub fn status(&self) -> Status {
        status::of(self)
    }

    /// Returns the metrics of the run. `nv_inference` adds those with the names that Triton Inference Server uses, for its
    /// dashboards.
    pub fn metrics(&self, nv_inference: bool) -> Vec<Metric> {
        metrics::of(self, nv_inference)
    }

    /// Returns the latest events whose number is greater than `number`, oldest first.
    pub fn events_after(&self, number: u64) -> Vec<EventJson> {
        self.0.events.after(number)
    }

    /// Calls `on_event` after each event. It is called on threads of the data plane, and must not block.
    pub fn on_event(&self, on_event: impl Fn() + Send + Sync + 'static) {
        self.0.events.notify(Box::new(on_event));
    }

    /// Whether every lane makes progress: none has executed one batch for longer than 30 s without finishing a stage.
    pub fn is_healthy(&self) -> bool {
        status::lanes(self).iter().all(|lane| !lane.stuck)
    }

    /// Returns the latest readings of the board's sensors, which a thread of their own replaces.
    pub(crate) fn readings(&self) -> &Readings {
        &self.0.readings
    }

    pub(crate) fn directory(&self) -> RwLockReadGuard<'_, Directory> {
        self.0.directory.read().expect("no holder of the directory's lock panics")
    }

    pub(crate) fn directory_mut(&self) -> RwLockWriteGuard<'_, Directory> {
        self.0.directory.write().expect("no holder of the directory's lock panics")
    }

    fn telemetry(&self) -> &Telemetry {
        &self.0.telemetry
    }

    fn now(&self) -> Nanos {
        self.0.clock.now()
    }
}
