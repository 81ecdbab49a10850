use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use proptest::prelude::*;

use super::*;

/// Range of an arena, filled with a byte that only its holder writes.
struct HeldRange {
    ptr: NonNull<u8>,
    layout: Layout,
    fill: u8,
}

impl HeldRange {
    fn take(arena: &Arena, layout: Layout, fill: u8) -> Option<Self> {
        let ptr = arena.alloc(layout)?;
        assert!(ptr.addr().get().is_multiple_of(layout.align()), "{ptr:?} for {layout:?}");
        // SAFETY: the arena gave `layout.size()` bytes at `ptr`, which are ours alone until `free`.
        unsafe { ptr.write_bytes(fill, layout.size()) };
        Some(Self { ptr, layout, fill })
    }

    fn intact(&self) -> bool {
        // SAFETY: as in `take`, which wrote them all; nobody else has the pointer.
        let bytes = unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.layout.size()) };
        bytes.iter().all(|byte| *byte == self.fill)
    }

    fn free(self, arena: &Arena) {
        assert!(self.intact(), "somebody wrote into {:?} {:?}", self.ptr, self.layout);
        arena.free(self.ptr).expect("it was held");
    }
}

fn layout(bytes: usize, align: usize) -> Layout {
    Layout::from_size_align(bytes, align).expect("a power of two")
}

fn arena(pages: usize) -> Arena {
    Arena::new(pages * page_size()).expect("a small mapping")
}

#[test]
fn sizes_are_whole_pages_and_never_more() {
    let arena = Arena::new(1).unwrap();
    assert_eq!(arena.bytes(), page_size());
    let all = arena.alloc(layout(page_size(), 64)).expect("all of it");
    assert_eq!(arena.alloc(layout(1, 1)), None);
    assert_eq!(arena.usage().refused, 1);
    arena.free(all).unwrap();
    assert_eq!(arena.alloc(layout(0, 1)), Some(all));
    assert_eq!(arena.usage().in_use_bytes, 64);
}

#[test]
fn what_the_system_cannot_map_is_an_error() {
    let shown = |bytes| {
        let error = Arena::new(bytes).unwrap_err();
        format!("{error}: {}", std::error::Error::source(&error).expect("the system's reason"))
    };
    expect_test::expect![[r#"
        mapping 0.0 MiB for an arena: Invalid argument (os error 22)
        mapping 17592186044416.0 MiB for an arena: out of memory"#]]
    .assert_eq(&format!("{}\n{}", shown(0), shown(usize::MAX)));
}

#[test]
fn the_second_model_of_a_lane_gets_the_same_bytes() {
    let arena = arena(16);
    let mut first = None;
    for name in ["faces", "yolox"] {
        arena.set_owner(arena.owner(name));
        let held = HeldRange::take(&arena, layout(3 * page_size(), 64), 7).unwrap();
        assert_eq!(*first.get_or_insert(held.ptr), held.ptr);
        held.free(&arena);
    }
    assert_eq!(arena.usage().reach_bytes, 3 * page_size());
    assert_eq!(arena.owners().len(), 3);
}

#[test]
fn pointers_of_others_are_not_taken_back() {
    let (ours, other) = (arena(1), arena(1));
    let theirs = other.alloc(layout(64, 64)).unwrap();
    assert_eq!(ours.free(theirs), Err(UnknownRange));
    assert_eq!(ours.free(NonNull::dangling()), Err(UnknownRange));
    assert_eq!((ours.not_held(), other.usage().held), (2, 1));
}

#[test]
fn unused_pages_go_back_and_held_ones_stay() {
    let arena = arena(64);
    let gone = HeldRange::take(&arena, layout(40 * page_size(), 64), 1).unwrap();
    let kept = HeldRange::take(&arena, layout(100, 64), 2).unwrap();
    let start = gone.ptr;
    gone.free(&arena);
    assert_eq!(arena.release_unused().unwrap(), 63 * page_size());
    assert!(kept.intact());
    assert_eq!(arena.alloc(layout(40 * page_size(), 64)), Some(start));
    // SAFETY: the arena gave 40 pages at `start`. That they are initialised is what is tested: new pages are zeroes.
    let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), 40 * page_size()) };
    assert!(bytes.iter().all(|byte| *byte == 0), "the old contents are still there");
    arena.free(start).unwrap();
    kept.free(&arena);
    assert_eq!(arena.release_unused().unwrap(), arena.bytes());
}

