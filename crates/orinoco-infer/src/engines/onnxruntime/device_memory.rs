//! ONNX Runtime's memory on the GPU, taken from our pools.
//!
//! As on the CPU, one allocator of ours is registered with the environment, here for the memory of the GPU, and sessions that
//! were told to take it in place of their provider's arena. (The provider's own options for such functions,
//! `gpu_external_alloc`, reach it through Python only.) What a request is for follows from the thread it comes from: a replay
//! runs [`inside`] the pool of its lane, and kernels ask on the calling thread. Everything else stays (weights, bound
//! tensors), and is an allocation of its own.
//!
//! A graph that the provider captured goes on using the ranges which it held while it was captured, and gave back. That is
//! sound in a lane's pool because the models of a lane never run at the same time, and because what one of them keeps there
//! is never read after another has run: nothing at all by a session whose tensors are on the GPU, which is checked when it
//! is bound, and copies of the inputs, made anew for each run, by the others.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, PoisonError, Weak};

use orinoco_cuda::{Device, DeviceArena, DevicePool};
use orinoco_memory::Owner;
use ort::Error;
use ort::environment::Environment;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::sys::OrtAllocator;

use super::memory::{Functions, register_allocator};
use super::process::{KEPT, ON_DEVICE, OnDevice, POOLS};
use crate::context::DEVICE;

/// Registers the allocator with the environment, for the rest of the process.
pub(super) fn register(environment: &Environment) -> Result<(), Error> {
    let info =
        MemoryInfo::new(AllocationDevice::CUDA, DEVICE as i32, AllocatorType::Device, MemoryType::Default)?;
    register_allocator(environment, info, Functions { alloc, free, reserve })
}

/// Makes a pool known, so that ranges of it can be freed from any thread.
fn know(pool: &Arc<DevicePool>) {
    let mut pools = POOLS.write().unwrap_or_else(PoisonError::into_inner);
    pools.retain(|pool| pool.strong_count() > 0);
    if !pools.iter().any(|known| known.as_ptr() == Arc::as_ptr(pool)) {
        pools.push(Arc::downgrade(pool));
    }
}

/// Where on a GPU the requests of a call go.
pub(super) struct DevicePlace {
    device: Device,
    /// A pool to compute in, and on whose account.
    pool: Option<(Arc<DevicePool>, Owner)>,
}

impl DevicePlace {
    /// For what stays: each request is an allocation of its own.
    pub(super) fn kept(device: &Device) -> Self {
        Self { device: device.clone(), pool: None }
    }

    /// For a replay, on the account of the model of this name.
    pub(super) fn pool(pool: &Arc<DevicePool>, model: &str) -> Self {
        know(pool);
        Self { device: pool.device().clone(), pool: Some((Arc::clone(pool), pool.owner(model))) }
    }
}

/// Calls the engine with the memory of `place`, and lets it allocate while another thread captures.
pub(super) fn inside<R>(place: &DevicePlace, call: impl FnOnce() -> R) -> R {
    /// Puts the place before back, also after a panic.
    struct Before(Option<OnDevice>);
    impl Drop for Before {
        fn drop(&mut self) {
            let before = self.0.take();
            ON_DEVICE.with_borrow_mut(|now| *now = before);
        }
    }
    // Where this fails, so does whatever the engine is called for.
    let _ = place.device.leave_captures_alone();
    let pool = place.pool.as_ref().map(|(pool, owner)| {
        pool.set_owner(*owner);
        Arc::clone(pool)
    });
    let here = (place.device.clone(), pool);
    let _before = Before(ON_DEVICE.with_borrow_mut(|now| now.replace(here)));
    call()
}

extern "system" fn alloc(_: *mut OrtAllocator, bytes: usize) -> *mut c_void {
    take(bytes)
}

extern "system" fn reserve(_: *const OrtAllocator, bytes: usize) -> *mut c_void {
    take(bytes)
}

