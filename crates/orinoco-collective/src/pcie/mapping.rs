//! A window that is mapped into this process.
//!
//! It may be ordinary memory, device memory, or memory whose writes are combined on their way (`resource2_wc`). So every access
//! is to at most eight bytes at a multiple of their number: Arm faults on others in device memory, and no more is known to stay in
//! one piece on a bus. Compilers neither split, join nor repeat volatile accesses.
//!
//! Order, beside that of the language's own fences:
//!
//! | | x86-64 | Arm |
//! |---|---|---|
//! | before a word is published | `sfence`: combined writes leave first. Reads are complete by themselves | `dmb osh`: `oshst` for the bytes of a ring, and reads before a word that gives room back |
//! | after a word is published | `sfence`: the word leaves now | nothing: write buffers drain by themselves |
//! | after a word was loaded | `lfence`: reads of such memory may be early otherwise | `dmb oshld` |
//!
//! PCI then carries posted writes of one board in order, so the fences suffice up to the other board's memory.
#![expect(unsafe_code, reason = "a PCI window that other boards write to is a raw mapping")]

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, fence};

use rustix::mm::{MapFlags, ProtFlags};

use super::window::Window;

const WORD_BYTES: usize = size_of::<u64>();

/// A mapped window.
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is accessed by volatile loads and stores alone.
unsafe impl Send for Mapping {}
// SAFETY: as above. The ring and the meeting of `pcie` give each word one writer.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the beginning of a file, or of a PCI device's resource.
    pub(super) fn new(file: &File, bytes: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses the address (the given one is null and the flags lack FIXED), so no mapping that is in use
        // is replaced.
        let base = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0)?
        };
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0 unless told to");
        Ok(Self { base, bytes })
    }

    /// Address of some bytes, all of which are inside.
    fn place(&self, offset: usize, len: usize) -> NonNull<u8> {
        let is_inside = offset <= self.bytes && len <= self.bytes - offset;
        assert!(is_inside, "{len} bytes at {offset} of a window of {}", self.bytes);
        // SAFETY: the result is inside the mapping, or at its end (asserted).
        unsafe { self.base.add(offset) }
    }

    /// Address of a word.
    fn word(&self, offset: usize) -> NonNull<u64> {
        assert!(offset.is_multiple_of(WORD_BYTES), "a word at {offset}");
        self.place(offset, WORD_BYTES).cast()
    }
}

impl Window for Mapping {
    fn load(&self, offset: usize) -> u64 {
        // SAFETY: the word is inside the mapping and aligned (`word`; the mapping begins at a page). Every pattern of bits is valid.
        // Others may write to it: the access is volatile, and of a size that the processor reads at once.
        let word = unsafe { self.word(offset).as_ptr().read_volatile() };
        fence(Ordering::Acquire);
        order_loads();
        u64::from_le(word)
    }

    fn publish(&self, offset: usize, word: u64) {
        fence(Ordering::Release);
        order_before_store();
        // SAFETY: as in `load`; no Rust reference to the mapping exists.
        unsafe { self.word(offset).as_ptr().write_volatile(word.to_le()) };
        flush_stores();
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.place(offset, into.len());
        let (head, words) = parts(offset, into.len());
        let (head, rest) = into.split_at_mut(head);
        let (words, tail) = rest.split_at_mut(words);
        for (at, byte) in head.iter_mut().enumerate() {
            // SAFETY: `at` is below the length that `place` has checked. Every pattern of bits is valid, and others may write to it:
            // the access is volatile.
            *byte = unsafe { from.add(at).as_ptr().read_volatile() };
        }
        for (at, into) in words.chunks_exact_mut(WORD_BYTES).enumerate() {
            // SAFETY: as above. After the head, the place is a multiple of eight (`parts`; the mapping begins at a page).
            let word = unsafe { from.add(head.len()).cast::<u64>().add(at).as_ptr().read_volatile() };
            into.copy_from_slice(&word.to_ne_bytes());
        }
        for (at, byte) in tail.iter_mut().enumerate() {
            // SAFETY: as for the head.
            *byte = unsafe { from.add(head.len() + words.len() + at).as_ptr().read_volatile() };
        }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        let into = self.place(offset, bytes.len());
        let (head, words) = parts(offset, bytes.len());
        let (head, rest) = bytes.split_at(head);
        let (words, tail) = rest.split_at(words);
        for (at, byte) in head.iter().enumerate() {
            // SAFETY: `at` is below the length that `place` has checked, and no Rust reference to the mapping exists.
            unsafe { into.add(at).as_ptr().write_volatile(*byte) };
        }
        for (at, word) in words.chunks_exact(WORD_BYTES).enumerate() {
            let word = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
            // SAFETY: as above. After the head, the place is a multiple of eight (`parts`; the mapping begins at a page).
            unsafe { into.add(head.len()).cast::<u64>().add(at).as_ptr().write_volatile(word) };
        }
        for (at, byte) in tail.iter().enumerate() {
            // SAFETY: as for the head.
            unsafe { into.add(head.len() + words.len() + at).as_ptr().write_volatile(*byte) };
        }
    }
}

