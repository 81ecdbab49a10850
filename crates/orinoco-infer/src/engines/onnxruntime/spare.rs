//! A loaded session that nothing is bound to: the next binding takes it, so that weights are read once.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ort::session::Session as OrtSession;

/// Sizes of named axes, as a session was loaded with them.
pub(super) type Overrides = Vec<(String, i64)>;

/// The place for one session of a model. Sessions that it lent come back to it when they are dropped, while the model is
/// still there.
pub(super) struct SpareSession {
    slot: Arc<Slot>,
}

type Slot = Mutex<Option<(Overrides, OrtSession)>>;

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

    /// `session`, which comes here when it is dropped.
    pub(super) fn lend(&self, session: OrtSession, overrides: Overrides) -> LentSession {
        LentSession { session: Some((overrides, session)), home: Arc::downgrade(&self.slot) }
    }
}

/// A session that may go back to its model.
pub(super) struct LentSession {
    /// Always there until it is dropped.
    session: Option<(Overrides, OrtSession)>,
    home: Weak<Slot>,
}

impl LentSession {
    /// One that nobody wants back.
    #[cfg(feature = "cuda")]
    pub(super) fn for_good(session: OrtSession) -> Self {
        Self { session: Some((Overrides::new(), session)), home: Weak::new() }
    }
}

const THERE: &str = "it is there until it is dropped";

impl Deref for LentSession {
    type Target = OrtSession;

    fn deref(&self) -> &OrtSession {
        &self.session.as_ref().expect(THERE).1
    }
}

impl DerefMut for LentSession {
    fn deref_mut(&mut self) -> &mut OrtSession {
        &mut self.session.as_mut().expect(THERE).1
    }
}

impl Drop for LentSession {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        let before =
            home.lock().unwrap_or_else(PoisonError::into_inner).replace(self.session.take().expect(THERE));
        // Dropping a session takes a while: not under the lock.
        drop(before);
    }
}
