//! View of a run from outside: its status, metrics and events, read by the control socket on threads of its own.
//!
//! Readers take the lock of the directory, which the supervisor's thread also takes when a stream joins or leaves, and the locks
//! of folds. A thread of the data plane waits for a reader's copy of one histogram at most, unless the reader is preempted in it.

mod directory;
mod dump;
mod metrics;
mod names;
mod readings;
mod status;
mod view;

use std::sync::{Arc, RwLockReadGuard, RwLockWriteGuard};

use orinoco_api::{Dump, EventJson, GovernorStatus, Status};
use orinoco_core::{Clock, Nanos, StreamId};
use orinoco_telemetry::{Event, EventSink, Metric, Telemetry, TraceFeed};

use crate::event_log::EventLog;

pub(crate) use directory::{Directory, ListedStream};
pub use names::{ModelName, RunNames};
pub(crate) use readings::{Latest, Readings, figure_json, joules};
use view::View;

/// View of a run, from its preparation to its end. Clones show the same run.
#[derive(Clone)]
pub struct Monitor(Arc<View>);

impl Monitor {
    /// Creates the view of a run that starts now.
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        telemetry: Telemetry,
        events: Arc<EventLog>,
        board: &str,
    ) -> Self {
        Self(Arc::new(View::new(clock, telemetry, events, board)))
    }

    /// Returns the state of the run.
    pub fn status(&self) -> Status {
        status::of(&self.0)
    }

    /// Returns the metrics of the run. `nv_inference` adds those with the names that Triton Inference Server uses, for its
    /// dashboards.
    pub fn metrics(&self, nv_inference: bool) -> Vec<Metric> {
        metrics::of(&self.0, nv_inference)
    }

    /// Returns the names of what runs now.
    pub fn names(&self) -> RunNames {
        names::of(&self.0.directory())
    }

    /// Subscribes to the records of the data plane from now on; `None` if there is a subscriber.
    pub fn subscribe_trace(&self) -> Option<TraceFeed> {
        self.0.telemetry.subscribe_trace()
    }

    /// Returns the clock of the run, whose times its records have.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.0.clock)
    }

    /// Returns the time at which the run started.
    pub fn started(&self) -> Nanos {
        self.0.started
    }

    /// Returns the latest events whose number is greater than `number`, oldest first.
    pub fn events_after(&self, number: u64) -> Vec<EventJson> {
        self.0.events.after(number)
    }

    /// Emits an event of a part of the program that the run does not know, such as its seat in a cluster.
    pub fn emit(&self, event: Event) {
        self.0.events.emit(event);
    }

    /// Keeps an event from before the run, which was logged already. It gets the present time.
    pub fn keep(&self, event: &Event) {
        self.0.events.keep(event);
    }

    /// Calls `on_event` after each event. It is called on threads of the data plane, and must not block.
    pub fn on_event(&self, on_event: impl Fn() + Send + Sync + 'static) {
        self.0.events.notify(Box::new(on_event));
    }

    /// Returns the post-mortem of the run, for a `reason`: `request`, `stuck` or `crash`. It takes nothing from the next one.
    pub fn dump(&self, reason: &str) -> Dump {
        dump::of(&self.0, reason)
    }

    /// Whether every lane makes progress: none has executed one batch for longer than 30 s without finishing a stage.
    pub fn is_healthy(&self) -> bool {
        status::lanes(&self.0).iter().all(|lane| !lane.stuck)
    }

    /// Returns the latest readings of the board's sensors, which a thread of their own replaces.
    pub(crate) fn readings(&self) -> &Readings {
        &self.0.readings
    }

    /// Returns the state of the governor, if there is one.
    pub(crate) fn governor(&self) -> Option<GovernorStatus> {
        self.0.governor()
    }

    /// Sets the state of the governor.
    pub(crate) fn set_governor(&self, governor: GovernorStatus) {
        self.0.set_governor(governor);
    }

    /// Returns the folds of the run.
    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.0.telemetry
    }

    /// Returns the streams that have not ended, with their names.
    pub(crate) fn stream_names(&self) -> Vec<(StreamId, String)> {
        self.directory().streams.iter().map(|(id, stream)| (*id, stream.name.clone())).collect()
    }

    pub(crate) fn directory(&self) -> RwLockReadGuard<'_, Directory> {
        self.0.directory()
    }

    pub(crate) fn directory_mut(&self) -> RwLockWriteGuard<'_, Directory> {
        self.0.directory_mut()
    }
}

#[cfg(test)]
mod tests;