/// Bytes of a copy before its first whole word, and of its whole words.
fn parts(offset: usize, len: usize) -> (usize, usize) {
    let head = (offset.next_multiple_of(WORD_BYTES) - offset).min(len);
    (head, (len - head) / WORD_BYTES * WORD_BYTES)
}

#[cfg(target_arch = "x86_64")]
fn order_loads() {
    // SAFETY: every x86-64 processor has SSE2, and the instruction touches no memory.
    unsafe { std::arch::x86_64::_mm_lfence() };
}

#[cfg(target_arch = "x86_64")]
fn order_before_store() {
    // SAFETY: every x86-64 processor has SSE, and the instruction touches no memory.
    unsafe { std::arch::x86_64::_mm_sfence() };
}

#[cfg(target_arch = "x86_64")]
fn flush_stores() {
    order_before_store();
}

#[cfg(target_arch = "aarch64")]
fn order_loads() {
    // SAFETY: the instruction orders memory accesses and changes neither registers nor memory.
    unsafe { std::arch::asm!("dmb oshld", options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
fn order_before_store() {
    // SAFETY: the instruction orders memory accesses and changes neither registers nor memory.
    unsafe { std::arch::asm!("dmb osh", options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
fn flush_stores() {}

// Other processors have no PCI windows that anybody has tried: the fences of the language are for ordinary memory.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn order_loads() {
    fence(Ordering::SeqCst);
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn order_before_store() {
    fence(Ordering::SeqCst);
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn flush_stores() {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `bytes` are those of the mapping (`new`), and no reference to it exists.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_copied_to_and_from_every_place() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let mapping = Mapping::new(&file, 4096).unwrap();
        let bytes: Vec<u8> = (1..=100).collect();
        for (offset, len) in (0..17).flat_map(|offset| (0..40).map(move |len| (offset, len))) {
            mapping.write(0, &[0; 100]);
            mapping.write(offset, &bytes[..len]);
            let mut all = [0; 100];
            mapping.read(0, &mut all);
            let expected = [&[0; 17][..offset], &bytes[..len], &[0; 100][..100 - offset - len]].concat();
            assert_eq!(all[..], expected, "{len} bytes at {offset}");
            let mut some = vec![0; len];
            mapping.read(offset, &mut some);
            assert_eq!(some, bytes[..len]);
        }
        mapping.publish(4088, 0x0102_0304_0506_0708);
        let mut word = [0; 8];
        mapping.read(4088, &mut word);
        assert_eq!((mapping.load(4088), word), (0x0102_0304_0506_0708, [8, 7, 6, 5, 4, 3, 2, 1]));
    }

    #[test]
    fn places_outside_are_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let mapping = Mapping::new(&file, 4096).unwrap();
        let fails =
            |access: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(access)).is_err();
        assert!(fails(&|| mapping.write(4090, &[0; 7])) && fails(&|| mapping.read(usize::MAX, &mut [0; 2])));
        assert!(fails(&|| assert_eq!(mapping.load(4), 0)) && fails(&|| mapping.publish(4096, 0)));
    }
}
