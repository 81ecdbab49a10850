//! Data of which a monitor shows parts.

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use orinoco_api::GovernorStatus;
use orinoco_core::{Clock, Nanos};
use orinoco_telemetry::Telemetry;

use super::directory::Directory;
use super::readings::Readings;
use crate::event_log::EventLog;

/// Everything that a run shows.
pub(crate) struct View {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) started: Nanos,
    pub(super) telemetry: Telemetry,
    pub(super) events: Arc<EventLog>,
    pub(super) readings: Readings,
    directory: RwLock<Directory>,
    governor: Mutex<Option<GovernorStatus>>,
}

impl View {
    pub(super) fn new(
        clock: Arc<dyn Clock>,
        telemetry: Telemetry,
        events: Arc<EventLog>,
        board: &str,
    ) -> Self {
        let (started, directory) = (clock.now(), RwLock::new(Directory::new(board)));
        let (readings, governor) = (Readings::default(), Mutex::default());
        Self { clock, started, telemetry, events, readings, directory, governor }
    }

    /// Returns the state of the governor, if the board has one.
    pub(super) fn governor(&self) -> Option<GovernorStatus> {
        self.governor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_governor(&self, governor: GovernorStatus) {
        *self.governor.lock().unwrap_or_else(PoisonError::into_inner) = Some(governor);
    }

    pub(super) fn directory(&self) -> RwLockReadGuard<'_, Directory> {
        self.directory.read().expect("no holder of the directory's lock panics")
    }

    pub(super) fn directory_mut(&self) -> RwLockWriteGuard<'_, Directory> {
        self.directory.write().expect("no holder of the directory's lock panics")
    }

    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }
}
