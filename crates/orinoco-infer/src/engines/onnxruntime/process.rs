//! What ONNX Runtime's C API has once per process, or tells apart by nothing but the thread. Everything else belongs to an
//! [`EngineContext`](crate::EngineContext); these are shared by all contexts of a process, and no context owns them.

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

/// What the requests of a call are for.
#[derive(Clone)]
pub(super) enum AllocationTarget {
    /// What stays (weights, and what is made of them), and the proof of an engine: the system's.
    System,
    /// A replay on a lane.
    Lane(Scratch, Owner),
}

/// The loaded library: `ort` opens one for a process, in which ONNX Runtime has one environment. It is never dropped,
/// because the allocators that are registered with it are told nothing of its end.
pub(super) static RUNTIME: Mutex<Option<Arc<Runtime>>> = Mutex::new(None);

thread_local! {
    /// What this thread works for. An allocator's function gets a size and nothing else, on the thread that computes.
    pub(super) static PLACE: RefCell<Option<AllocationTarget>> = const { RefCell::new(None) };
}

/// Every arena that a range may have come from. A freed range comes as an address, from any thread.
pub(super) static ARENAS: RwLock<Vec<Weak<Arena>>> = RwLock::new(Vec::new());

/// Requests that came from a thread of which we do not know what it works for, and so no context either.
pub(super) static STRAY: AtomicU64 = AtomicU64::new(0);

/// A GPU, and the pool on it that a replay computes in.
#[cfg(feature = "cuda")]
pub(super) type OnDevice = (Device, Option<Arc<DevicePool>>);

#[cfg(feature = "cuda")]
thread_local! {
    /// The same for memory of the GPU.
    pub(super) static ON_DEVICE: RefCell<Option<OnDevice>> = const { RefCell::new(None) };
}

/// The same for pools on the GPU.
#[cfg(feature = "cuda")]
pub(super) static POOLS: RwLock<Vec<Weak<DevicePool>>> = RwLock::new(Vec::new());

/// What stays on a GPU, by its address: it is freed by that, too.
#[cfg(feature = "cuda")]
pub(super) static KEPT: Mutex<BTreeMap<u64, (Device, DeviceArena)>> = Mutex::new(BTreeMap::new());
