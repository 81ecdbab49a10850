//! The table that kernels read to find their frames. It is refilled before each replay, so that one captured plan serves
//! any buffer and any size of frame.

mod layout;
mod span;

use std::sync::{Arc, Mutex, PoisonError};

use orinoco_core::FrameDesc;

use crate::memory::PinnedBuffer;
use crate::span::{Owner, Span};
use crate::{CudaError, Device, DeviceArena, MemoryKind, Stream};

pub use layout::{FilterBounds, Placement, TableFault, TableLayout};
pub use span::TableSpan;

/// A table that the host fills and the GPU reads: where it is on an integrated GPU, from a copy on a discrete one. Wait
/// for the replay that reads it before you fill it again.
#[derive(Debug)]
pub struct FrameTable {
    layout: TableLayout,
    host: PinnedBuffer,
    copy: Option<Span>,
    kept: Arc<TableOwners>,
}

/// Owners of all memory that a kernel reads through the table: the table itself and its frames.
#[derive(Debug)]
struct TableOwners {
    _table: Option<Owner>,
    frames: Mutex<Vec<Option<Owner>>>,
}

impl FrameTable {
    /// An empty table.
    pub fn new(device: &Device, layout: TableLayout) -> Result<Self, CudaError> {
        let bytes = layout.bytes();
        let host = PinnedBuffer::new(device, bytes)?;
        let copy = match device.info().memory {
            MemoryKind::Integrated => None,
            MemoryKind::Discrete => Some(DeviceArena::new(device, bytes)?.whole().clone()),
        };
        let table = copy.as_ref().unwrap_or(host.span()).owner().cloned();
        let frames = Mutex::new(vec![None; layout.batch()]);
        Ok(Self { layout, host, copy, kept: Arc::new(TableOwners { _table: table, frames }) })
    }

    /// Puts a frame whose planes lie in `bytes` into the table.
    pub fn set(
        &mut self,
        item: usize,
        frame: &FrameDesc,
        bytes: &Span,
        placement: Placement,
    ) -> Result<(), TableFault> {
        self.layout.set(self.host.bytes_mut(), item, frame, bytes, placement)?;
        self.keep(item, bytes.owner().cloned());
        Ok(())
    }

    /// Leaves an item out: kernels skip it.
    pub fn clear(&mut self, item: usize) {
        self.layout.clear(self.host.bytes_mut(), item);
        self.keep(item, None);
    }

    /// The first launch of a plan: brings the table to where kernels read it.
    pub fn upload(&self, stream: &Stream) -> Result<(), CudaError> {
        self.copy.as_ref().map_or(Ok(()), |copy| stream.copy(self.host.span(), copy))
    }

    /// The table as kernels take it. It keeps the frames, too.
    pub fn span(&self) -> TableSpan {
        let kept: Owner = Arc::<TableOwners>::clone(&self.kept);
        TableSpan::new(self.copy.as_ref().unwrap_or(self.host.span()).kept_by(kept), &self.layout)
    }

    fn keep(&self, item: usize, owner: Option<Owner>) {
        let mut frames = self.kept.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut frames[item], owner);
        // Freeing a frame waits for the device: not under the lock.
        drop(frames);
        drop(before);
    }
}
