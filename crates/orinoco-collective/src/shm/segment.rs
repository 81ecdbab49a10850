//! The memory that the ranks of a machine share.
//!
//! ```text
//! header     magic, version, ranks; the first failure
//! per rank   pulse       process number, signs of life
//!            2 lines     flag, call and up to 112 bytes of payload; operations take turns
//!            2 lines     flags of measurements
//!            notice      its part in making a smaller group
//!            wait        the ranks for which it waits, while it sleeps
//!            4 slots     pieces of longer vectors; pieces take turns
//! per pair   2 lines     pieces that the first rank has sent, and that the second has taken
//!            4 slots     pieces of messages; pieces take turns
//! ```
//!
//! Other processes write to it at any time. Numbers are atomics, read once, and never used as an index or a length. Payloads
//! are read as plain numbers, of which every pattern of bits is valid.
#![expect(unsafe_code, reason = "memory that other processes share is a raw mapping")]

use std::cell::UnsafeCell;
use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::fence;

use rustix::mm::{MapFlags, ProtFlags};

use super::sync::{AtomicU32, AtomicU64, Ordering, step};
use crate::Element;
use crate::message::NOTICE_BYTES;

/// Most ranks of a group on one machine.
pub(super) const RANKS_MAX: usize = 64;
/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = if cfg!(shuttle) { 256 } else { 64 << 10 };
/// Slots of a rank. A rank that fills one has reduced the piece before the last one, for which it saw all others publish theirs;
/// and they had reduced the one two before that. So the piece of four before is free.
pub(super) const SLOTS: usize = 4;
/// Bytes of payload in a line.
pub(super) const LINE_BYTES: usize = 112;

/// Slots of messages from one rank to another.
pub(super) const MESSAGE_SLOTS: usize = 4;
/// Most bytes of a slot of messages.
const MESSAGE_SLOT_MAX: usize = if cfg!(shuttle) { 128 } else { 32 << 10 };
/// Bytes of the slots of that number of all pairs together, if that makes them smaller.
const MESSAGE_SLOTS_TOTAL: usize = 4 << 20;

/// Beginning of a segment.
const MAGIC: u64 = u64::from_le_bytes(*b"orinoco\x06");
/// Beginning of the segments of every version. The byte after it is the version.
const NAME: [u8; 7] = *b"orinoco";
/// Highest version that a segment may have. Texts that begin in the same way have a printable character there.
const VERSION_MAX: u8 = 0x1f;
const HEADER_BYTES: usize = 4096;
const PAGE_BYTES: usize = 4096;
const CACHE_LINES_BYTES: usize = 128;
/// Place of a rank's slots. It is not that of a page: allocators put long vectors 16 bytes after one, and glibc before 2.40 copies to there from the
/// beginning of a page at a tenth of the usual speed on AMD processors (<https://sourceware.org/bugzilla/show_bug.cgi?id=30994>).
const SLOTS_START: usize = PAGE_BYTES + CACHE_LINES_BYTES;
const RANK_BYTES: usize = (SLOTS_START + SLOTS * SLOT_BYTES).next_multiple_of(PAGE_BYTES);

/// Beginning of the segment.
#[repr(C, align(128))]
pub(super) struct Header {
    /// Set last by the rank that makes the segment.
    magic: AtomicU64,
    ranks: AtomicU64,
    /// The first failure: rank + 1 in the upper half, cause in the lower; 0 while there is none.
    pub(super) failure: AtomicU64,
}

