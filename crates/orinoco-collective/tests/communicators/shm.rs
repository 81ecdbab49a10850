//! Shared memory: the parts of its own.

use std::thread;

use orinoco_collective::{Communicator, ReduceOp, Settings, ShmGroup};

use crate::name;

#[test]
fn limits_can_be_measured_again_and_again() {
    let path = name();
    let limits = thread::scope(|scope| {
        let measure = |rank: usize| {
            let mut group = ShmGroup::join(&path, rank, 3, Settings::default()).unwrap();
            let first = group.measure_limits().unwrap();
            group.all_reduce(ReduceOp::Sum, &mut [1.0f32; 5]).unwrap();
            (first, group.measure_limits().unwrap())
        };
        let ranks = [0, 1, 2].map(|rank| scope.spawn(move || measure(rank)));
        ranks.map(|rank| rank.join().unwrap())
    });
    assert!(limits.iter().all(|rank| *rank == limits[0]), "all ranks get the figures of the slowest");
    assert!(!limits[0].1.exchange.is_zero() && limits[0].1.bytes_per_second > 0.0);
}
