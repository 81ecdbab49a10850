//! Memory that the GPU reads and writes. A device's buffers come from one planned allocation. Frames come through pinned
//! memory: an integrated GPU reads it in place, and for a discrete GPU it is copied while other work runs.
//!
//! All of it is plain bytes. If the host reads memory that a kernel still writes, it gets wrong data. If it changes a table
//! that a kernel still reads, the kernel gets wrong data or the driver returns an error; kernels never write through a
//! table. So the caller must wait for the stream first. Memory is freed only when the device is done.

#![expect(unsafe_code, reason = "the driver's allocations are raw memory")]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use cudarc::driver::sys;
use orinoco_core::text::mebibytes;

use crate::block::Block;
use crate::context::Context;
use crate::driver::check;
use crate::launch::Launch;
use crate::span::{Owner, Span};
use crate::{CudaError, Device};

/// Minimum size of an allocation, in bytes: `cuMemAlloc` refuses 0.
const BYTES_MIN: usize = 1;

/// One allocation on the device. Its parts are used by offset, and the memory plan says which parts may overlap.
#[derive(Clone)]
pub struct DeviceArena {
    whole: Span,
}

struct DeviceAllocation {
    context: Arc<Context>,
    address: sys::CUdeviceptr,
    bytes: usize,
}

impl DeviceArena {
    /// Allocates `bytes` bytes of zeros. 0 bytes are an empty span, which has an address.
    pub fn new(device: &Device, bytes: usize) -> Result<Self, CudaError> {
        let length = bytes;
        let bytes = bytes.max(BYTES_MIN);
        let context = Arc::clone(device.context());
        context.bind()?;
        let address = Block::alloc_device(bytes, || {
            format!("allocating {} on {}", mebibytes(bytes as u64), context.info().name)
        })?;
        let allocation: Owner = Arc::new(DeviceAllocation { context, address, bytes });
        // SAFETY: the allocation is at least `length` bytes long and lives as long as its owner.
        let whole = unsafe { Span::foreign(address, length, Some(allocation)) };
        let stream = device.stream()?;
        Launch::zero(&stream, &whole)?;
        stream.synchronize()?;
        Ok(Self { whole })
    }

    /// Returns the span of `bytes` bytes at `offset`.
    pub fn span(&self, offset: usize, bytes: usize) -> Span {
        self.whole.part(offset, bytes)
    }

    /// Returns the whole allocation.
    pub fn whole(&self) -> &Span {
        &self.whole
    }
}

impl fmt::Debug for DeviceArena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceArena({} bytes)", self.whole.bytes())
    }
}

impl Drop for DeviceAllocation {
    fn drop(&mut self) {
        let block = Block::Device { address: self.address, bytes: self.bytes };
        self.context.free(block);
    }
}

/// Pinned (page-locked) host memory that the GPU maps. An integrated GPU uses the same DRAM, so nothing is copied. It is not
/// write-combined, so that the host can read it fast.
pub struct PinnedBuffer {
    memory: Arc<PinnedAllocation>,
    span: Span,
}

struct PinnedAllocation {
    context: Arc<Context>,
    host: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to the allocation alone, and is bound to no thread.
unsafe impl Send for PinnedAllocation {}
// SAFETY: as above; the host writes only through `&mut PinnedBuffer`, of which there is one for each allocation.
unsafe impl Sync for PinnedAllocation {}

impl PinnedBuffer {
    /// Allocates `bytes` bytes of zeros; 0 is allowed (an output without elements).
    pub fn new(device: &Device, bytes: usize) -> Result<Self, CudaError> {
        let length = bytes;
        let bytes = bytes.max(BYTES_MIN);
        let context = Arc::clone(device.context());
        context.bind()?;
        let doing =
            || format!("pinning {} of host memory for {}", mebibytes(bytes as u64), device.info().name);
        let host = Block::alloc_pinned(bytes, doing)?;
        let memory = Arc::new(PinnedAllocation { context, host, bytes });
        let mut address = 0;
        // SAFETY: `address` is a place for the pointer; `host` was allocated above, mapped for the device.
        let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, host.as_ptr().cast(), 0) };
        check(result, "cuMemHostGetDevicePointer", doing)?;
        let owner: Owner = Arc::<PinnedAllocation>::clone(&memory);
        // SAFETY: the allocation is at least `length` bytes long, is mapped for the device, and lives as long as its owner.
        let span = unsafe { Span::foreign(address, length, Some(owner)) };
        Ok(Self { memory, span })
    }

    /// Returns the bytes. Wait first for the stream that writes them.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the allocation has at least that many bytes, was zeroed, and lives as long as `self`; the host writes them only
        // through `bytes_mut`, which borrows `self` alone.
        unsafe { slice::from_raw_parts(self.memory.host.as_ptr(), self.span.bytes()) }
    }

    /// Returns the bytes for writing. Wait first for the streams that read them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `self` is the allocation's only buffer, and it is borrowed alone.
        unsafe { slice::from_raw_parts_mut(self.memory.host.as_ptr(), self.span.bytes()) }
    }

    /// Returns the span of the same bytes on the GPU.
    pub fn span(&self) -> &Span {
        &self.span
    }
}

impl fmt::Debug for PinnedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBuffer({} bytes)", self.span.bytes())
    }
}

impl Drop for PinnedAllocation {
    fn drop(&mut self) {
        let block = Block::Pinned { host: self.host, bytes: self.bytes };
        self.context.free(block);
    }
}

/// Pool of a fixed number of pinned buffers of one size, allocated once. Sources fill them.
#[derive(Debug)]
pub struct PinnedPool {
    free: Receiver<PinnedBuffer>,
    home: SyncSender<PinnedBuffer>,
}

/// Buffer of a [`PinnedPool`]. It returns to the pool when dropped: drop it when the work that reads it is done.
#[derive(Debug)]
pub struct PinnedSlot {
    buffer: Option<PinnedBuffer>,
    home: SyncSender<PinnedBuffer>,
}

impl PinnedPool {
    /// Allocates `slots` buffers of `bytes` bytes.
    pub fn new(device: &Device, slots: usize, bytes: usize) -> Result<Self, CudaError> {
        let (home, free) = sync_channel(slots);
        for _ in 0..slots {
            let room = home.try_send(PinnedBuffer::new(device, bytes)?);
            room.expect("the channel holds as many buffers as there are slots");
        }
        Ok(Self { free, home })
    }

    /// Returns a free buffer; `None` if all are in use.
    pub fn try_take(&self) -> Option<PinnedSlot> {
        let buffer = self.free.try_recv().ok()?;
        Some(PinnedSlot { buffer: Some(buffer), home: self.home.clone() })
    }
}

impl Deref for PinnedSlot {
    type Target = PinnedBuffer;

    fn deref(&self) -> &PinnedBuffer {
        self.buffer.as_ref().expect("a slot has its buffer until it is dropped")
    }
}

impl DerefMut for PinnedSlot {
    fn deref_mut(&mut self) -> &mut PinnedBuffer {
        self.buffer.as_mut().expect("a slot has its buffer until it is dropped")
    }
}

impl Drop for PinnedSlot {
    fn drop(&mut self) {
        // The pool may be dropped before its last frame; then the buffer is freed.
        let _ = self.buffer.take().map(|buffer| self.home.try_send(buffer));
    }
}
