//! Ranks of shared memory under shuttle: they run one at a time, in an order that a seed decides (`cargo xtask shuttle`). A rank that
//! waits without end, because nobody wakes it, is a deadlock to shuttle, and fails the test.
//!
//! Shuttle's memory is sequentially consistent: an order of writes that Arm allows and that `Release` and `Acquire` forbid is not
//! tried here. Slots, and the longest vectors that are cut into pieces, are a few elements long, so that many pieces are under way.

use std::sync::Arc;
use std::time::Duration;

use orinoco_sim::check_orders;
use shuttle::thread;

use super::heartbeat::Heartbeat;
use super::process::RankProcess;
use super::segment::Segment;
use super::sync::{Ordering, let_sleep_time_out};
use super::wait::fail;
use super::{Settings, ShmGroup};
use crate::{CollectiveError, Communicator, FailureCause, ReduceOp};

/// Least bytes of vectors that are read directly, if any are.
const SINGLE_COPY_BYTES: usize = 64;
/// Elements: none, within a line, within a piece, of several pieces.
const LENS: [usize; 4] = [0, 3, 15, 50];

/// Setup of a group.
#[derive(Clone, Copy)]
struct Setup {
    ranks: usize,
    single_copy: bool,
    /// Whether a sleeper wakes by itself: where it waits for one of two flags, it is woken for one of them only.
    times_out: bool,
}

