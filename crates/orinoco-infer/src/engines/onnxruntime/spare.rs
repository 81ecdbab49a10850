//! A loaded session that nothing is bound to: the next binding takes it, so that weights are read once.

use std::sync::{Arc, Mutex, PoisonError};

use ort::session::Session as OrtSession;

/// Sizes of named axes, as a session was loaded with them.
pub(super) type Overrides = Vec<(String, i64)>;

/// The place for one session of a model. Clones are the same place.
#[derive(Clone)]
pub(super) struct SpareSession {
    slot: Arc<Mutex<Option<(Overrides, OrtSession)>>>,
}

impl SpareSession {
    /// A place with `session` in it, whose axes are as the file has them.
    pub(super) fn new(session: OrtSession) -> Self {
        Self { slot: Arc::new(Mutex::new(Some((Overrides::new(), session)))) }
    }

    /// Takes the session out. One with other `overrides` is dropped.
    pub(super) fn take(&self, overrides: &Overrides) -> Option<OrtSession> {
        let spare = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        spare.filter(|(with, _)| with == overrides).map(|(_, session)| session)
    }

    /// Puts in a session that was loaded with these `overrides`.
    pub(super) fn put(&self, session: OrtSession, overrides: Overrides) {
        let before = self.slot.lock().unwrap_or_else(PoisonError::into_inner).replace((overrides, session));
        // Dropping a session takes a while: not under the lock.
        drop(before);
    }
}
