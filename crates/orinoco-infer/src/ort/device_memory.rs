//! ONNX Runtime's memory on the GPU, taken from our pools.
//!
//! Its CUDA provider calls two functions of ours in place of its own arena (`gpu_external_alloc`, `gpu_external_free`).
//! What a request is for follows from the thread it comes from: a replay runs [`inside`] the pool of its lane, and kernels
//! ask on the calling thread. Everything else stays (weights, bound tensors), and is an allocation of its own. To refuse
//! is safe here: the provider checks what it gets.
//!
//! A graph that the provider captured goes on using the ranges which it held while it was captured, and gave back. That is
//! sound in a lane's pool because the models of a lane never run at the same time, and because none of them keeps a range
//! from run to run, which is checked when it is bound.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use orinoco_cuda::{DeviceArena, DevicePool};
use orinoco_memory::Owner;

thread_local! {
    static POOL: RefCell<Option<Arc<DevicePool>>> = const { RefCell::new(None) };
}

/// Every pool that a range may have come from; a freed range finds its own again here.
static POOLS: RwLock<Vec<Weak<DevicePool>>> = RwLock::new(Vec::new());

/// What stays, by its address.
static KEPT: Mutex<BTreeMap<u64, DeviceArena>> = Mutex::new(BTreeMap::new());

/// The addresses of the two functions, as the provider's options take them: to allocate, and to free.
pub(super) fn functions() -> (usize, usize) {
    let alloc: extern "C" fn(usize) -> *mut c_void = alloc;
    let free: extern "C" fn(*mut c_void) = free;
    (alloc as usize, free as usize)
}

/// Makes a pool known, so that ranges of it can be freed from any thread.
fn know(pool: &Arc<DevicePool>) {
    let mut pools = POOLS.write().unwrap_or_else(PoisonError::into_inner);
    pools.retain(|pool| pool.strong_count() > 0);
    if !pools.iter().any(|known| known.as_ptr() == Arc::as_ptr(pool)) {
        pools.push(Arc::downgrade(pool));
    }
}

/// A pool to compute in, and on whose account.
pub(super) struct DevicePlace {
    pool: Arc<DevicePool>,
    owner: Owner,
}

impl DevicePlace {
    /// On the account of the model of this name.
    pub(super) fn new(pool: &Arc<DevicePool>, model: &str) -> Self {
        know(pool);
        Self { pool: Arc::clone(pool), owner: pool.owner(model) }
    }
}

/// Calls the engine with the memory of `place`, where there is one.
pub(super) fn inside<R>(place: Option<&DevicePlace>, call: impl FnOnce() -> R) -> R {
    /// Puts the pool before back, also after a panic.
    struct Before(Option<Arc<DevicePool>>);
    impl Drop for Before {
        fn drop(&mut self) {
            let before = self.0.take();
            POOL.with_borrow_mut(|now| *now = before);
        }
    }
    let Some(DevicePlace { pool, owner }) = place else { return call() };
    pool.set_owner(*owner);
    let _before = Before(POOL.with_borrow_mut(|now| now.replace(Arc::clone(pool))));
    call()
}

extern "C" fn alloc(bytes: usize) -> *mut c_void {
    if bytes == 0 {
        return ptr::null_mut();
    }
    let range = POOL.with_borrow(|pool| pool.as_ref().and_then(|pool| pool.alloc(bytes)));
    range.or_else(|| keep(bytes)).map_or_else(ptr::null_mut, |address| address as *mut c_void)
}

/// An allocation of its own: what stays, and what a pool has no room for.
fn keep(bytes: usize) -> Option<u64> {
    let device = crate::cuda::device().ok()?;
    let range = DeviceArena::new(&device, bytes).ok()?;
    let address = range.whole().address();
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(address, range);
    Some(address)
}

extern "C" fn free(range: *mut c_void) {
    let address = range as u64;
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
    if address == 0 || kept.is_some() {
        return;
    }
    let pools = POOLS.read().unwrap_or_else(PoisonError::into_inner);
    let pool = pools.iter().filter_map(Weak::upgrade).find(|pool| pool.contains(address));
    // What a pool does not hold it counts (`DevicePool::not_held`): a bug of the engine, but no range of somebody else's.
    let _ = pool.map(|pool| pool.free(address));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::device;
    use crate::driver;
    use orinoco_cuda::allocated;
    use std::thread;

    #[expect(clippy::print_stderr, reason = "a test that did not run says so")]
    fn note(text: &str) {
        eprintln!("{text}");
    }

    #[test]
    fn on_the_stand_in_driver_too() {
        if let Err(why) = driver::run_with_stand_in(&["--test-threads=1", "ort::device_memory::"]) {
            note(&format!("skipped: the stand-in driver: {why}"));
        }
    }

    #[test]
    fn a_replay_is_served_from_its_pool_and_what_stays_by_itself() {
        let device = match device() {
            Ok(device) => device,
            Err(why) => {
                assert!(alloc(8).is_null(), "there is no GPU");
                return note(&format!("skipped: memory of a replay: {why}"));
            }
        };
        let before = allocated();
        let pool = Arc::new(DevicePool::new(&device, 4096).expect("little memory"));
        let place = DevicePlace::new(&pool, "m");
        let pooled = allocated().device_bytes;
        let grown = || allocated().device_bytes - pooled;

        let stays = alloc(1000);
        assert_eq!((grown(), pool.usage().allocations), (1000, 0));
        let (ours, too_large) = inside(Some(&place), || (alloc(1000), alloc(8192)));
        assert!(pool.contains(ours as u64) && !pool.contains(too_large as u64));
        assert_eq!((grown(), pool.usage().held, pool.usage().refused), (1000 + 8192, 1, 1));
        assert_eq!(pool.owners()[1].0, "m");
        let also_stays = alloc(10);
        assert!(!pool.contains(also_stays as u64), "the replay is over");

        let addresses = [stays, ours, too_large, also_stays].map(|range| range as u64);
        let free_all = move || addresses.into_iter().for_each(|address| free(address as *mut c_void));
        thread::spawn(free_all).join().expect("any thread may free");
        assert_eq!((grown(), pool.usage().held, pool.not_held()), (0, 0, 0));
        free(ours);
        assert_eq!((pool.usage().held, pool.not_held()), (0, 1), "it is held no more");
        free(ptr::null_mut());
        assert!(alloc(0).is_null());
        drop((pool, place));
        assert_eq!(allocated(), before);
        // The stand-in wants everything back at the end.
        *crate::cuda::DEVICE.lock().expect("nobody panicked") = None;
    }
}