/// Runs a function as each rank.
fn run<R: Send + 'static>(
    setup: Setup,
    act: impl FnOnce(Arc<Segment>),
    body: impl Fn(ShmGroup) -> R + Send + Sync + 'static,
) -> Vec<R> {
    if setup.times_out {
        let_sleep_time_out();
    }
    let file = tempfile::tempfile().unwrap();
    file.set_len(Segment::file_bytes(setup.ranks) as u64).unwrap();
    let segment = Arc::new(Segment::map(&file, setup.ranks).unwrap());
    // Real time does not pass here: a machine that is busy must not make a rank late.
    let settings = Settings { deadline: Duration::MAX, silence: Duration::MAX, single_copy: false };
    let processes = vec![RankProcess::default(); setup.ranks];
    let body = Arc::new(body);
    let start = |rank: usize| {
        segment.pulse(rank).process.store(std::process::id(), Ordering::SeqCst);
        let heartbeat = Heartbeat::without_thread(Arc::clone(&segment), rank);
        let mut group = ShmGroup::new(Arc::clone(&segment), processes.clone(), rank, settings, heartbeat);
        group.single_copy_bytes = setup.single_copy.then_some(SINGLE_COPY_BYTES);
        let body = Arc::clone(&body);
        thread::spawn(move || body(group))
    };
    let threads: Vec<_> = (0..setup.ranks).map(start).collect();
    act(segment);
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn value(rank: usize, round: usize, i: usize) -> i64 {
    (rank * 10_000 + round * 100 + i) as i64
}

fn vector(rank: usize, round: usize, len: usize) -> Vec<i64> {
    (0..len).map(|i| value(rank, round, i)).collect()
}

/// Runs operations on memory that is overwritten as soon as each returns.
fn operate(group: &mut ShmGroup, lens: &[usize]) -> Result<(), CollectiveError> {
    let (rank, ranks) = (group.rank(), group.ranks());
    for (round, len) in lens.iter().copied().enumerate() {
        let sum = |i: usize| (0..ranks).map(|rank| value(rank, round, i)).sum::<i64>();

        let mut reduced = vector(rank, round, len);
        let done = group.all_reduce(ReduceOp::Sum, &mut reduced);
        let is_right = reduced.iter().enumerate().all(|(i, found)| *found == sum(i));
        reduced.fill(-1);
        done?;
        assert!(is_right, "all-reduce of {len} elements");

        let root = round % ranks;
        let mut copied = vector(rank, round, len);
        let done = group.broadcast(root, &mut copied);
        let is_right = copied == vector(root, round, len);
        copied.fill(-1);
        done?;
        assert!(is_right, "broadcast of {len} elements");

        // Ranks run ahead of the root in these, or the root of them.
        let (mut own, mut at_root) = (vector(rank, round, len), vec![0; len * ranks]);
        let done = group.reduce(ReduceOp::Sum, root, &own, &mut at_root[..len]);
        let is_right = rank != root || at_root[..len].iter().enumerate().all(|(i, found)| *found == sum(i));
        own.fill(-1);
        done?;
        assert!(is_right, "reduce of {len} elements");

        let mut own = vector(rank, round, len);
        let done = group.gather(root, &own, &mut at_root);
        let is_right = rank != root
            || at_root.iter().enumerate().all(|(i, found)| *found == value(i / len, round, i % len));
        own.fill(-1);
        done?;
        assert!(is_right, "gather of {len} elements");

        let mut block = vec![0; len];
        let done = group.scatter(root, &at_root, &mut block);
        at_root.fill(-1);
        done?;
        assert!(block == vector(rank, round, len), "scatter of {len} elements");

        let (mut input, mut exchanged) = (vector(rank, round, len * ranks), vec![0; len * ranks]);
        let done = group.all_to_all(&input, &mut exchanged);
        input.fill(-1);
        done?;
        let of = |i: usize| value(i / len, round, rank * len + i % len);
        assert!(
            exchanged.iter().enumerate().all(|(i, found)| *found == of(i)),
            "all-to-all of {len} elements"
        );
    }
    Ok(())
}

/// Sends vectors around the ring.
fn pass_on(group: &mut ShmGroup, lens: &[usize]) -> Result<(), CollectiveError> {
    let (rank, ranks) = (group.rank(), group.ranks());
    let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    for (round, len) in lens.iter().copied().enumerate() {
        let (mut own, mut received) = (vector(rank, round, len), vec![0; len]);
        let done = match rank {
            0 => group.send(next, &own).and_then(|()| group.recv(previous, &mut received)),
            _ => group.recv(previous, &mut received).and_then(|()| group.send(next, &own)),
        };
        own.fill(-1);
        done?;
        assert!(received == vector(previous, round, len), "message of {len} elements");
    }
    Ok(())
}

fn check_results(setup: Setup, lens: &'static [usize]) {
    check_orders(move || {
        run(setup, |_| {}, move |mut group| operate(&mut group, lens).unwrap());
    });
}

#[test]
fn two_ranks_get_right_results_and_are_woken() {
    check_results(Setup { ranks: 2, single_copy: false, times_out: false }, &[0, 3, 15, 50, 3]);
}

#[test]
fn three_ranks_get_right_results_and_are_woken() {
    check_results(Setup { ranks: 3, single_copy: false, times_out: false }, &LENS);
}

#[test]
fn vectors_that_are_read_directly_are_not_changed_meanwhile() {
    check_results(Setup { ranks: 3, single_copy: true, times_out: false }, &[3, 50, 15]);
}

#[test]
fn messages_come_whole_and_in_order() {
    for single_copy in [false, true] {
        let setup = Setup { ranks: 2, single_copy, times_out: false };
        check_orders(move || {
            run(setup, |_| {}, |mut group| pass_on(&mut group, &[3, 0, 100, 15]).unwrap());
        });
    }
}

#[test]
fn messages_in_both_directions_come_whole() {
    let setup = Setup { ranks: 3, single_copy: false, times_out: true };
    check_orders(move || {
        run(
            setup,
            |_| {},
            |mut group| {
                let (rank, counts) = (group.rank(), [3, 0, 60]);
                let mut gathered = vec![0; 63];
                group.all_gather_v(&vector(rank, 0, counts[rank]), &counts, &mut gathered).unwrap();
                assert!(gathered == [vector(0, 0, 3), vector(2, 0, 60)].concat(), "all-gather");
            },
        );
    });
}

/// A rank that leaves after its last message has sent it, and is named after that.
#[test]
fn messages_of_a_rank_that_leaves_are_not_lost() {
    let setup = Setup { ranks: 2, single_copy: false, times_out: true };
    check_orders(move || {
        run(
            setup,
            |_| {},
            |mut group| {
                if group.rank() == 1 {
                    return group.send(0, &vector(1, 0, 40)).unwrap();
                }
                let mut received = vec![0; 40];
                group.recv(1, &mut received).unwrap();
                assert!(received == vector(1, 0, 40));
                let error = group.recv(1, &mut received).unwrap_err();
                let is_named =
                    matches!(error, CollectiveError::EpochFailed { rank: 1, cause: FailureCause::Left, .. });
                assert!(is_named, "{error}");
            },
        );
    });
}

/// Somebody gives a rank up at any time, as happens when it was stopped: it may go on at any time, too. Every rank returns a right
/// result or that failure, although those that fail overwrite their vectors at once.
#[test]
fn a_failure_at_any_time_gives_no_wrong_result() {
    for single_copy in [false, true] {
        for send in [false, true] {
            let setup = Setup { ranks: 3, single_copy, times_out: true };
            check_orders(move || {
                let give_up = |segment: Arc<Segment>| {
                    fail(&segment, 1, FailureCause::Silent(Duration::from_millis(500)));
                };
                let results = run(setup, give_up, move |mut group| match send {
                    false => operate(&mut group, &[15, 50]),
                    true => pass_on(&mut group, &[15, 50]),
                });
                for error in results.into_iter().filter_map(Result::err) {
                    let CollectiveError::EpochFailed { rank, cause, .. } = error else { panic!("{error}") };
                    // A rank that has returned leaves, which the others may see before they see the failure; the first one stays.
                    assert!(
                        (rank, cause) == (1, FailureCause::Silent(Duration::from_millis(500))),
                        "{error}"
                    );
                }
            });
        }
    }
}

/// All ranks call something else. The first failure that is noted stays, and ends every call.
#[test]
fn the_first_failure_is_the_one_that_all_report() {
    let setup = Setup { ranks: 3, single_copy: false, times_out: true };
    check_orders(move || {
        let errors = run(
            setup,
            |_| {},
            |mut group| {
                let mut vector = vec![1u8; 1 + group.rank()];
                let first = group.all_reduce(ReduceOp::Sum, &mut vector).unwrap_err();
                (first, group.barrier().unwrap_err())
            },
        );
        let mut named = Vec::new();
        for (first, second) in errors {
            assert!(matches!(
                first,
                CollectiveError::Mismatch { .. }
                    | CollectiveError::EpochFailed { cause: FailureCause::Mismatch, .. }
            ));
            let CollectiveError::EpochFailed { rank, cause: FailureCause::Mismatch, .. } = second else {
                panic!("{second}")
            };
            named.push(rank);
        }
        assert!(named.iter().all(|rank| *rank == named[0]), "ranks {named:?} are named");
    });
}

/// Ranks whose sleeps end by themselves look at who waits for whom all the time, and find no circle in right calls.
#[test]
fn right_calls_are_never_taken_for_a_circle_of_waits() {
    for ranks in [2, 3] {
        let setup = Setup { ranks, single_copy: false, times_out: true };
        check_orders(move || {
            run(
                setup,
                |_| {},
                |mut group| {
                    operate(&mut group, &[3, 50]).unwrap();
                    pass_on(&mut group, &[100, 3]).unwrap();
                    group.barrier().unwrap();
                },
            );
        });
    }
}

/// Both ranks receive. One notices at any time that they wait without end, or both do.
#[test]
fn ranks_that_wait_for_each_other_find_out() {
    let setup = Setup { ranks: 2, single_copy: false, times_out: true };
    check_orders(move || {
        let errors = run(
            setup,
            |_| {},
            |mut group| {
                let other = 1 - group.rank();
                group.barrier().unwrap();
                group.recv(other, &mut [0i64]).unwrap_err()
            },
        );
        let both = |error: &CollectiveError| matches!(error, CollectiveError::Mismatch { .. });
        assert!(errors.iter().any(both), "{errors:?}");
    });
}
