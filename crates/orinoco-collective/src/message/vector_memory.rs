//! Memory for vectors that an RDMA device can access directly.
#![expect(unsafe_code, reason = "memory that a device reads and writes is a raw mapping")]

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use thiserror::Error;
use zerocopy::FromBytes;

use crate::{Element, RdmaError};

/// A vector that a group has [allocated](crate::Communicator::allocate); dereferences to a slice.
///
/// Over RDMA the memory is registered, so long messages between such vectors are zero-copy ([`Rdma`](crate::Rdma)). Over other transports it is ordinary memory.
/// Registered memory stays so until the group is dropped, or next allocates after the vector was dropped. Use it only with the group that allocated
/// it: other groups copy it.
pub struct VectorMemory<E>(Kind<E>);

enum Kind<E> {
    Ordinary(Vec<E>),
    /// So many elements.
    Mapped(Arc<MappedMemory>, usize),
}

/// Error of [`Communicator::allocate`](crate::Communicator::allocate).
#[derive(Debug, Error)]
pub enum AllocateError {
    /// There is not enough memory.
    #[error("allocating {} MiB of memory for a vector", bytes.div_ceil(1 << 20))]
    Memory {
        /// Bytes of the vector.
        bytes: usize,
        /// The system's answer.
        source: io::Error,
    },
    /// The device cannot register the memory.
    #[error(transparent)]
    Register(#[from] RdmaError),
}

impl<E: Element> VectorMemory<E> {
    /// Allocates ordinary memory for so many elements, all 0.
    pub(crate) fn ordinary(len: usize) -> Result<Self, AllocateError> {
        let bytes = len.saturating_mul(size_of::<E>());
        let source = io::ErrorKind::OutOfMemory;
        let mut vector = Vec::new();
        let reserved = vector.try_reserve_exact(len);
        reserved.map_err(|_| AllocateError::Memory { bytes, source: source.into() })?;
        vector.resize(len, E::default());
        Ok(vector.into())
    }

    /// Maps memory for so many elements, all 0, for a device.
    pub(crate) fn map(len: usize) -> Result<(Self, Arc<MappedMemory>), AllocateError> {
        let bytes = len.saturating_mul(size_of::<E>());
        let memory = MappedMemory::new(bytes).map_err(|source| AllocateError::Memory { bytes, source })?;
        let memory = Arc::new(memory);
        Ok((Self(Kind::Mapped(Arc::clone(&memory), len)), memory))
    }
}

impl<E> From<Vec<E>> for VectorMemory<E> {
    /// A vector in ordinary memory.
    fn from(vector: Vec<E>) -> Self {
        Self(Kind::Ordinary(vector))
    }
}

impl<E: Element> Deref for VectorMemory<E> {
    type Target = [E];

    fn deref(&self) -> &[E] {
        match &self.0 {
            Kind::Ordinary(vector) => vector,
            Kind::Mapped(memory, len) => {
                // SAFETY: the mapping has so many bytes (`map`), all of which the kernel has zeroed. They are written through `self` alone, and by
                // devices through windows that are open while an operation borrows this vector exclusively.
                let bytes = unsafe { std::slice::from_raw_parts(memory.base.as_ptr(), len * size_of::<E>()) };
                FromBytes::ref_from_bytes(bytes).expect("a mapping is aligned to a page")
            }
        }
    }
}

impl<E: Element> DerefMut for VectorMemory<E> {
    fn deref_mut(&mut self) -> &mut [E] {
        match &mut self.0 {
            Kind::Ordinary(vector) => vector,
            Kind::Mapped(memory, len) => {
                // SAFETY: as above, and `self` is borrowed exclusively: nobody else makes slices of the mapping.
                let bytes =
                    unsafe { std::slice::from_raw_parts_mut(memory.base.as_ptr(), *len * size_of::<E>()) };
                FromBytes::mut_from_bytes(bytes).expect("a mapping is aligned to a page")
            }
        }
    }
}

/// Memory of a [`VectorMemory`]. It is unmapped when its last `Arc` is dropped.
pub struct MappedMemory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread. Its bytes are accessed through `VectorMemory` alone, which borrows them like a
// vector's own, and through a device.
unsafe impl Send for MappedMemory {}
// SAFETY: as above; a shared mapping gives an address, and no access.
unsafe impl Sync for MappedMemory {}

impl MappedMemory {
    fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1);
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // Shared: with a private mapping, copy-on-write after a fork could give this process other pages than the registered ones.
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, flags, MapFlags::SHARED)? };
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0 unless told to");
        Ok(Self { base, bytes })
    }

    /// Address of the first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether so many bytes at an address are in this memory, all of them.
    pub(crate) fn holds(&self, address: usize, len: usize) -> bool {
        let offset = address.checked_sub(self.base.addr().get());
        offset.is_some_and(|offset| offset <= self.bytes && len <= self.bytes - offset)
    }

    /// Writes as a device does.
    #[cfg(test)]
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        let into = self.place(address, bytes.len());
        // SAFETY: the bytes are inside the mapping (`place`). Tests are of one thread, in which no slice of them is used meanwhile.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), into, bytes.len()) };
    }

    /// Reads as a device does.
    #[cfg(test)]
    pub(crate) fn read(&self, address: u64, into: &mut [u8]) {
        let from = self.place(address, into.len());
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    #[cfg(test)]
    fn place(&self, address: u64, len: usize) -> *mut u8 {
        let offset = usize::try_from(address).unwrap().checked_sub(self.base.addr().get());
        let offset = offset.filter(|offset| *offset <= self.bytes && len <= self.bytes - offset);
        // SAFETY: inside the mapping, or at its end.
        unsafe { self.base.as_ptr().add(offset.expect("an address inside of the memory")) }
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // It fails only if it is no mapping.
        // SAFETY: mapped in `new`, and unmapped here only. Nobody has a slice of it: each lives no longer than a `VectorMemory`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_a_slice_of_zeros_that_holds_what_is_written() {
        let mut vector = VectorMemory::<f32>::map(5_000).unwrap().0;
        assert!(vector.len() == 5_000 && vector.iter().all(|element| *element == 0.0));
        vector[4_999] = 7.0;
        assert_eq!(vector.iter().sum::<f32>(), 7.0);
        assert_eq!(VectorMemory::from(vec![1u8, 2])[..], [1, 2]);
        assert!(VectorMemory::<u64>::map(0).unwrap().0.is_empty());
    }

    #[test]
    fn a_memory_holds_its_own_bytes_alone() {
        let (vector, memory) = VectorMemory::<u8>::map(100).unwrap();
        let other = [0; 100];
        let holds = |bytes: &[u8]| memory.holds(bytes.as_ptr().addr(), bytes.len());
        assert!(holds(&vector) && holds(&vector[60..]) && holds(&vector[100..]));
        assert!(!holds(&other));
    }

    #[test]
    fn what_cannot_be_allocated_is_told() {
        let errors = [
            VectorMemory::<u64>::map(usize::MAX / 8).err(),
            VectorMemory::<u64>::ordinary(usize::MAX / 8).err(),
        ];
        for error in errors.map(|error| error.unwrap().to_string()) {
            assert!(error.starts_with("allocating 17592186044416 MiB of memory"), "{error}");
        }
    }
}
