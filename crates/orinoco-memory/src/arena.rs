//! Memory that is mapped once and handed out in pieces.
#![expect(unsafe_code, reason = "mapping memory, and pointers into it")]

use std::alloc::Layout;
use std::ffi::c_void;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard};

use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::param::page_size;

use crate::Mib;
use crate::ledger::{Ledger, Owner, Usage};

/// An arena that cannot be made, or pages that cannot be given back.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The system has no such mapping for us.
    #[error("mapping {} MiB for an arena", Mib(*bytes as u64))]
    Map {
        /// The arena's size.
        bytes: usize,
        /// Why.
        source: io::Error,
    },
    /// The system did not take the pages.
    #[error("giving unused pages of an arena back")]
    Release {
        /// Why.
        source: io::Error,
    },
}

/// A pointer that is not to the start of a range that the arena handed out and did not get back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no range of the arena starts there")]
pub struct UnknownRange;

/// A fixed stretch of memory from which engines allocate and free in any order and from any thread.
///
/// It is mapped once, never grows, and never falls back to the system's allocator: what does not fit is refused and
/// counted. Models of a lane use one arena in turn: [`Arena::set_owner`] before a replay says on whose account the next
/// requests are, and when one model has freed all of its ranges, the next one's lie in the same bytes.
///
/// What an engine keeps between runs belongs in another arena than its activations: kept ranges lie where they were
/// taken, and split the rest.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    bytes: usize,
    ledger: Mutex<Ledger>,
}

// SAFETY: nothing in an arena belongs to the thread that made it: a mapping is the process's, `base` and `bytes` never
// change, and no byte of the memory is read or written here.
unsafe impl Send for Arena {}
// SAFETY: as above; all that changes is the ledger, behind its mutex.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps `bytes`, rounded up to whole pages. The system gives it pages of zeroes as they are first touched, and counts
    /// the whole mapping as promised: a plan is meant to hold.
    pub fn new(bytes: usize) -> Result<Self, ArenaError> {
        Self::map(bytes, MapFlags::PRIVATE)
    }

    /// The same for an area of which most is never touched: the system promises nothing, and counts only what is touched.
    /// (With `vm.overcommit_memory = 2` it counts the whole mapping all the same: proc_sys_vm(5).)
    pub fn unreserved(bytes: usize) -> Result<Self, ArenaError> {
        Self::map(bytes, MapFlags::PRIVATE | MapFlags::NORESERVE)
    }

    fn map(bytes: usize, kind: MapFlags) -> Result<Self, ArenaError> {
        let refused = |source: io::Error| ArenaError::Map { bytes, source };
        let rounded = bytes.checked_next_multiple_of(page_size());
        let bytes = rounded.ok_or_else(|| refused(io::ErrorKind::OutOfMemory.into()))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses where (the address is null and the flags lack FIXED), so no mapping that is in use
        // is replaced.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, access, kind) };
        let base = base.map_err(|source| refused(source.into()))?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0 unless told to");
        Ok(Self { base, bytes, ledger: Mutex::new(Ledger::new(bytes, page_size())) })
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A range for `layout`, its own until it is [freed](Self::free); `None` when it does not fit, or asks for a coarser
    /// alignment than a page. Its bytes are whatever was there. The range is valid as long as the arena.
    ///
    /// A refusal must not reach ONNX Runtime as a null pointer: 1.31 does not check all of them, and was seen to crash,
    /// and to compute wrong numbers without an error when a kernel's buffer was refused. Its caller serves such a request
    /// elsewhere, and fails the run in which [`Usage::refused`] grew.
    pub fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        let offset = self.ledger().take(layout)?;
        assert!(offset < self.bytes, "the ledger gave offset {offset} of {} bytes", self.bytes);
        // SAFETY: `base` points to `bytes` mapped bytes (`new`), which stay mapped until `drop`, and `offset` is below
        // that (asserted above), so the sum stays inside the mapping. The kernel maps at most `isize::MAX` bytes.
        Some(unsafe { self.base.add(offset) })
    }

    /// Whether `ptr` is into this arena's memory, held or not.
    pub fn contains(&self, ptr: NonNull<u8>) -> bool {
        let offset = ptr.addr().get().checked_sub(self.base.addr().get());
        offset.is_some_and(|offset| offset < self.bytes)
    }

    /// Takes a range back, whoever frees it. Its holder must not touch it any more: another request may get it.
    pub fn free(&self, ptr: NonNull<u8>) -> Result<(), UnknownRange> {
        let offset = ptr.addr().get().checked_sub(self.base.addr().get());
        if self.ledger().release(offset) { Ok(()) } else { Err(UnknownRange) }
    }

    /// The owner of that name; made when it is first asked for.
    pub fn owner(&self, name: &str) -> Owner {
        self.ledger().owner(name)
    }

    /// From now on requests, of whichever thread, are on `owner`'s account. Gives the owner before.
    pub fn set_owner(&self, owner: Owner) -> Owner {
        self.ledger().set_owner(owner)
    }

    /// What all owners did together.
    pub fn usage(&self) -> Usage {
        self.ledger().total()
    }

    /// What each owner did, in the order in which they were named; nobody comes first.
    pub fn owners(&self) -> Vec<(String, Usage)> {
        self.ledger().owners().to_vec()
    }

    /// How often [`Arena::free`] was asked to take back what was not held: a bug of the engine.
    pub fn not_held(&self) -> u64 {
        self.ledger().not_held()
    }

    /// Gives the system back every page that nobody holds a byte of. They stay the arena's, and are zeroes when touched
    /// again. Says how many bytes that were, touched or not.
    pub fn release_unused(&self) -> Result<usize, ArenaError> {
        let ledger = self.ledger();
        let mut released = 0;
        for pages in ledger.free_units(page_size()) {
            assert!(pages.end <= self.bytes, "the ledger gave {pages:?} of {} bytes", self.bytes);
            // SAFETY: whole pages inside our mapping (asserted above; `base` is a page's start). Their contents are
            // lost, and nobody holds them: the ledger says so, and is locked until the loop is over.
            let done = unsafe {
                let start = self.base.add(pages.start).as_ptr().cast::<c_void>();
                rustix::mm::madvise(start, pages.len(), Advice::LinuxDontNeed)
            };
            done.map_err(|source| ArenaError::Release { source: source.into() })?;
            released += pages.len();
        }
        Ok(released)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("whoever held the lock did not panic")
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped, once. That no range is used after this is the promise of whoever
        // dereferences one (`alloc`).
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole mapping: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests;