#[test]
fn threads_allocate_at_once() {
    const THREADS: u8 = 8;
    const TURNS: usize = 20_000;
    const HELD_MAX: usize = 12;
    let arena = Arc::new(arena(64));
    let work = |seed: u8| {
        let arena = Arc::clone(&arena);
        move || {
            // Linear congruential generator: each thread makes the same requests in every run; only their interleaving
            // differs.
            let mut state = u64::from(seed) + 1;
            let mut next = |bound: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % bound
            };
            let mut held = Vec::new();
            for turn in 0..TURNS {
                // Without this, each thread on a busy machine would finish before the next begins, and the arena would
                // never be full.
                if turn % 64 == 0 {
                    thread::yield_now();
                }
                if held.len() == HELD_MAX || (next(2) == 0 && !held.is_empty()) {
                    let index = next(held.len());
                    let one: HeldRange = held.swap_remove(index);
                    one.free(&arena);
                } else {
                    let wanted = layout(next(6000), 1 << next(13));
                    held.extend(HeldRange::take(&arena, wanted, seed ^ next(256) as u8));
                }
            }
            held.into_iter().for_each(|one| one.free(&arena));
        }
    };
    let threads: Vec<_> = (0..THREADS).map(|seed| thread::spawn(work(seed))).collect();
    // Unused pages are released meanwhile, which nobody may notice.
    while !threads.iter().all(thread::JoinHandle::is_finished) {
        arena.release_unused().unwrap();
        thread::yield_now();
    }
    threads.into_iter().for_each(|thread| thread.join().expect("no range was written by two"));
    let usage = arena.usage();
    assert_eq!((usage.in_use_bytes, usage.held, arena.not_held()), (0, 0, 0));
    assert!(usage.reach_bytes <= arena.bytes());
    assert!(usage.allocations > 0 && usage.refused > 0, "the arena was never full: {usage:?}");
}

proptest! {
    #[test]
    fn live_ranges_never_overlap_and_keep_their_contents(
        steps in prop::collection::vec((any::<bool>(), 0_usize..9000, 0_u32..14, any::<u8>()), 1..300),
        pages in 1_usize..32,
    ) {
        let arena = arena(pages);
        let mut held: Vec<HeldRange> = Vec::new();
        let (mut taken, mut refused) = (0, 0);
        for (frees, number, align, fill) in steps {
            if frees && !held.is_empty() {
                held.swap_remove(number % held.len()).free(&arena);
            } else if let Some(one) = HeldRange::take(&arena, layout(number, 1 << align), fill) {
                taken += 1;
                held.push(one);
            } else {
                refused += 1;
            }
            let ends: BTreeMap<usize, usize> =
                held.iter().map(|one| (one.ptr.addr().get(), one.ptr.addr().get() + one.layout.size())).collect();
            prop_assert_eq!(ends.len(), held.len(), "two ranges start at one address");
            let ordered: Vec<(usize, usize)> = ends.into_iter().collect();
            prop_assert!(ordered.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{ordered:x?}");
            let (start, end) = (arena.base.addr().get(), arena.base.addr().get() + arena.bytes());
            prop_assert!(ordered.iter().all(|(from, to)| start <= *from && *to <= end));
        }
        prop_assert!(held.iter().all(HeldRange::intact));
        let usage = arena.usage();
        prop_assert_eq!((usage.held, usage.allocations, usage.refused), (held.len(), taken, refused));
        held.into_iter().for_each(|one| one.free(&arena));
        // When everything is free, the arena is one range again.
        prop_assert_eq!(arena.alloc(layout(arena.bytes(), 64)), Some(arena.base));
    }
}
