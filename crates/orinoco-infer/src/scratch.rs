//! The memory in which a lane's engines compute.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use orinoco_memory::{Arena, ArenaError, Owner, Usage};

/// One area of memory for all models of a lane, which never run at the same time: what one computes in, the next computes
/// in as well.
#[derive(Clone, Debug)]
pub struct Scratch(Arc<Arena>);

impl Scratch {
    /// Maps `bytes`; the system gives pages as they are first touched.
    pub fn new(bytes: usize) -> Result<Self, ArenaError> {
        Ok(Self(Arc::new(Arena::new(bytes)?)))
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// What all models did in it. `refused` counts what did not fit, which then came from the system.
    pub fn usage(&self) -> Usage {
        self.0.usage()
    }

    /// What each model did in it, by name.
    pub fn owners(&self) -> Vec<(String, Usage)> {
        self.0.owners()
    }

    pub(crate) fn owner(&self, name: &str) -> Owner {
        self.0.owner(name)
    }

    pub(crate) fn set_owner(&self, owner: Owner) {
        self.0.set_owner(owner);
    }

    pub(crate) fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.0.alloc(layout)
    }

    pub(crate) fn downgrade(&self) -> Weak<Arena> {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn arena_ptr(&self) -> *const Arena {
        Arc::as_ptr(&self.0)
    }
}
