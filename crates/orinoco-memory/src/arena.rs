//! Arena: memory that is mapped once and handed out in pieces.
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

/// Failure to map an arena, or to return its pages to the system.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The system has no memory mapping of this size.
    #[error("mapping {} MiB for an arena", Mib(*bytes as u64))]
    Map {
        /// Size of the arena, in bytes.
        bytes: usize,
        /// Error of the system.
        source: io::Error,
    },
    /// The system did not take the pages back.
    #[error("giving unused pages of an arena back")]
    Release {
        /// Error of the system.
        source: io::Error,
    },
}

/// Error: the pointer is not the start of a range that the arena has handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no range of the arena starts there")]
pub struct UnknownRange;

/// Fixed memory area from which engines allocate and free in any order and from any thread.
///
/// It is mapped once, never grows, and never falls back to the system's allocator: a request that does not fit is
/// refused and counted. Models of a lane use one arena in turn: [`Arena::set_owner`] before an execution names the
/// model to which the next requests are accounted, and when one model has freed all of its ranges, the next one's lie
/// in the same bytes.
///
/// Memory that an engine keeps between runs belongs in another arena than its activations: kept ranges stay where they
/// are, and split the free space.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    bytes: usize,
    ledger: Mutex<Ledger>,
}

// SAFETY: nothing in an arena belongs to the thread that made it: a mapping is the process's, `base` and `bytes` never
// change, and no byte of the memory is read or written here.
unsafe impl Send for Arena {}
// SAFETY: as above; only the ledger changes, and its mutex protects it.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps `bytes`, rounded up to whole pages. The system fills pages with zeros as they are first touched, and
    /// commits the whole mapping, because the memory of a plan must be available.
    pub fn new(bytes: usize) -> Result<Self, ArenaError> {
        Self::map(bytes, MapFlags::PRIVATE)
    }

    /// Maps an area of which most is never touched, like [`Arena::new`] but without commitment: the system counts only
    /// touched pages. (With `vm.overcommit_memory = 2` it counts the whole mapping all the same: proc_sys_vm(5).)
    pub fn unreserved(bytes: usize) -> Result<Self, ArenaError> {
        Self::map(bytes, MapFlags::PRIVATE | MapFlags::NORESERVE)
    }

    fn map(bytes: usize, kind: MapFlags) -> Result<Self, ArenaError> {
        let refused = |source: io::Error| ArenaError::Map { bytes, source };
        let rounded = bytes.checked_next_multiple_of(page_size());
        let bytes = rounded.ok_or_else(|| refused(io::ErrorKind::OutOfMemory.into()))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address (the given one is null and the flags lack FIXED), so no mapping that
        // is in use is replaced.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, access, kind) };
        let base = base.map_err(|source| refused(source.into()))?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0 unless told to");
        Ok(Self { base, bytes, ledger: Mutex::new(Ledger::new(bytes, page_size())) })
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Allocates a range for `layout`, which stays allocated until it is [freed](Self::free). Returns `None` when it
    /// does not fit, or its alignment is larger than a page. Its bytes are not initialised. The range is valid as long
    /// as the arena.
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

    /// Whether `ptr` points into this arena's memory, allocated or free.
    pub fn contains(&self, ptr: NonNull<u8>) -> bool {
        let offset = ptr.addr().get().checked_sub(self.base.addr().get());
        offset.is_some_and(|offset| offset < self.bytes)
    }

    /// Frees a range, from any thread. The former holder must not access it any more, because another request may get
    /// it.
    pub fn free(&self, ptr: NonNull<u8>) -> Result<(), UnknownRange> {
        let offset = ptr.addr().get().checked_sub(self.base.addr().get());
        if self.ledger().release(offset) { Ok(()) } else { Err(UnknownRange) }
    }

    /// Returns the owner with this name, and creates it when the name is new.
    pub fn owner(&self, name: &str) -> Owner {
        self.ledger().owner(name)
    }

    /// Accounts all later requests, from any thread, to `owner`. Returns the previous owner.
    pub fn set_owner(&self, owner: Owner) -> Owner {
        self.ledger().set_owner(owner)
    }

    /// Returns the usage of all owners together.
    pub fn usage(&self) -> Usage {
        self.ledger().total()
    }

    /// Returns the usage of each owner, in the order in which they were created; [`Owner::NOBODY`] is the first.
    pub fn owners(&self) -> Vec<(String, Usage)> {
        self.ledger().owners().to_vec()
    }

    /// Returns how often [`Arena::free`] was called for a pointer that was not held, which is a bug of the engine.
    pub fn not_held(&self) -> u64 {
        self.ledger().not_held()
    }

    /// Returns every page without an allocated byte to the system. They stay part of the arena, and are zero when
    /// touched again. Returns the number of bytes, touched before or not.
    pub fn release_unused(&self) -> Result<usize, ArenaError> {
        let ledger = self.ledger();
        let mut released = 0;
        for pages in ledger.free_units(page_size()) {
            assert!(pages.end <= self.bytes, "the ledger gave {pages:?} of {} bytes", self.bytes);
            // SAFETY: whole pages inside our mapping (asserted above; `base` is a page's start). Their contents are
            // lost, and nobody holds them: the ledger has them as free, and is locked until the loop is over.
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
        // SAFETY: unmaps exactly the mapping of `new`, once. The code that dereferences a range promises not to use it
        // after this (`alloc`).
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole mapping: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests;
