//! Allocations of the driver, and how much of each kind this process holds.
#![expect(unsafe_code, reason = "the driver's allocations are raw memory")]

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys;

use crate::CudaError;
use crate::driver::check;

/// Bytes that this process holds through this crate now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatedBytes {
    /// Of GPUs' memory.
    pub device_bytes: u64,
    /// Of the host's, page-locked.
    pub pinned_bytes: u64,
}

static DEVICE_BYTES: AtomicU64 = AtomicU64::new(0);
static PINNED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Memory that this process holds through this crate now. The driver takes more: for its context, for the
/// kernels, and for libraries such as cuDNN.
pub fn allocated() -> AllocatedBytes {
    AllocatedBytes {
        device_bytes: DEVICE_BYTES.load(Ordering::Relaxed),
        pinned_bytes: PINNED_BYTES.load(Ordering::Relaxed),
    }
}

/// An allocation of the driver's that nobody owns any more.
pub(crate) enum Block {
    Device { address: sys::CUdeviceptr, bytes: usize },
    Pinned { host: NonNull<u8>, bytes: usize },
}

// SAFETY: the memory belongs to the block alone, and is bound to no thread.
unsafe impl Send for Block {}

impl Block {
    /// Allocates `bytes` bytes of the device whose context is current.
    pub(crate) fn alloc_device(
        bytes: usize,
        doing: impl FnOnce() -> String,
    ) -> Result<sys::CUdeviceptr, CudaError> {
        let mut address = 0;
        // SAFETY: `address` is a place for the pointer.
        let result = unsafe { sys::cuMemAlloc_v2(&mut address, bytes) };
        check(result, "cuMemAlloc", doing)?;
        DEVICE_BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(address)
    }

    /// Allocates `bytes` bytes of zeros on the host, page-locked and mapped for the device whose context is current.
    pub(crate) fn alloc_pinned(
        bytes: usize,
        doing: impl FnOnce() -> String,
    ) -> Result<NonNull<u8>, CudaError> {
        let mut host = ptr::null_mut();
        // SAFETY: `host` is a place for the pointer.
        let result = unsafe { sys::cuMemHostAlloc(&mut host, bytes, sys::CU_MEMHOSTALLOC_DEVICEMAP) };
        check(result, "cuMemHostAlloc", doing)?;
        let host = NonNull::new(host.cast::<u8>()).expect("the driver has just allocated it");
        // SAFETY: the driver gave `bytes` bytes; nobody else knows of them yet.
        unsafe { ptr::write_bytes(host.as_ptr(), 0, bytes) };
        PINNED_BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(host)
    }

    /// Frees it. Call it in its context when the device is done with what was launched before, and no capture is under way:
    /// `frees.rs` does.
    pub(crate) fn free(self) {
        match self {
            Self::Device { address, bytes } => {
                // SAFETY: `alloc_device` allocated it, its last owner made this block, and the device is done.
                let _ = unsafe { sys::cuMemFree_v2(address) };
                DEVICE_BYTES.fetch_sub(bytes as u64, Ordering::Relaxed);
            }
            Self::Pinned { host, bytes } => {
                // SAFETY: `alloc_pinned` allocated it, its last owner made this block, and the device is done.
                let _ = unsafe { sys::cuMemFreeHost(host.as_ptr().cast()) };
                PINNED_BYTES.fetch_sub(bytes as u64, Ordering::Relaxed);
            }
        }
    }
}
