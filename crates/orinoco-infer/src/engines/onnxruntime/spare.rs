//! Loaded session without bindings: the next binding takes it, so that weights are read once.

use std::sync::{Arc, Mutex, PoisonError};

use ort::session::Session as OrtSession;

/// Sizes of named axes with which a session was loaded.
pub(super) type Overrides = Vec<(String, i64)>;

/// Slot for one loaded session of a model. Clones are the same slot.
#[derive(Clone)]
pub(super) struct SpareSession {
    slot: Arc<Mutex<Option<(Overrides, OrtSession)>>>,
}

impl SpareSession {
    /// Creates a slot with `session` in it, which was loaded without overrides.
    pub(super) fn new(session: OrtSession) -> Self {
        Self { slot: Arc::new(Mutex::new(Some((Overrides::new(), session)))) }
    }

    /// Takes the session out. A session with other `overrides` is dropped.
    pub(super) fn take(&self, overrides: &Overrides) -> Option<OrtSession> {
        let spare = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        spare.filter(|(with, _)| with == overrides).map(|(_, session)| session)
    }

    /// Puts a session in that was loaded with these `overrides`.
    pub(super) fn put(&self, session: OrtSession, overrides: Overrides) {
        let before = self.slot.lock().unwrap_or_else(PoisonError::into_inner).replace((overrides, session));
        // Dropping a session takes a while, so it is not done under the lock.
        drop(before);
    }
}
