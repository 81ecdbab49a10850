//! Which bytes of an area are whose. Offsets only: the books lie outside the memory that they are about, so an engine
//! that writes past its range cannot damage them, and giving pages back to the system cannot lose them.

use std::alloc::Layout;
use std::collections::HashMap;
use std::ops::Range;

use range_alloc::RangeAllocator;

/// Ranges start and end on multiples of this: a cache line, and what ONNX Runtime's CPU kernels want (AVX-512).
const GRANULE_BYTES: usize = 64;

/// On whose account an arena allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(u16);

impl Owner {
    /// Nobody in particular: the owner of a new arena's first allocations.
    pub const NOBODY: Self = Self(0);

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What an arena, or one owner in it, has done. Bytes are those of whole granules of 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes held now.
    pub in_use_bytes: usize,
    /// The most bytes held at one time.
    pub high_water_bytes: usize,
    /// The furthest end of a range that was ever handed out. An arena of exactly this size serves the same requests: it
    /// is what a plan must give, fragmentation included.
    pub reach_bytes: usize,
    /// Ranges held now.
    pub held: usize,
    /// Ranges handed out.
    pub allocations: u64,
    /// Requests that did not fit.
    pub refused: u64,
}

/// The books of one area of memory, wherever that lies: an arena of the host's, or a GPU's.
#[derive(Debug)]
pub struct Ledger {
    capacity: usize,
    align_max: usize,
    /// Free ranges of a line that has no end. A range is taken where it fits best and refused when it ends past the
    /// capacity. So placing does not depend on the capacity, which makes `reach_bytes` mean what it says.
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

/// Entries that the table of held ranges has room for from the start: about twice what the models measured hold at one
/// time, so that a run does not grow it.
const HELD_EXPECTED: usize = 256;

impl Ledger {
    /// Books for `capacity` bytes, whose start is aligned to `align_max`.
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

    /// Where a range for `layout` starts; `None` when it does not fit.
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

    /// Takes back the range that starts at `offset`. False when none does, which is counted.
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

    /// The owner of that name, new if there was none.
    pub fn owner(&mut self, name: &str) -> Owner {
        let known = self.owners.iter().position(|(known, _)| known == name);
        let index = known.unwrap_or_else(|| {
            self.owners.push((name.to_owned(), Usage::default()));
            self.owners.len() - 1
        });
        Owner(u16::try_from(index).expect("a board has far fewer than 65536 models"))
    }

    /// From now on `owner` allocates. Gives the one before.
    pub fn set_owner(&mut self, owner: Owner) -> Owner {
        assert!(owner.index() < self.owners.len(), "{owner:?} of {} owners", self.owners.len());
        std::mem::replace(&mut self.current, owner)
    }

    /// What all owners did together.
    pub fn total(&self) -> Usage {
        self.total
    }

    /// Every owner by name, in the order in which they were named.
    pub fn owners(&self) -> &[(String, Usage)] {
        &self.owners
    }

    /// Returns of what was not held.
    pub fn not_held(&self) -> u64 {
        self.not_held
    }

    /// Every whole unit of `unit_bytes` that nobody holds a byte of, as ranges in order.
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
        // A range of nothing still has an address of its own. No overflow: a layout is at most `isize::MAX` bytes.
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
    /// Counts a request and the range it got.
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
