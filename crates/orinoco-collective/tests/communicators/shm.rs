//! Shared memory: the parts of its own.

use std::thread;

use orinoco_collective::{Communicator, ReduceOp, Settings, ShmGroup};

use crate::{Times, name, run};

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

/// A rank from which others need something returns before they have called the operation, and the next one waits for them.
#[test]
fn a_rank_that_needs_nothing_of_others_does_not_wait_for_them() {
    run(&crate::on_shm::KIND, 3, Times::of_a_busy_machine(), {
        let (gone_on, goes_on) = (std::sync::Barrier::new(3), std::sync::Barrier::new(3));
        move |mut group| {
            let rank = group.rank();
            let root = 1;
            for round in 0..50u32 {
                let mut vector = [if rank == root { round } else { 0 }; 5];
                if rank == root {
                    group.broadcast(root, &mut vector).unwrap();
                    gone_on.wait();
                } else {
                    // The root has returned.
                    gone_on.wait();
                    group.broadcast(root, &mut vector).unwrap();
                }
                assert_eq!(vector, [round; 5]);
                let mut sum = [0; 5];
                if rank == root {
                    goes_on.wait();
                    group.reduce(ReduceOp::Sum, root, &vector, &mut sum).unwrap();
                    assert_eq!(sum, [3 * round; 5]);
                } else {
                    group.reduce(ReduceOp::Sum, root, &vector, &mut sum).unwrap();
                    goes_on.wait();
                }
            }
        }
    });
}

/// A root that has returned learns at its next call that another rank has called something else.
#[test]
fn a_root_that_has_returned_learns_of_another_call_at_its_next() {
    let errors = run(&crate::on_shm::KIND, 2, Times::default(), |mut group| {
        if group.rank() == 0 {
            group.broadcast(0, &mut [1u32]).unwrap();
            return group.barrier().unwrap_err().to_string();
        }
        group.broadcast(0, &mut [1u32, 2]).unwrap_err().to_string()
    });
    let names_both =
        |error: &String| error.contains("broadcast of 1 u32") && error.contains("broadcast of 2 u32");
    assert!(errors.iter().all(|error| names_both(error) || error.contains("different")), "{errors:?}");
    assert!(errors.iter().any(names_both), "{errors:?}");
}