/// A rank's signs of life.
#[repr(C, align(128))]
pub(super) struct Pulse {
    /// Process number, set when it joins.
    pub(super) process: AtomicU32,
    /// 1 when it has left.
    pub(super) has_left: AtomicU32,
    /// Counts up several times a second.
    pub(super) beats: AtomicU64,
    /// Number of the thread that counts, and the time of its start by which it is told from a later one; 0 until it runs.
    pub(super) thread: AtomicU32,
    pub(super) thread_start: AtomicU64,
    /// Address at which the rank's process has `probe_value`, to find out who may read its memory.
    pub(super) probe_address: AtomicU64,
    pub(super) probe_value: AtomicU64,
    /// Start of the rank's process, and the namespace in which it has its number, by which it is told from others with that number;
    /// 0 if they are not known.
    pub(super) process_start: AtomicU64,
    pub(super) process_namespace: AtomicU64,
}

/// Words of a notice.
const NOTICE_WORDS: usize = NOTICE_BYTES / 8;

/// Words that a rank writes and others read as a whole.
#[repr(C, align(128))]
pub(super) struct Record<const WORDS: usize> {
    /// Counts up before and after each write: even when the words are whole, 0 before the first. Of a rank that was killed in the middle
    /// it stays odd.
    version: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Record<WORDS> {
    /// Replaces the words. Only their rank does so.
    pub(super) fn write(&self, words: [u64; WORDS]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.words.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Reads the words, which may be anything, and their version. `None` if there are none, or if they change just now.
    pub(super) fn read(&self) -> Option<(u64, [u64; WORDS])> {
        let version = self.version.load(Ordering::Acquire);
        let words = self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole =
            version != 0 && version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        is_whole.then_some((version, words))
    }

    #[cfg(shuttle)]
    fn new() -> Self {
        Self { version: AtomicU64::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

/// The last notice of a rank to those with which it makes a smaller group.
pub(super) type LastNotice = Record<NOTICE_WORDS>;

/// For whom a rank waits.
#[repr(C, align(128))]
pub(super) struct WaitRecord {
    /// The code of its call, and a bit for each rank that it awaits; none while it does not sleep.
    pub(super) wait: Record<2>,
    /// Times that it looked, while it slept, and nothing had come of those that it awaits.
    pub(super) looks: AtomicU64,
}

const _: () = assert!(RANKS_MAX <= u64::BITS as usize, "a bit for each rank");

/// Two cache lines of a rank: prefetchers fetch them together.
#[repr(C, align(128))]
pub(super) struct Line {
    /// Number of pieces that the rank has published; wraps around.
    pub(super) flag: AtomicU32,
    /// Number of ranks that sleep until the flag changes.
    pub(super) sleepers: AtomicU32,
    /// Code of the rank's call.
    pub(super) call: AtomicU64,
    /// Elements of a short vector.
    payload: UnsafeCell<[u8; LINE_BYTES]>,
}

#[repr(C)]
struct RankPage {
    pulse: Pulse,
    lines: [Line; 2],
    /// Flags of measurements.
    bare_lines: [Line; 2],
    notice: LastNotice,
    wait: WaitRecord,
}

/// Lines of the messages from one rank to another.
#[repr(C)]
pub(super) struct Pair {
    /// Its flag counts the pieces that are in slots.
    pub(super) sent: Line,
    /// Its flag counts the pieces that are taken.
    pub(super) taken: Line,
}

const _: () = assert!(
    (size_of::<Line>() == 128 || cfg!(shuttle))
        && size_of::<RankPage>() <= PAGE_BYTES
        && size_of::<Header>() <= HEADER_BYTES
        && RANK_BYTES.is_multiple_of(CACHE_LINES_BYTES)
);

/// Whether a file with this beginning is a segment, of any version.
pub(super) fn is_segment(beginning: [u8; 8]) -> bool {
    let [name @ .., version] = beginning;
    name == NAME && (1..=VERSION_MAX).contains(&version)
}

const _: () = {
    let [.., version] = MAGIC.to_le_bytes();
    assert!(version >= 1 && version <= VERSION_MAX, "a version");
};

/// Place in which a rank publishes a piece.
#[derive(Clone, Copy)]
pub(super) enum Piece {
    /// With the flag, for short vectors.
    Line { operation: u32 },
    /// In the slot for this number.
    Slot { number: u32 },
}

/// Facts of a message that each of its pieces carries.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct MessageNumbers {
    /// Code of the sender's call.
    pub(super) call: u64,
    /// Bytes of the message.
    pub(super) len: u64,
    /// Address of the message in the sender's memory, to be read from there; 0 if the pieces carry it.
    pub(super) address: u64,
}

/// Pieces of messages that a rank has sent to another, and has taken from it. Both wrap around.
#[derive(Clone, Copy, Default)]
pub(super) struct PieceCounts {
    pub(super) sent: u32,
    pub(super) taken: u32,
}

/// Direction of messages.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// A mapped segment.
pub(super) struct Segment {
    base: NonNull<u8>,
    bytes: usize,
    ranks: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is accessed through atomics and by the protocol of `shm`.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Size of the file of a group, in bytes.
    pub(super) fn file_bytes(ranks: usize) -> usize {
        HEADER_BYTES + ranks * RANK_BYTES + ranks * ranks * pair_bytes(ranks)
    }

    /// Maps a file of at least the group's size.
    ///
    /// # Errors
    /// The system's, or `InvalidData` for a file that is too short.
    pub(super) fn map(file: &File, ranks: usize) -> io::Result<Self> {
        let bytes = Self::file_bytes(ranks);
        if file.metadata()?.len() < bytes as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: the kernel chooses the address (the given one is null and the flags lack FIXED), so no mapping that is in use
        // is replaced.
        let base = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0)?
        };
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0 unless told to");
        let segment = Self { base, bytes, ranks };
        #[cfg(shuttle)]
        segment.make_atomics();
        Ok(segment)
    }

    /// Marks a new segment as complete.
    pub(super) fn publish(&self, ranks: usize) {
        self.header().ranks.store(ranks as u64, Ordering::Relaxed);
        self.header().magic.store(MAGIC, Ordering::Release);
    }

    /// Whether the segment is complete, and for which number of ranks.
    pub(super) fn found(&self) -> Option<u64> {
        let is_complete = self.header().magic.load(Ordering::Acquire) == MAGIC;
        is_complete.then(|| self.header().ranks.load(Ordering::Relaxed))
    }

    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }

    pub(super) fn header(&self) -> &Header {
        // SAFETY: the mapping begins with a header (`file_bytes`), is aligned to a page, and lives as long as `self`. It holds
        // atomics alone, for which any pattern of bits is valid and which others may change.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    pub(super) fn pulse(&self, rank: usize) -> &Pulse {
        &self.page(rank).pulse
    }

    /// A rank's place for its last notice.
    pub(super) fn notice(&self, rank: usize) -> &LastNotice {
        &self.page(rank).notice
    }

    /// A rank's place for whom it waits.
    pub(super) fn wait(&self, rank: usize) -> &WaitRecord {
        &self.page(rank).wait
    }

    /// A rank's line for an operation.
    pub(super) fn line(&self, rank: usize, operation: u32) -> &Line {
        &self.page(rank).lines[(operation & 1) as usize]
    }

    /// A rank's line for a round of a measurement.
    pub(super) fn bare_line(&self, rank: usize, round: u32) -> &Line {
        &self.page(rank).bare_lines[(round & 1) as usize]
    }

    /// Elements that a rank has published.
    ///
    /// # Panics
    /// If they do not fit their memory.
    #[inline]
    pub(super) fn read<T: Element>(&self, rank: usize, piece: Piece, len: usize) -> &[T] {
        step();
        let memory = self.memory::<T>(rank, piece, len);
        // SAFETY: `memory` points to `len` elements in the mapping, aligned to 8 bytes or more. Every pattern of bits is a valid
        // element (`Element` is sealed). By the protocol nobody writes to a published piece before this rank has published the one
        // after the next; a process that breaks it can make the numbers wrong, and has no way to make them invalid.
        unsafe { std::slice::from_raw_parts(memory.as_ptr(), len) }
    }

    /// Memory of this rank's next piece.
    ///
    /// # Panics
    /// If it does not fit.
    #[inline]
    #[expect(
        clippy::mut_from_ref,
        reason = "the memory is not the segment's, and the protocol gives it to one writer"
    )]
    pub(super) fn write<T: Element>(&self, rank: usize, piece: Piece, len: usize) -> &mut [T] {
        step();
        let memory = self.memory::<T>(rank, piece, len);
        // SAFETY: as in `read`. The only writer of a rank's memory is the thread that holds its group exclusively, which fills one
        // piece at a time.
        unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), len) }
    }

    /// Most bytes of a message's piece.
    pub(super) fn message_piece_bytes(&self) -> usize {
        message_slot_bytes(self.ranks) - size_of::<MessageNumbers>()
    }

    pub(super) fn pair(&self, way: Way) -> &Pair {
        // SAFETY: the place lies inside the mapping and is aligned to a cache line (`pair_start`). As for the header.
        unsafe { self.base.add(self.pair_start(way)).cast::<Pair>().as_ref() }
    }

    /// Fills a slot of messages: numbers, and the piece after them.
    ///
    /// # Panics
    /// If the piece does not fit.
    pub(super) fn write_message(&self, way: Way, number: u32, numbers: MessageNumbers, piece: &[u8]) {
        step();
        let slot = self.message_slot(way, number);
        assert!(piece.len() <= self.message_piece_bytes());
        // SAFETY: the slot has room for both (asserted) and is aligned to a cache line. Its only writer is the thread that holds the
        // sender's group exclusively, and the receiver does not read it before the flag is raised.
        unsafe {
            slot.cast::<MessageNumbers>().write(numbers);
            let into = slot.add(size_of::<MessageNumbers>());
            ptr::copy_nonoverlapping(piece.as_ptr(), into.as_ptr(), piece.len());
        }
    }

    /// The numbers in a slot of messages, which may be anything.
    pub(super) fn message_numbers(&self, way: Way, number: u32) -> MessageNumbers {
        // SAFETY: the slot is aligned and larger, and every pattern of bits is valid. The sender does not write to it before it is
        // taken; one that breaks the protocol can make the numbers wrong, and has no way to make them invalid.
        unsafe { self.message_slot(way, number).cast::<MessageNumbers>().read_volatile() }
    }

    /// Copies the piece in a slot of messages.
    ///
    /// # Panics
    /// If it is longer than a slot.
    pub(super) fn read_message(&self, way: Way, number: u32, into: &mut [u8]) {
        step();
        assert!(into.len() <= self.message_piece_bytes());
        // SAFETY: the slot is that long (asserted), and does not overlap `into`, which is no shared memory.
        unsafe {
            let from = self.message_slot(way, number).add(size_of::<MessageNumbers>());
            ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len());
        }
    }

    fn message_slot(&self, way: Way, number: u32) -> NonNull<u8> {
        let slot = number as usize % MESSAGE_SLOTS * message_slot_bytes(self.ranks);
        // SAFETY: the slots follow the lines of the pair, inside the mapping (`pair_bytes`).
        unsafe { self.base.add(self.pair_start(way) + size_of::<Pair>() + slot) }
    }

    fn pair_start(&self, Way { from, to }: Way) -> usize {
        let ranks = self.ranks;
        assert!(from < ranks && to < ranks, "from rank {from} to rank {to} of {ranks}");
        HEADER_BYTES + ranks * RANK_BYTES + (from * ranks + to) * pair_bytes(ranks)
    }

    #[inline]
    fn memory<T: Element>(&self, rank: usize, piece: Piece, len: usize) -> NonNull<T> {
        let bytes = len * size_of::<T>();
        match piece {
            Piece::Line { operation } => {
                assert!(bytes <= LINE_BYTES, "{bytes} bytes in a line");
                NonNull::new(self.line(rank, operation).payload.get().cast()).expect("in a mapping")
            }
            Piece::Slot { number } => {
                assert!(rank < self.ranks && bytes <= SLOT_BYTES, "{bytes} bytes in a slot of rank {rank}");
                let offset =
                    HEADER_BYTES + rank * RANK_BYTES + SLOTS_START + number as usize % SLOTS * SLOT_BYTES;
                // SAFETY: `offset + SLOT_BYTES` is at most `file_bytes`, because `rank` is below `ranks` (asserted) and the
                // slot's number below `SLOTS`.
                unsafe { self.base.add(offset).cast() }
            }
        }
    }

    fn page(&self, rank: usize) -> &RankPage {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        // SAFETY: the page lies inside the mapping (`file_bytes`), because `rank` is below `ranks` (asserted). As for the header.
        unsafe { self.base.add(HEADER_BYTES + rank * RANK_BYTES).cast::<RankPage>().as_ref() }
    }
}

