use expect_test::{Expect, expect};

use super::*;

const PAGE: usize = 4096;

/// Allocation requests of ONNX Runtime 1.31.1 (x86_64, two intra-op threads, memory pattern off) for one run after
/// warm-up, as a custom allocator recorded them: `+3 64` allocates 64 bytes with the name 3, `-3` frees them.
const TRACES: [(&str, &str); 4] = [
    ("yolox_nano_int8_qdq", include_str!("../../traces/yolox_nano_int8_qdq.txt")),
    ("ultraface_rfb320", include_str!("../../traces/ultraface_rfb320.txt")),
    ("deeplabv3_mnv2_257", include_str!("../../traces/deeplabv3_mnv2_257.txt")),
    ("kws_dscnn_f32", include_str!("../../traces/kws_dscnn_f32.txt")),
];

fn layout(bytes: usize, align: usize) -> Layout {
    Layout::from_size_align(bytes, align).expect("a power of two")
}

/// Replays a trace once on a ledger. Returns false at the first refused request.
fn replay(ledger: &mut Ledger, trace: &str) -> bool {
    let mut places = HashMap::new();
    for line in trace.lines() {
        let (name, bytes) = line[1..].split_once(' ').unwrap_or((&line[1..], ""));
        if line.starts_with('+') {
            let bytes = bytes.parse().expect("a size");
            let Some(offset) = ledger.take(layout(bytes, 64)) else { return false };
            places.insert(name, offset);
        } else {
            assert!(ledger.release(places.remove(name)), "{line}");
        }
    }
    assert!(places.is_empty(), "a run frees what it takes");
    true
}

#[test]
fn fragmentation_of_real_runs_is_small_and_the_reach_is_enough() {
    let mut shown = String::new();
    for (name, trace) in TRACES {
        let mut ledger = Ledger::new(usize::MAX >> 1, PAGE);
        assert!(replay(&mut ledger, trace));
        let Usage { reach_bytes, high_water_bytes, held, in_use_bytes, allocations, .. } = ledger.total();
        assert_eq!((held, in_use_bytes), (0, 0));
        let share = reach_bytes as f64 / high_water_bytes as f64;
        shown +=
            &format!("{name}: {allocations} requests, at most {high_water_bytes}, reach {share:.4} of it\n");

        // The same requests fit an arena of exactly this size again and again, and with one granule less one is
        // refused.
        let mut exact = Ledger::new(reach_bytes, PAGE);
        assert!((0..3).all(|_| replay(&mut exact, trace)), "{name}");
        assert_eq!(exact.total().reach_bytes, reach_bytes);
        assert!(!replay(&mut Ledger::new(reach_bytes - GRANULE_BYTES, PAGE), trace), "{name}");
    }
    check(
        &shown,
        expect![[r#"
        yolox_nano_int8_qdq: 140 requests, at most 8998912, reach 1.1154 of it
        ultraface_rfb320: 81 requests, at most 4915200, reach 1.0000 of it
        deeplabv3_mnv2_257: 32 requests, at most 11096320, reach 1.0082 of it
        kws_dscnn_f32: 25 requests, at most 173312, reach 1.0000 of it
    "#]],
    );
}

#[test]
fn models_in_turn_need_as_much_as_the_largest() {
    let mut lane = Ledger::new(usize::MAX >> 1, PAGE);
    let mut largest = 0;
    for (name, trace) in TRACES.iter().chain(&TRACES) {
        let owner = lane.owner(name);
        lane.set_owner(owner);
        assert!(replay(&mut lane, trace));
        let mut alone = Ledger::new(usize::MAX >> 1, PAGE);
        assert!(replay(&mut alone, trace));
        assert_eq!(lane.owners()[owner.index()].1.reach_bytes, alone.total().reach_bytes, "{name}");
        largest = largest.max(alone.total().reach_bytes);
    }
    assert_eq!(lane.total().reach_bytes, largest);
}

#[test]
fn owners_have_accounts_of_their_own() {
    let mut ledger = Ledger::new(4 * PAGE, PAGE);
    let (faces, yolox) = (ledger.owner("faces"), ledger.owner("yolox"));
    assert_eq!(ledger.owner("faces"), faces);
    let first = ledger.take(layout(10, 1));
    assert_eq!(ledger.set_owner(faces), Owner::NOBODY);
    let second = ledger.take(layout(100, 64));
    assert_eq!(ledger.set_owner(yolox), faces);
    // Freed while another owner is current, the range is still taken off the account that allocated it.
    assert!(ledger.release(second));
    assert_eq!(ledger.take(layout(5 * PAGE, 64)), None);
    assert_eq!(ledger.take(layout(64, 2 * PAGE)), None);
    assert!(!ledger.release(second), "it is free already");
    assert!(!ledger.release(first.map(|offset| offset + 1)), "that is the middle of a range");
    assert!(!ledger.release(None), "that is before the arena");
    let mut shown = format!("not held: {}\n", ledger.not_held());
    for (name, usage) in
        ledger.owners().iter().map(|(name, usage)| (name.as_str(), *usage)).chain([("all", ledger.total())])
    {
        shown += &format!("{name}: {usage:?}\n");
    }
    check(
        &shown,
        expect![[r#"
        not held: 3
        nobody: Usage { in_use_bytes: 64, high_water_bytes: 64, reach_bytes: 64, held: 1, allocations: 1, refused: 0 }
        faces: Usage { in_use_bytes: 0, high_water_bytes: 128, reach_bytes: 192, held: 0, allocations: 1, refused: 0 }
        yolox: Usage { in_use_bytes: 0, high_water_bytes: 0, reach_bytes: 0, held: 0, allocations: 0, refused: 2 }
        all: Usage { in_use_bytes: 64, high_water_bytes: 192, reach_bytes: 192, held: 1, allocations: 2, refused: 2 }
    "#]],
    );
}

#[test]
fn units_that_nobody_holds_are_found() {
    let mut ledger = Ledger::new(10 * PAGE, PAGE);
    let free = |ledger: &Ledger| {
        let pages =
            ledger.free_units(PAGE).map(|range| format!("{:?}", range.start / PAGE..range.end / PAGE));
        pages.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(free(&ledger), "0..10");
    let places: Vec<_> = [PAGE, 2 * PAGE, 64, PAGE].map(|bytes| ledger.take(layout(bytes, PAGE))).to_vec();
    assert_eq!(places, [0, PAGE, 3 * PAGE, 4 * PAGE].map(Some));
    assert_eq!(free(&ledger), "5..10");
    assert!(ledger.release(places[1]));
    assert_eq!(free(&ledger), "1..3 5..10");
    assert!(ledger.release(places[0]));
    assert!(ledger.release(places[3]));
    assert_eq!(free(&ledger), "0..3 4..10");
    assert!(ledger.release(places[2]));
    assert_eq!(free(&ledger), "0..10");
    assert_eq!(ledger.take(layout(10 * PAGE, 64)), Some(0));
    assert_eq!(free(&ledger), "");
}

fn check(shown: &str, expected: Expect) {
    expected.assert_eq(shown);
}
