//! Shared memory: the parts of its own.

use std::process::{Command, Stdio};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use orinoco_collective::{CollectiveError, Communicator, FailureCause, ReduceOp, Settings, ShmGroup};

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
        let (gone_on, goes_on) = (Barrier::new(3), Barrier::new(3));
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

/// Variable of the environment for the last rank of the next test.
const LAST_RANK: &str = "ORINOCO_TEST_LAST_RANK_OF_SHM";
/// No rank becomes silent or late within the test: the cause would be another one.
const LONG: Settings =
    Settings { deadline: Duration::from_secs(60), silence: Duration::from_secs(60), single_copy: true };

/// Rank 2 of the next test in a process of its own, if it is one: it takes part in one barrier, and then computes without end.
#[test]
fn last_rank() {
    let Some(path) = std::env::var_os(LAST_RANK) else { return };
    let mut group = ShmGroup::join(path.as_ref(), 2, 3, LONG).unwrap();
    group.barrier().unwrap();
    loop {
        thread::park();
    }
}

/// The end of a process is noticed by itself, in an operation and while a smaller group is made.
#[test]
fn a_rank_that_is_killed_is_not_waited_for_until_it_is_silent() {
    let path = name();
    let mut last = Command::new(std::env::current_exe().unwrap());
    last.args(["--exact", "shm::last_rank"]).env(LAST_RANK, &path);
    let (last, is_killed) = (Mutex::new(last.stdout(Stdio::null()).spawn().unwrap()), Barrier::new(2));
    let body = |rank: usize| {
        let mut group = ShmGroup::join(&path, rank, 3, LONG).unwrap();
        group.barrier().unwrap();
        if rank == 0 {
            last.lock().unwrap().kill().unwrap();
        }
        is_killed.wait();
        if rank == 0 {
            let error = group.all_reduce(ReduceOp::Sum, &mut [1.0f32; 5]).unwrap_err();
            let is_named =
                matches!(error, CollectiveError::EpochFailed { rank: 2, cause: FailureCause::Ended, .. });
            assert!(is_named, "{error}");
        }
        let mut smaller = group.shrink().unwrap();
        let mut sum = [rank as u64 + 1];
        smaller.all_reduce(ReduceOp::Sum, &mut sum).unwrap();
        sum[0]
    };
    let sums = thread::scope(|scope| {
        let body = &body;
        [0, 1].map(|rank| scope.spawn(move || body(rank))).map(|rank| rank.join().unwrap())
    });
    last.lock().unwrap().wait().unwrap();
    assert_eq!(sums, [3, 3]);
}
