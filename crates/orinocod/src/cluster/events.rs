//! Events of the board's seat: logged at once, and part of the run's events as soon as there is a run.

use std::sync::{Mutex, MutexGuard, PoisonError};

use orinoco_runtime::Monitor;
use orinoco_telemetry::{Event, EventSink};

use crate::journal::Journal;

/// Maximum number of events that are kept for a run. While models are built for minutes, epochs may come and go.
const EARLY_MAX: usize = 64;

/// Receiver of a seat's events.
#[derive(Default)]
pub(super) struct SeatEvents(Mutex<State>);

#[derive(Default)]
struct State {
    /// Events from before the run; the latest.
    early: Vec<Event>,
    run: Option<Monitor>,
    /// Cause of the last fault since the last epoch.
    fault: Option<String>,
}

impl SeatEvents {
    /// Reports events to a run from now on, and those so far, with the present time.
    pub(super) fn attach(&self, run: Monitor) {
        let mut state = self.lock();
        state.early.drain(..).for_each(|event| run.keep(&event));
        state.run = Some(run);
    }

    /// Reports that this board takes part in no epoch, if the cause is another than before.
    pub(super) fn fault(&self, why: &str) {
        let before = self.lock().fault.replace(why.to_owned());
        if before.as_deref() != Some(why) {
            self.emit(Event::ClusterFault { why: why.to_owned() });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for SeatEvents {
    fn emit(&self, event: Event) {
        let mut state = self.lock();
        if let Event::EpochBegan { .. } = &event {
            state.fault = None;
        }
        if let Some(run) = state.run.clone() {
            drop(state);
            return run.emit(event);
        }
        if state.early.len() == EARLY_MAX {
            state.early.remove(0);
        }
        state.early.push(event.clone());
        drop(state);
        Journal.emit(event);
    }
}
