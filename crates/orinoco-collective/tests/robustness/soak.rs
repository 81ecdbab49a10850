//! Ranks that run under load without a fault: none may be taken for dead.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use crate::faults::orders;
use crate::peer::{Beat, repeat};
use crate::process::{Process, Report};
use crate::worker::Orders;
use crate::{is_long, number, turn};

/// Length of the soak in the long tests, in minutes.
const MINUTES_LONG: u64 = 120;
/// Length of it otherwise.
const QUICK: Duration = Duration::from_secs(6);
/// Bytes that the load writes again and again: more than caches hold.
const LOAD_BYTES: usize = 64 << 20;
/// Growth of a rank's memory over the soak, in KiB.
const GROWTH_KIB: u64 = 32 << 10;

/// As many busy threads as cores, and one that keeps the memory busy.
pub(crate) fn load() -> Vec<Beat> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut counter = 0u64;
    let mut memory = vec![0u8; LOAD_BYTES];
    let mut all = vec![repeat(move || {
        counter += 1;
        memory.fill(black_box(counter as u8));
        black_box(&memory);
        true
    })];
    all.extend((0..cores).map(|_| {
        repeat(|| {
            (0..1_000_000u64).for_each(|number| _ = black_box(number));
            true
        })
    }));
    all
}

#[test]
fn no_rank_is_taken_for_dead_under_load() {
    let _turn = turn();
    let minutes = number("ORINOCO_SOAK_MINUTES").or(is_long().then_some(MINUTES_LONG));
    let time = minutes.map_or(QUICK, |minutes| Duration::from_secs(60 * minutes));
    let _load = load();
    let groups: Vec<(&str, Vec<Process>)> = [("shm", 3), ("tcp", 4), ("tcp-plaintext", 2), ("pcie", 2)]
        .into_iter()
        .map(|(transport, ranks)| {
            let all = Orders { time, seed: ranks as u64, ..orders(transport, 0, ranks) };
            let ranks = (0..ranks).map(|rank| Process::start(&Orders { rank, ..all.clone() }));
            (transport, ranks.collect())
        })
        .collect();
    for (transport, ranks) in &groups {
        let seed = ranks.len() as u64;
        let mut total = 0;
        ranks.iter().for_each(|rank| rank.joined(seed));
        for rank in ranks {
            let report = rank.report_within(seed, time + Duration::from_secs(120));
            let Report::Done { rounds } = report else {
                panic!("{transport}: rank {}: {report:?}", rank.rank)
            };
            total = rounds;
            let after = rank.left(seed);
            assert!(
                after.memory_kib < GROWTH_KIB + (32 << 10),
                "{transport}: rank {} holds {after:?}",
                rank.rank
            );
        }
        println!(
            "soak over {transport}, {} ranks: {} s, {total} operations, no false failure",
            ranks.len(),
            time.as_secs()
        );
    }
}
