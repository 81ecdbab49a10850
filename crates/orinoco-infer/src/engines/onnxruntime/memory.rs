//! Allocator that serves ONNX Runtime's memory on the host from Orinoco's arenas.
//!
//! One allocator is registered with the environment, and every session that is configured to do so uses it. The purpose
//! of a request follows from the thread that makes it: a call of the engine runs [`inside`] a target, and the kernels
//! allocate on the calling thread. No request of ONNX Runtime is refused: 1.31 does not check every null pointer, and
//! was seen to compute wrong numbers without an error. A request that does not fit into an arena is served by the
//! system, and counted.
#![expect(unsafe_code, reason = "ONNX Runtime calls back with and for raw pointers")]

use std::alloc::Layout;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, Weak};

use ort::environment::Environment;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::sys::{OrtAllocator, OrtMemoryInfo};
use ort::{AsPointer, Error};

use super::process::{ARENAS, AllocationTarget, PLACE, STRAY};
use crate::scratch::Scratch;

/// Alignment that ONNX Runtime itself uses on the CPU (`MlasGetPreferredBufferAlignment`: a cache line, or an AVX-512
/// register).
const ALIGN_BYTES: usize = 64;

/// Returns the number of engines' memory requests, since the process began, from threads that were not inside a call of
/// ours, so that their purpose is unknown. The system served them.
pub fn stray_requests() -> u64 {
    STRAY.load(Ordering::Relaxed)
}

/// Adds an arena to the list in which freed ranges are looked up, so that any thread can free them.
pub(super) fn know(scratch: &Scratch) {
    let mut arenas = ARENAS.write().unwrap_or_else(PoisonError::into_inner);
    arenas.retain(|arena| arena.strong_count() > 0);
    if !arenas.iter().any(|arena| arena.as_ptr() == scratch.arena_ptr()) {
        arenas.push(scratch.downgrade());
    }
}

/// Runs `call` with the requests of this thread served from `place`.
pub(super) fn inside<R>(place: &AllocationTarget, call: impl FnOnce() -> R) -> R {
    /// Restores the previous target when it is dropped, also after a panic.
    struct Before(Option<AllocationTarget>);
    impl Drop for Before {
        fn drop(&mut self) {
            let before = self.0.take();
            PLACE.with_borrow_mut(|now| *now = before);
        }
    }
    if let AllocationTarget::Lane(scratch, owner) = place {
        scratch.set_owner(*owner);
    }
    let _before = Before(PLACE.with_borrow_mut(|now| now.replace(place.clone())));
    call()
}

/// Registers the allocator with the environment, for the rest of the process.
pub(super) fn register(environment: &Environment) -> Result<(), Error> {
    let info = MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Device, MemoryType::Default)?;
    register_allocator(environment, info, Functions { alloc, free, reserve })
}

/// Functions of an allocator.
pub(super) struct Functions {
    pub(super) alloc: unsafe extern "system" fn(*mut OrtAllocator, usize) -> *mut c_void,
    pub(super) free: unsafe extern "system" fn(*mut OrtAllocator, *mut c_void),
    pub(super) reserve: unsafe extern "system" fn(*const OrtAllocator, usize) -> *mut c_void,
}

/// Registers an allocator for the memory that `info_of` describes, for the rest of the process.
pub(super) fn register_allocator(
    environment: &Environment,
    info_of: MemoryInfo<'static>,
    functions: Functions,
) -> Result<(), Error> {
    #[repr(C)]
    struct Registered {
        allocator: OrtAllocator,
        info: *const OrtMemoryInfo,
    }

    unsafe extern "system" fn info(this: *const OrtAllocator) -> *const OrtMemoryInfo {
        // SAFETY: `this` is the first field of the `Registered` that was leaked below.
        unsafe { (*this.cast::<Registered>()).info }
    }

    // SAFETY: `default` sets the version of the headers and no callback; all four callbacks are set below.
    let mut allocator = unsafe { OrtAllocator::default() };
    allocator.Alloc = Some(functions.alloc);
    allocator.Free = Some(functions.free);
    allocator.Info = Some(info);
    allocator.Reserve = Some(functions.reserve);
    // ONNX Runtime keeps the pointer as long as the environment, which this process never drops.
    let registered = Box::leak(Box::new(Registered { allocator, info: info_of.ptr() }));
    std::mem::forget(info_of);
    // SAFETY: the environment is alive, and the allocator lives as long as the process.
    let status = unsafe {
        (ort::api().RegisterAllocator)(environment.ptr().cast_mut(), &raw mut registered.allocator)
    };
    // SAFETY: a status from the call above, taken once.
    unsafe { Error::result_from_status(status) }
}

