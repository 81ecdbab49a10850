//! Bytes that the GPU can reach, wherever they come from.
#![expect(unsafe_code, reason = "whose memory an address is, only the caller knows")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Keeps an allocation alive.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// Bytes that the GPU can reach, with what keeps them there.
#[derive(Clone)]
pub struct Span {
    address: u64,
    bytes: usize,
    owner: Option<Owner>,
}

impl Span {
    /// Memory that somebody else mapped for the GPU: a decoder's surface, an imported dma-buf.
    ///
    /// # Safety
    /// The GPU (or whatever the launches go to) may read and write `bytes` bytes at `address` until `owner` is dropped,
    /// or for good where there is none.
    pub unsafe fn foreign(address: u64, bytes: usize, owner: Option<Owner>) -> Self {
        Self { address, bytes, owner }
    }

    /// Its address on the GPU.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// `bytes` bytes from `offset` on.
    pub fn part(&self, offset: usize, bytes: usize) -> Self {
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(fits, "{bytes} bytes at {offset} of a span of {} bytes", self.bytes);
        Self { address: self.address + offset as u64, bytes, owner: self.owner.clone() }
    }

    /// The same bytes, kept by `owner`, which keeps their old owner.
    pub(crate) fn kept_by(&self, owner: Owner) -> Self {
        Self { owner: Some(owner), ..*self }
    }

    pub(crate) fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({:#x}, {} bytes)", self.address, self.bytes)
    }
}
