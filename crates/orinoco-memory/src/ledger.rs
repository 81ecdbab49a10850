//! Ledger of an area: the allocated ranges and their owners. It has only offsets and lies outside the memory it
//! describes, so an engine that writes past its range cannot damage it, and returning pages to the system cannot lose
//! it.

use std::alloc::Layout;
use std::collections::HashMap;
use std::ops::Range;

use range_alloc::RangeAllocator;

/// Alignment of the start and end of ranges: a cache line, and the alignment that ONNX Runtime's CPU kernels need
/// (AVX-512).
const GRANULE_BYTES: usize = 64;

/// Owner of allocations: the account to which an arena adds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(u16);

impl Owner {
    /// Owner of allocations for no particular model: the first one of a new arena.
    pub const NOBODY: Self = Self(0);

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Usage of an arena, or of one owner in it. Bytes are those of whole granules of 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes allocated now.
    pub in_use_bytes: usize,
    /// Maximum number of bytes allocated at one time.
    pub high_water_bytes: usize,
    /// Furthest end of a range that was ever allocated. An arena of exactly this size serves the same requests, so a
    /// plan must give this size, which includes fragmentation.
    pub reach_bytes: usize,
    /// Ranges allocated now.
    pub held: usize,
    /// Ranges allocated so far.
    pub allocations: u64,
    /// Requests that did not fit.
    pub refused: u64,
}

/// Ledger of one memory area, on the host (an arena) or on a GPU.
#[derive(Debug)]
pub struct Ledger {
    capacity: usize,
    align_max: usize,
    /// Free ranges of a line without an end. A range is placed where it fits best, and refused when it ends beyond the
    /// capacity. So places do not depend on the capacity, and `reach_bytes` is exact.
    line: RangeAllocator<usize>,
    held: HashMap<usize, HeldRange>,
    total: Usage,
    owners: Vec<(String, Usage)>,
    current: Owner,
    not_held: u64,
}

#[derive(Clone, Copy, Debug)]
struct HeldRange {
    bytes: usize,
    owner: Owner,
}

/// Initial capacity of the table of allocated ranges: about twice as many as the measured models hold at one time, so
/// that a run does not grow it.
const HELD_EXPECTED: usize = 256;

impl Ledger {
    /// Creates a ledger of `capacity` bytes, whose start is aligned to `align_max`.
    pub fn new(capacity: usize, align_max: usize) -> Self {
        Self {
            capacity,
            align_max,
            line: RangeAllocator::new(0..usize::MAX),
            held: HashMap::with_capacity(HELD_EXPECTED),
            total: Usage::default(),
            owners: vec![("nobody".to_owned(), Usage::default())],
            current: Owner::NOBODY,
            not_held: 0,
        }
    }

    /// Allocates a range for `layout` and returns its start; `None` when it does not fit.
    pub fn take(&mut self, layout: Layout) -> Option<usize> {
        let range = self.place(layout);
        let of_owner = &mut self.owners[self.current.index()].1;
        for usage in [&mut self.total, of_owner] {
            usage.record(range.as_ref());
        }
        let range = range?;
        self.held.insert(range.start, HeldRange { bytes: range.len(), owner: self.current });
        Some(range.start)
    }

    /// Frees the range that starts at `offset`. Returns false, and counts it, when no allocated range starts there.
    #[must_use]
    pub fn release(&mut self, offset: Option<usize>) -> bool {
        let held = offset.and_then(|offset| Some((offset, self.held.remove(&offset)?)));
        let Some((offset, HeldRange { bytes, owner })) = held else {
            self.not_held += 1;
            return false;
        };
        self.line.free_range(offset..offset + bytes);
        for usage in [&mut self.total, &mut self.owners[owner.index()].1] {
            usage.in_use_bytes -= bytes;
            usage.held -= 1;
        }
        true
    }

    /// Returns the owner with this name, and creates it when the name is new.
    pub fn owner(&mut self, name: &str) -> Owner {
        let known = self.owners.iter().position(|(known, _)| known == name);
        let index = known.unwrap_or_else(|| {
            self.owners.push((name.to_owned(), Usage::default()));
            self.owners.len() - 1
        });
        Owner(u16::try_from(index).expect("a board has far fewer than 65536 models"))
    }

    /// Accounts all later requests to `owner`. Returns the previous owner.
    pub fn set_owner(&mut self, owner: Owner) -> Owner {
        assert!(owner.index() < self.owners.len(), "{owner:?} of {} owners", self.owners.len());
        std::mem::replace(&mut self.current, owner)
    }

    /// Returns the usage of all owners together.
    pub fn total(&self) -> Usage {
        self.total
    }

    /// Returns every owner's name and usage, in the order in which they were created.
    pub fn owners(&self) -> &[(String, Usage)] {
        &self.owners
    }

    /// Returns the number of frees of ranges that were not allocated.
    pub fn not_held(&self) -> u64 {
        self.not_held
    }

    /// Iterates over the whole units of `unit_bytes` without an allocated byte, as ranges in order.
    pub(crate) fn free_units(&self, unit_bytes: usize) -> impl Iterator<Item = Range<usize>> {
        let end = self.capacity..self.capacity;
        let mut free_from = 0;
        let gaps = self.line.allocated_ranges().chain([end]).map(move |held| {
            let gap = free_from..held.start;
            free_from = held.end;
            gap
        });
        let inward = move |gap: Range<usize>| {
            gap.start.next_multiple_of(unit_bytes)..gap.end / unit_bytes * unit_bytes
        };
        gaps.map(inward).filter(|units| !units.is_empty())
    }

    fn place(&mut self, layout: Layout) -> Option<Range<usize>> {
        // An empty range still has an address of its own. No overflow: a layout is at most `isize::MAX` bytes.
        let bytes = layout.size().max(1).next_multiple_of(GRANULE_BYTES);
        if bytes > self.capacity || layout.align() > self.align_max {
            return None;
        }
        let range = self.line.allocate_range_aligned(bytes, layout.align().max(GRANULE_BYTES)).ok()?;
        if range.end > self.capacity {
            self.line.free_range(range);
            return None;
        }
        Some(range)
    }
}

impl Usage {
    /// Counts a request and the range that it got.
    fn record(&mut self, range: Option<&Range<usize>>) {
        let Some(range) = range else {
            self.refused += 1;
            return;
        };
        self.in_use_bytes += range.len();
        self.high_water_bytes = self.high_water_bytes.max(self.in_use_bytes);
        self.reach_bytes = self.reach_bytes.max(range.end);
        self.held += 1;
        self.allocations += 1;
    }
}

#[cfg(test)]
mod tests;