unsafe extern "system" fn alloc(_: *mut OrtAllocator, bytes: usize) -> *mut c_void {
    take(bytes)
}

unsafe extern "system" fn reserve(_: *const OrtAllocator, bytes: usize) -> *mut c_void {
    take(bytes)
}

fn take(bytes: usize) -> *mut c_void {
    let Ok(layout) = Layout::from_size_align(bytes, ALIGN_BYTES) else { return ptr::null_mut() };
    if bytes == 0 {
        return ptr::null_mut();
    }
    let range = PLACE.with_borrow(|place| match place {
        Some(AllocationTarget::Lane(scratch, _)) => scratch.alloc(layout),
        Some(AllocationTarget::System) => None,
        None => {
            STRAY.fetch_add(1, Ordering::Relaxed);
            None
        }
    });
    range.map_or_else(|| system_alloc(bytes), |range| range.as_ptr().cast())
}

unsafe extern "system" fn free(_: *mut OrtAllocator, range: *mut c_void) {
    let Some(range) = NonNull::new(range.cast::<u8>()) else { return };
    let arenas = ARENAS.read().unwrap_or_else(PoisonError::into_inner);
    let arena = arenas.iter().filter_map(Weak::upgrade).find(|arena| arena.contains(range));
    let Some(arena) = arena else {
        // SAFETY: ONNX Runtime frees what it got from `take`; what lies in no arena came from `system_alloc`.
        unsafe { system_free(range) };
        return;
    };
    // An arena counts an address that it does not hold (`Arena::not_held`). That is a bug of the engine, but frees no
    // memory of the system.
    let _ = arena.free(range);
}

/// Returns the layout of a range from the system: a header of one alignment, which holds the size, and the range.
fn with_header(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.checked_add(ALIGN_BYTES)?, ALIGN_BYTES).ok()
}

fn system_alloc(bytes: usize) -> *mut c_void {
    let Some(layout) = with_header(bytes) else { return ptr::null_mut() };
    // SAFETY: the layout is not empty: it has the header.
    let start = unsafe { std::alloc::alloc(layout) };
    if start.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the header is `ALIGN_BYTES` long and aligned, more than a size needs; the range begins behind it.
    unsafe {
        start.cast::<usize>().write(bytes);
        start.add(ALIGN_BYTES).cast()
    }
}

/// # Safety
/// `range` must come from [`system_alloc`], and must not be used afterwards.
unsafe fn system_free(range: NonNull<u8>) {
    // SAFETY: the header lies before the range, with the size that the layout was made from.
    unsafe {
        let start = range.as_ptr().sub(ALIGN_BYTES);
        let layout = with_header(start.cast::<usize>().read()).expect("it was one before");
        std::alloc::dealloc(start, layout);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_arena_does_not_hold_is_counted_and_not_given_to_the_system() {
        let scratch = Scratch::new(1 << 16).unwrap();
        know(&scratch);
        let place = AllocationTarget::Lane(scratch.clone(), scratch.owner("m"));
        let range = inside(&place, || take(4 * ALIGN_BYTES));
        let arena = scratch.downgrade().upgrade().unwrap();
        assert_eq!((scratch.usage().held, arena.not_held()), (1, 0));
        let release = |range: *mut c_void| {
            // SAFETY: `free` does not touch its first argument, and no byte of a range in an arena.
            unsafe { free(ptr::null_mut(), range) }
        };
        release(range.wrapping_byte_add(ALIGN_BYTES));
        assert_eq!((scratch.usage().held, arena.not_held()), (1, 1));
        release(range);
        assert_eq!((scratch.usage().held, arena.not_held()), (0, 1));
        release(range);
        assert_eq!((scratch.usage().held, arena.not_held()), (0, 2));
    }
}
