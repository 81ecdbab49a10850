//! State that ONNX Runtime's C API has once per process, or can assign only by thread. All contexts of a process share
//! it, and none owns it. Everything else belongs to an [`EngineContext`](crate::EngineContext).

use std::cell::RefCell;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, RwLock, Weak};

use orinoco_memory::{Arena, Owner};
#[cfg(feature = "cuda")]
use {
    orinoco_cuda::{Device, DeviceArena, DevicePool},
    std::collections::BTreeMap,
};

use super::library::Runtime;
use crate::scratch::Scratch;

/// Memory that serves the requests of a call.
#[derive(Clone)]
pub(super) enum AllocationTarget {
    /// The system's memory: for memory that stays (weights, and what is derived from them), and for probe inferences.
    System,
    /// A lane's scratch: for an execution, on the account of its model.
    Lane(Scratch, Owner),
}

/// Loaded library: `ort` opens one per process, in which ONNX Runtime has one environment. It is never dropped, because
/// the allocators that are registered with it are not notified of its end.
pub(super) static RUNTIME: Mutex<Option<Arc<Runtime>>> = Mutex::new(None);

thread_local! {
    /// Target of this thread's requests. An allocator's function receives only a size, on the thread that computes.
    pub(super) static PLACE: RefCell<Option<AllocationTarget>> = const { RefCell::new(None) };
}

/// Arenas in which the address of a freed range is looked up. Any thread may free it.
pub(super) static ARENAS: RwLock<Vec<Weak<Arena>>> = RwLock::new(Vec::new());

/// Number of requests from threads that were not inside a call of ours, so that their purpose and context are unknown.
pub(super) static STRAY: AtomicU64 = AtomicU64::new(0);

/// GPU, and the pool on it that an execution computes in.
#[cfg(feature = "cuda")]
pub(super) type OnDevice = (Device, Option<Arc<DevicePool>>);

#[cfg(feature = "cuda")]
thread_local! {
    /// Target of this thread's requests for memory of a GPU.
    pub(super) static ON_DEVICE: RefCell<Option<OnDevice>> = const { RefCell::new(None) };
}

/// Pools on GPUs in which the address of a freed range is looked up. Any thread may free it.
#[cfg(feature = "cuda")]
pub(super) static POOLS: RwLock<Vec<Weak<DevicePool>>> = RwLock::new(Vec::new());

/// Allocations on GPUs outside of the pools, by the address with which they are freed.
#[cfg(feature = "cuda")]
pub(super) static KEPT: Mutex<BTreeMap<u64, (Device, DeviceArena)>> = Mutex::new(BTreeMap::new());
