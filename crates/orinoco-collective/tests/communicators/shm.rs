//! Shared memory: the parts of its own.

#![expect(clippy::disallowed_methods, reason = "the tests measure how soon real ranks return")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use orinoco_collective::{CollectiveError, Communicator, FailureCause, ReduceOp, Settings, ShmGroup};
use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::meeting::Meeting;
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
        let (gone_on, goes_on) = (Meeting::new(3), Meeting::new(3));
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

/// Starts rank 2 of a test in a process of its own.
fn start_last_rank(test: &str, path: &Path) -> Child {
    let mut last = Command::new(std::env::current_exe().expect("this program"));
    last.args(["--exact", test]).env(LAST_RANK, path);
    last.stdout(Stdio::null()).spawn().expect("it starts")
}

/// The end of a process is noticed by itself, in an operation and while a smaller group is made.
#[test]
fn a_rank_that_is_killed_is_not_waited_for_until_it_is_silent() {
    let path = name();
    let last = Mutex::new(start_last_rank("shm::last_rank", &path));
    let (have_met, is_killed) = (Meeting::new(2), Meeting::new(2));
    let body = |rank: usize| {
        let mut group = ShmGroup::join(&path, rank, 3, LONG).unwrap();
        group.barrier().unwrap();
        // Either rank may need something from rank 2 when the other one's barrier has ended.
        have_met.wait();
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

/// Longest time until a rank that has failed is reported. A rank that computes is waited for much longer.
const REPORT_MAX: Duration = Duration::from_secs(20);

/// Ranks wait for rank 1, which computes, while the process of rank 2 is killed or stopped: that one is named, and soon.
#[test]
fn a_rank_that_fails_while_another_one_computes_is_named() {
    type Operate = fn(&mut ShmGroup) -> Result<(), CollectiveError>;
    let calls: [Operate; 4] = [
        |group| group.all_reduce(ReduceOp::Sum, &mut [1.0f32; 5]),
        |group| group.all_reduce(ReduceOp::Sum, &mut vec![1.0f32; 100_000]),
        // Nothing is needed of rank 2.
        |group| group.broadcast(1, &mut [1.0f32; 5]),
        |group| group.recv(1, &mut [1.0f32; 5]),
    ];
    let silence = Duration::from_secs(1);
    for (signal, silence) in [(Signal::KILL, LONG.silence), (Signal::STOP, silence)] {
        for (number, call) in calls.into_iter().enumerate() {
            let path = name();
            let mut last = start_last_rank("shm::last_rank", &path);
            let (reported, is_reported) = channel::<()>();
            let have_met = Meeting::new(2);
            let settings = Settings { silence, ..LONG };
            let join = |rank: usize| {
                let mut group = ShmGroup::join(&path, rank, 3, settings).expect("all join");
                group.barrier().expect("all call it");
                // Either rank may need something from rank 2 when the other one's barrier has ended.
                have_met.wait();
                group
            };
            let join = &join;
            thread::scope(|scope| {
                scope.spawn(move || {
                    let mut group = join(1);
                    // It computes until the others know.
                    let never_sent = is_reported.recv_timeout(2 * REPORT_MAX).expect_err("nothing is sent");
                    assert_eq!(never_sent, RecvTimeoutError::Disconnected, "call {number}");
                    group.barrier().expect_err("the group has failed");
                });
                let mut group = join(0);
                kill_process(Pid::from_child(&last), signal).expect("it is there");
                let start = Instant::now();
                let error = call(&mut group).expect_err("a rank has failed");
                let waited = start.elapsed();
                drop(reported);
                let CollectiveError::EpochFailed { rank: 2, cause, .. } = error else { panic!("{error}") };
                let is_right = match signal {
                    Signal::KILL => cause == FailureCause::Ended,
                    _ => matches!(cause, FailureCause::Silent(_)),
                };
                assert!(is_right && waited < REPORT_MAX, "call {number}: {error} after {waited:?}");
            });
            last.kill().expect("it is ours");
            last.wait().expect("it ends");
        }
    }
}

/// A rank that leaves without a call of which all need something is named while another one computes.
#[test]
fn a_rank_that_leaves_while_another_one_computes_is_named() {
    let (reported, is_reported) = (Meeting::new(2), Meeting::new(2));
    run(&crate::on_shm::KIND, 3, Times::of_a_busy_machine(), |mut group| match group.rank() {
        2 => {}
        1 => {
            reported.wait();
            group.barrier().expect_err("the group has failed");
            is_reported.wait();
        }
        _ => {
            let error = group.barrier().expect_err("rank 2 has left");
            let CollectiveError::EpochFailed { rank: 2, cause: FailureCause::Left, .. } = error else {
                panic!("{error}")
            };
            reported.wait();
            is_reported.wait();
        }
    });
}

/// Time for which a rank computes: much longer than others wait before they look at all ranks.
const COMPUTES: Duration = Duration::from_millis(300);

/// Rank 2 of the next test in a process of its own, if it is one: it is killed when it has done its part.
#[test]
fn last_rank_that_does_its_part() {
    let Some(path) = std::env::var_os(LAST_RANK) else { return };
    let mut group = ShmGroup::join(path.as_ref(), 2, 3, LONG).expect("all join");
    group.reduce(ReduceOp::Sum, 0, &[4u32], &mut [0]).expect("it waits for nobody");
    kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
}

/// The root of a reduction waits for rank 1, and rank 2 is gone after it has done its part.
#[test]
fn a_rank_that_has_done_its_part_may_be_gone_while_others_compute() {
    let path = name();
    let mut last = start_last_rank("shm::last_rank_that_does_its_part", &path);
    let body = |rank: usize| {
        let mut group = ShmGroup::join(&path, rank, 3, LONG).expect("all join");
        if rank == 1 {
            thread::sleep(COMPUTES);
        }
        let mut sum = [0u32];
        group.reduce(ReduceOp::Sum, 0, &[1 << rank], &mut sum).expect("all have done their part");
        sum[0]
    };
    let sum = thread::scope(|scope| {
        scope.spawn(|| body(1));
        body(0)
    });
    last.wait().expect("it ends");
    assert_eq!(sum, 7);

    let sums = run(&crate::on_shm::KIND, 3, Times::of_a_busy_machine(), |mut group| {
        if group.rank() == 1 {
            thread::sleep(COMPUTES);
        }
        let mut sum = [0u32];
        group.reduce(ReduceOp::Sum, 0, &[1 << group.rank()], &mut sum).expect("all do their part");
        // What a rank sends before it leaves is not lost, and nobody needs it to stay.
        match group.rank() {
            0 => group.recv(1, &mut sum).expect("rank 1 sends"),
            1 => {
                thread::sleep(COMPUTES);
                group.send(0, &[8u32]).expect("rank 0 receives");
            }
            _ => {}
        }
        sum[0]
    });
    assert_eq!(sums[0], 8);
}

/// A call of a rank, and how it is shown.
type CallOf = (fn(&mut ShmGroup) -> Result<(), CollectiveError>, &'static str);

/// Two ranks that wait for each other without end learn it long before their deadline, with both calls.
#[test]
fn two_ranks_that_wait_for_each_other_in_different_calls_name_both() {
    let receives: [CallOf; 2] = [
        (|group| group.recv(1, &mut [0u8; 3]), "send of 3 u8 from rank 1"),
        (|group| group.recv(0, &mut [0u8; 3]), "send of 3 u8 from rank 0"),
    ];
    let sends: [CallOf; 2] = [
        (|group| group.send(1, &[0u8; 1 << 20]), "send of 1048576 u8 from rank 0"),
        (|group| group.send(0, &[0u8; 1 << 20]), "send of 1048576 u8 from rank 1"),
    ];
    let reduces: CallOf =
        (|group| group.all_reduce(ReduceOp::Sum, &mut [0.0f32; 5]), "all_reduce of 5 f32, sum");
    let gathers: CallOf = (
        |group| group.all_gather_v(&[0u8; 2], &[2, 2], &mut [0; 4]),
        "all_gather_v of u8, counts with the checksum",
    );
    for calls in [receives, sends, [receives[0], reduces], [reduces, gathers]] {
        let errors = run(&crate::on_shm::KIND, 2, Times::of_a_busy_machine(), |mut group| {
            group.barrier().unwrap();
            calls[group.rank()].0(&mut group).unwrap_err()
        });
        let names_both = |error: &CollectiveError| match error {
            CollectiveError::EpochFailed { cause: FailureCause::Mismatch, .. } => false,
            CollectiveError::Mismatch { .. } => {
                assert!(calls.iter().all(|(_, shown)| error.to_string().contains(shown)), "{error}");
                true
            }
            _ => panic!("{error}"),
        };
        assert!(errors.iter().filter(|error| names_both(error)).count() >= 1, "{errors:?}");
    }
}

/// Ranks 0 and 2 gather vectors that are too long to be sent before they are taken, and rank 1 receives from rank 2.
#[test]
fn a_rank_that_waits_for_two_others_is_in_a_circle_with_one() {
    let errors = run(&crate::on_shm::KIND, 3, Times::of_a_busy_machine(), |mut group| {
        let own = vec![0u8; 1 << 20];
        match group.rank() {
            1 => group.recv(2, &mut [0u8; 3]),
            _ => group.all_gather_v(&own, &[1 << 20; 3], &mut vec![0; 3 << 20]),
        }
        .unwrap_err()
    });
    let is_named = |error: &CollectiveError| match error {
        CollectiveError::Mismatch { .. } => true,
        CollectiveError::EpochFailed { cause: FailureCause::Mismatch, .. } => false,
        _ => panic!("{error}"),
    };
    assert!(errors.iter().filter(|error| is_named(error)).count() >= 1, "{errors:?}");
}
