//! Bytes between regions of all tiers, and of all sizes.

use std::thread;

use orinoco_collective::Security;
use orinoco_collective::transfer::{Access, Position, Region, TransferOptions};
use orinoco_core::Rng;

use crate::device::SimulatedDevice;
use crate::{PIECE, SECURITIES, agents, bytes, file, pair, usual};

/// Sizes about the bounds of pieces, and of the records of encrypted connections.
const SIZES: [usize; 9] = [0, 1, 3, 511, (32 << 10) - 128, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 77];

#[test]
fn puts_and_gets_of_every_size_arrive_in_all_tiers() {
    for security in &SECURITIES {
        let [owner, other] = pair(security);
        let folder = tempfile::tempdir().unwrap();
        let len = 6 * PIECE;
        let regions = [
            ("host", Region::host(len)),
            ("file", Region::file(file(&folder.path().join("region")), len as u64).unwrap()),
            ("device", Region::device(SimulatedDevice::new(len))),
        ];
        for (name, region) in regions {
            let region = owner.register(name, region, Access::ReadWrite).unwrap();
            let mut expected = bytes(1, len);
            region.write(0, &expected).unwrap();
            for (seed, size) in SIZES.into_iter().enumerate() {
                let offset = [0, 1, 4097, len - size - 1, len - size][seed % 5].min(len - size);
                let range = offset..offset + size;
                let mut got = vec![0; size];
                other.get(0, name, offset as u64, &mut got, usual()).unwrap();
                assert!(got == expected[range.clone()], "{name}: get of {size} bytes");
                let new = bytes(100 + seed as u64, size);
                other.put(0, name, offset as u64, &new, usual()).unwrap();
                expected[range].copy_from_slice(&new);
                let mut all = vec![0; len];
                region.read(0, &mut all).unwrap();
                assert!(all == expected, "{name}: put of {size} bytes");
            }
        }
    }
}

#[test]
fn long_transfers_arrive_whole() {
    let len = 64 << 20;
    let long = bytes(3, len);
    for security in &SECURITIES {
        let [owner, other] = pair(security);
        let region = owner.register("long", Region::host(len), Access::ReadWrite).unwrap();
        other.put(0, "long", 0, &long, usual()).unwrap();
        let mut got = vec![0; len];
        other.get(0, "long", 0, &mut got, usual()).unwrap();
        assert!(got == long, "what was got is what was put");
        assert!(region.unregister().into_vec().unwrap() == long, "the owner has it back");
    }
}

#[test]
fn copies_between_all_tiers_arrive_in_both_directions() {
    for security in &SECURITIES {
        let agents = pair(security);
        let folder = tempfile::tempdir().unwrap();
        let (len, size) = (4 * PIECE, 3 * PIECE + 5);
        for case in 0..18u8 {
            let region = |rank: u8| match case / 3_u8.pow(rank.into()) % 3 {
                0 => Region::host(len),
                1 => Region::file(file(&folder.path().join(format!("{case}-{rank}"))), len as u64).unwrap(),
                _ => Region::device(SimulatedDevice::new(len)),
            };
            // The caller needs no access to its own region.
            let is_pull = case >= 9;
            let accesses = if is_pull { [Access::Read, Access::Read] } else { [Access::Write; 2] };
            let regions = [0, 1].map(|rank| {
                agents[usize::from(rank)]
                    .register("tensor", region(rank), accesses[usize::from(rank)])
                    .unwrap()
            });
            let content = bytes(case.into(), size);
            regions[0].write(7, &content).unwrap();
            let from = Position { rank: 0, region: "tensor", offset: 7 };
            let to = Position { rank: 1, region: "tensor", offset: 100 };
            let options = TransferOptions { durable: true, ..usual() };
            agents[usize::from(is_pull)].copy(from, to, size as u64, options).unwrap();
            let mut arrived = vec![0; size];
            regions[1].read(100, &mut arrived).unwrap();
            assert!(arrived == content, "case {case}");
            let mut before = [1; 100];
            regions[1].read(0, &mut before).unwrap();
            assert_eq!(before, [0; 100], "case {case}: bytes before the copy");
        }
    }
}

/// Each thread of each rank has a range of its own in a region of every other rank, in which it puts, gets and compares.
#[test]
fn threads_of_all_ranks_transfer_at_the_same_time_in_both_directions() {
    const THREADS: usize = 4;
    const RANGE: usize = 3 * PIECE;
    for security in &SECURITIES {
        let agents = agents(3, security);
        let regions: Vec<_> = agents
            .iter()
            .map(|agent| {
                agent.register("shared", Region::host(3 * THREADS * RANGE), Access::ReadWrite).unwrap()
            })
            .collect();
        thread::scope(|scope| {
            for number in 0..3 * THREADS {
                let agent = &agents[number / THREADS];
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(number as u64);
                    for round in 0..30 {
                        let peer = (agent.rank() + rng.usize(1..3)) % 3;
                        let len = rng.usize(..=RANGE);
                        let offset = (number * RANGE + rng.usize(..=RANGE - len)) as u64;
                        let content = bytes(round, len);
                        agent.put(peer, "shared", offset, &content, usual()).unwrap();
                        let mut got = vec![0; len];
                        agent.get(peer, "shared", offset, &mut got, usual()).unwrap();
                        assert!(got == content, "thread {number}, round {round}: {len} bytes");
                    }
                });
            }
        });
        drop(regions);
    }
}

/// More threads than may have requests under way: some wait for others, and all end.
#[test]
fn calls_beyond_the_bound_wait_for_others() {
    let [owner, other] = pair(&Security::Plaintext);
    let region = owner.register("region", Region::host(PIECE * 4), Access::Read).unwrap();
    thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                let mut into = vec![1; PIECE * 4];
                for _ in 0..5 {
                    other.get(0, "region", 0, &mut into, usual()).unwrap();
                }
                assert!(into.iter().all(|byte| *byte == 0));
            });
        }
    });
    drop(region);
}
