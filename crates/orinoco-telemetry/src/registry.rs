use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

/// Folds by id. An id is never used again, even when its fold was removed.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    entries: RwLock<BTreeMap<u32, Arc<Mutex<T>>>>,
    next: AtomicU32,
    /// Fold for ids that were removed, so that a thread which ends late has a fold to write to.
    late: OnceLock<Arc<Mutex<T>>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { entries: RwLock::default(), next: AtomicU32::new(0), late: OnceLock::new() }
    }
}

impl<T: Default> Registry<T> {
    pub(crate) fn next_id(&self) -> u32 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        assert!(id < u32::MAX, "a run starts fewer than 2^32 streams and models");
        id
    }

    pub(crate) fn insert(&self, id: u32, fold: T) {
        self.entries.write().insert(id, Arc::new(Mutex::new(fold)));
    }

    pub(crate) fn get(&self, id: u32) -> Arc<Mutex<T>> {
        let entry = self.entries.read().get(&id).map(Arc::clone);
        entry.unwrap_or_else(|| Arc::clone(self.late.get_or_init(Arc::default)))
    }

    pub(crate) fn get_or_insert(&self, id: u32) -> Arc<Mutex<T>> {
        Arc::clone(self.entries.write().entry(id).or_default())
    }

    pub(crate) fn remove(&self, id: u32) -> Option<T> {
        let entry = self.entries.write().remove(&id)?;
        // An empty fold is large: it is made before the lock is taken, because a thread that ends late may emit now.
        let mut fold = T::default();
        std::mem::swap(&mut fold, &mut *entry.lock());
        Some(fold)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.read().len()
    }
}
