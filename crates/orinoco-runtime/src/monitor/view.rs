//! Data of which a monitor shows parts.

use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

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
}

impl View {
    pub(super) fn new(
        clock: Arc<dyn Clock>,
        telemetry: Telemetry,
        events: Arc<EventLog>,
        board: &str,
    ) -> Self {
        let (started, directory) = (clock.now(), RwLock::new(Directory::new(board)));
        Self { clock, started, telemetry, events, readings: Readings::default(), directory }
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
