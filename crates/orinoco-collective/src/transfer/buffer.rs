//! Buffers of pieces, which are used again and again.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use super::frame::PIECE_BYTES;

/// Most buffers that are kept while none uses them, 4 MiB: those of a few transfers. More are freed, and allocated when they are needed.
const FREE_MAX: usize = 16;

/// Buffers that nobody uses at the moment.
#[derive(Default)]
pub(super) struct Buffers {
    free: Mutex<Vec<Box<[u8]>>>,
}

/// Bytes of one piece.
pub(super) struct Buffer {
    /// [`PIECE_BYTES`], or none for a piece without bytes.
    bytes: Box<[u8]>,
    len: usize,
    buffers: Arc<Buffers>,
}

impl Buffers {
    /// Takes a buffer of so many bytes, whose content is that of an earlier use.
    pub(super) fn take(self: &Arc<Self>, len: usize) -> Buffer {
        assert!(len <= PIECE_BYTES, "a piece of {len} bytes, of {PIECE_BYTES} at most");
        let free = || self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = match len {
            0 => Box::default(),
            _ => free().unwrap_or_else(|| vec![0; PIECE_BYTES].into()),
        };
        Buffer { bytes, len, buffers: Arc::clone(self) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut free = self.buffers.free.lock().unwrap_or_else(PoisonError::into_inner);
        if self.bytes.len() == PIECE_BYTES && free.len() < FREE_MAX {
            free.push(std::mem::take(&mut self.bytes));
        }
    }
}