/// Bytes of a slot of messages: less where there are many pairs.
fn message_slot_bytes(ranks: usize) -> usize {
    (MESSAGE_SLOTS_TOTAL / (ranks * ranks)).min(MESSAGE_SLOT_MAX).next_multiple_of(CACHE_LINES_BYTES)
}

fn pair_bytes(ranks: usize) -> usize {
    size_of::<Pair>() + MESSAGE_SLOTS * message_slot_bytes(ranks)
}

#[cfg(shuttle)]
impl Segment {
    /// Makes shuttle's atomics, which are more than zeros.
    fn make_atomics(&self) {
        let line = || Line {
            flag: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            call: AtomicU64::new(0),
            payload: UnsafeCell::new([0; LINE_BYTES]),
        };
        let page = || RankPage {
            pulse: Pulse {
                process: AtomicU32::new(0),
                has_left: AtomicU32::new(0),
                beats: AtomicU64::new(0),
                thread: AtomicU32::new(0),
                thread_start: AtomicU64::new(0),
                probe_address: AtomicU64::new(0),
                probe_value: AtomicU64::new(0),
                process_start: AtomicU64::new(0),
                process_namespace: AtomicU64::new(0),
            },
            lines: [line(), line()],
            bare_lines: [line(), line()],
            notice: LastNotice::new(),
            wait: WaitRecord { wait: Record::new(), looks: AtomicU64::new(0) },
        };
        let header =
            Header { magic: AtomicU64::new(0), ranks: AtomicU64::new(0), failure: AtomicU64::new(0) };
        // SAFETY: all places lie inside the mapping, and are aligned, as for `header`, `page` and `pair`. Nobody else has it yet.
        unsafe {
            self.base.cast::<Header>().write(header);
            for rank in 0..self.ranks {
                self.base.add(HEADER_BYTES + rank * RANK_BYTES).cast::<RankPage>().write(page());
                for to in 0..self.ranks {
                    let pair = self.base.add(self.pair_start(Way { from: rank, to })).cast::<Pair>();
                    pair.write(Pair { sent: line(), taken: line() });
                }
            }
        }
    }

    /// Drops them.
    fn drop_atomics(&mut self) {
        // SAFETY: `make_atomics` wrote them, and no reference outlives `self`.
        unsafe {
            self.base.cast::<Header>().drop_in_place();
            for rank in 0..self.ranks {
                self.base.add(HEADER_BYTES + rank * RANK_BYTES).cast::<RankPage>().drop_in_place();
                for to in 0..self.ranks {
                    let pair = self.base.add(self.pair_start(Way { from: rank, to }));
                    pair.cast::<Pair>().drop_in_place();
                }
            }
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        #[cfg(shuttle)]
        self.drop_atomics();
        // SAFETY: `base` and `bytes` are those of the mapping (`map`), and no reference to it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own can be unmapped");
    }
}