fn take(bytes: usize) -> *mut c_void {
    if bytes == 0 {
        return ptr::null_mut();
    }
    let range = ON_DEVICE.with_borrow(|here| match here {
        Some((device, pool)) => {
            pool.as_ref().and_then(|pool| pool.alloc(bytes)).or_else(|| keep(device, bytes))
        }
        None => keep_on_any(bytes),
    });
    range.map_or_else(ptr::null_mut, |address| address as *mut c_void)
}

/// An allocation of its own: what stays, and what a pool has no room for. While ONNX Runtime captures, the driver allocates
/// nothing: then a pool that is too small fails the run.
fn keep(device: &Device, bytes: usize) -> Option<u64> {
    let range = DeviceArena::new(device, bytes).ok()?;
    let address = range.whole().address();
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(address, (device.clone(), range));
    Some(address)
}

/// The same for a thread of ONNX Runtime's own, of which we do not know what it works for: where the weights are.
fn keep_on_any(bytes: usize) -> Option<u64> {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let device = kept.values().next().map(|(device, _)| device.clone());
    drop(kept);
    keep(&device?, bytes)
}

extern "system" fn free(_: *mut OrtAllocator, range: *mut c_void) {
    release(range as u64);
}

fn release(address: u64) {
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
    use crate::context::EngineContext;
    use orinoco_cuda::allocated;
    use orinoco_cuda_doubles::{is_stand_in, run_with_stand_in};
    use std::thread;

    #[expect(clippy::print_stderr, reason = "a test that did not run says so")]
    fn note(text: &str) {
        eprintln!("{text}");
    }

    #[test]
    fn on_the_stand_in_driver_too() {
        if let Err(why) = run_with_stand_in(&["--test-threads=1", "engines::onnxruntime::device_memory::"]) {
            note(&format!("skipped: the stand-in driver: {why}"));
        }
    }

    #[test]
    fn onnx_runtime_takes_an_allocator_for_a_gpu() {
        if !is_stand_in() {
            // Other tests of this program want no library to be loaded.
            return;
        }
        match super::super::runtime::runtime(&EngineContext::default()) {
            Ok(runtime) => register(&runtime.environment).expect("as for the CPU"),
            Err(why) => note(&format!("skipped: an allocator for a GPU: {why}")),
        }
    }

    #[test]
    fn a_replay_is_served_from_its_pool_and_what_stays_by_itself() {
        let context = EngineContext::default();
        let device = match context.device() {
            Ok(device) => device,
            Err(why) => {
                assert!(take(8).is_null(), "there is no GPU");
                return note(&format!("skipped: memory of a replay: {why}"));
            }
        };
        let before = allocated();
        let pool = Arc::new(DevicePool::new(&device, 4096).expect("little memory"));
        let (place, outside) = (DevicePlace::pool(&pool, "m"), DevicePlace::kept(&device));
        let pooled = allocated().device_bytes;
        let grown = || allocated().device_bytes - pooled;

        let stays = inside(&outside, || take(1000));
        assert_eq!((grown(), pool.usage().allocations), (1000, 0));
        let (ours, too_large) = inside(&place, || (take(1000), take(8192)));
        assert!(pool.contains(ours as u64) && !pool.contains(too_large as u64));
        assert_eq!((grown(), pool.usage().held, pool.usage().refused), (1000 + 8192, 1, 1));
        assert_eq!(pool.owners()[1].0, "m");
        let also_stays = take(10);
        assert!(!pool.contains(also_stays as u64), "the replay is over");

        let addresses = [stays, ours, too_large, also_stays].map(|range| range as u64);
        let free_all = move || addresses.into_iter().for_each(release);
        thread::spawn(free_all).join().expect("any thread may free");
        assert_eq!((grown(), pool.usage().held, pool.not_held()), (0, 0, 0));
        release(ours as u64);
        assert_eq!((pool.usage().held, pool.not_held()), (0, 1), "it is held no more");
        release(0);
        assert!(take(0).is_null());
        drop((pool, place, outside));
        assert_eq!(allocated(), before);
    }
}
