//! Conformance suite of communicators: results, and errors when ranks disagree, leave, fail or do not come.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use orinoco_collective::{
    CollectiveError, Communicator, Element, FailureCause, JoinError, Queue, ReduceOp, SILENCE_MIN, reduce,
};

use crate::{Group, Kind, Times, name, run};

fn value(rank: usize, i: usize) -> f32 {
    // Sums of these depend on their order.
    ((rank * 31 + i * 7) % 1013) as f32 * 0.1 + 1e-4
}

fn vector(rank: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| value(rank, i)).collect()
}

/// Vectors of all ranks, one after another. That of rank `i` has `lens[i]` elements.
fn vectors(lens: &[usize]) -> Vec<f32> {
    lens.iter().enumerate().flat_map(|(rank, len)| vector(rank, *len)).collect()
}

/// Sum of vectors of all ranks, in the order of the reduction tree.
fn sum(ranks: usize, len: usize) -> Vec<f32> {
    let vectors: Vec<Vec<f32>> = (0..ranks).map(|rank| vector(rank, len)).collect();
    let operands: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).collect();
    let mut total = vec![0.0; len];
    reduce(ReduceOp::Sum, &mut total, &operands, 1);
    total
}

/// Elements that a rank receives in an all-to-all in which rank `from` sends `len(from, to)` elements to rank `to`.
fn exchanged(rank: usize, ranks: usize, len: &dyn Fn(usize, usize) -> usize) -> Vec<f32> {
    let block = |from: usize| {
        let end = |last: usize| (0..=last).map(|to| len(from, to)).sum::<usize>();
        vector(from, end(ranks - 1))[end(rank) - len(from, rank)..end(rank)].to_vec()
    };
    (0..ranks).flat_map(block).collect()
}

fn bits(vector: &[f32]) -> Vec<u32> {
    vector.iter().map(|value| value.to_bits()).collect()
}

/// Empty, one, within a cache line, within two, around the size of a piece, of several, odd, and so long that ranks read from one
/// another's memory.
const LENS: [usize; 13] = [0, 1, 2, 13, 28, 29, 1000, 4095, 4096, 4097, 30_001, 70_000, 150_001];

pub(crate) fn all_operations_are_exact_for_1_to_8_ranks<G: Group>(kind: &Kind<G>) {
    for ranks in [1, 2, 3, 4, 5, 8] {
        run(kind, ranks, Times::of_a_busy_machine(), |mut group| {
            let rank = group.rank();
            for len in LENS {
                let context = format!("{len} elements of {ranks} ranks");
                let mut reduced = vector(rank, len);
                group.all_reduce(ReduceOp::Sum, &mut reduced).unwrap();
                assert_eq!(bits(&reduced), bits(&sum(ranks, len)), "all-reduce, {context}");

                let mut output = vec![0.0; len];
                group.all_reduce_into(ReduceOp::Sum, &vector(rank, len), &mut output).unwrap();
                assert_eq!(bits(&output), bits(&reduced), "all-reduce into another vector, {context}");

                let root = len % ranks;
                let mut copied = vector(rank, len);
                group.broadcast(root, &mut copied).unwrap();
                assert_eq!(copied, vector(root, len), "broadcast, {context}");

                let is_root = rank == root;
                let mut reduced = vec![-1.0; if is_root { len } else { 3 }];
                group.reduce(ReduceOp::Sum, root, &vector(rank, len), &mut reduced).unwrap();
                let expected = if is_root { sum(ranks, len) } else { vec![-1.0; 3] };
                assert_eq!(bits(&reduced), bits(&expected), "reduce, {context}");

                let mut block = vec![0.0; len];
                let blocks = if is_root { vector(7, len * ranks) } else { Vec::new() };
                group.scatter(root, &blocks, &mut block).unwrap();
                assert_eq!(block, vector(7, len * ranks)[rank * len..(rank + 1) * len], "scatter, {context}");

                let mut blocks = vec![0.0; if is_root { len * ranks } else { 0 }];
                group.gather(root, &vector(rank, len), &mut blocks).unwrap();
                let all = vectors(&vec![len; ranks]);
                assert_eq!(blocks, if is_root { &all[..] } else { &[] }, "gather, {context}");

                let mut gathered = vec![0.0; len * ranks];
                group.all_gather(&vector(rank, len), &mut gathered).unwrap();
                assert_eq!(gathered, all, "all-gather, {context}");

                let mut scattered = vec![0.0; len];
                group.reduce_scatter(ReduceOp::Sum, &vector(rank, len * ranks), &mut scattered).unwrap();
                let whole = sum(ranks, len * ranks);
                assert_eq!(
                    bits(&scattered),
                    bits(&whole[rank * len..(rank + 1) * len]),
                    "reduce-scatter, {context}"
                );

                let mut received = vec![0.0; len * ranks];
                group.all_to_all(&vector(rank, len * ranks), &mut received).unwrap();
                assert_eq!(received, exchanged(rank, ranks, &|_, _| len), "all-to-all, {context}");
                group.barrier().unwrap();
            }
        });
    }
}

pub(crate) fn operations_with_uneven_counts_are_exact<G: Group>(kind: &Kind<G>) {
    for ranks in [1, 2, 3, 5] {
        run(kind, ranks, Times::of_a_busy_machine(), |mut group| {
            let rank = group.rank();
            for unit in [0, 1, 13, 4_000, 60_001] {
                let counts: Vec<usize> = (0..ranks).map(|rank| (rank + unit) % 3 * unit).collect();
                let total: usize = counts.iter().sum();
                let block = |of: usize| counts[..of].iter().sum::<usize>()..counts[..=of].iter().sum();
                let context = format!("counts {counts:?}");
                let root = unit % ranks;
                let is_root = rank == root;
                let all = vectors(&counts);

                let mut gathered = vec![0.0; total];
                group.all_gather_v(&vector(rank, counts[rank]), &counts, &mut gathered).unwrap();
                assert_eq!(gathered, all, "all-gather, {context}");

                let mut gathered = vec![0.0; if is_root { total } else { 0 }];
                group.gather_v(root, &vector(rank, counts[rank]), &counts, &mut gathered).unwrap();
                assert!(gathered == all || (!is_root && gathered.is_empty()), "gather, {context}");

                let blocks = if is_root { vector(7, total) } else { Vec::new() };
                let mut scattered = vec![0.0; counts[rank]];
                group.scatter_v(root, &blocks, &counts, &mut scattered).unwrap();
                assert_eq!(scattered, vector(7, total)[block(rank)], "scatter, {context}");

                let mut reduced = vec![0.0; counts[rank]];
                group.reduce_scatter_v(ReduceOp::Sum, &vector(rank, total), &counts, &mut reduced).unwrap();
                assert_eq!(
                    bits(&reduced),
                    bits(&sum(ranks, total)[block(rank)]),
                    "reduce-scatter, {context}"
                );

                let between = |from: usize, to: usize| (from + 2 * to) % 3 * unit;
                let send: Vec<usize> = (0..ranks).map(|to| between(rank, to)).collect();
                let receive: Vec<usize> = (0..ranks).map(|from| between(from, rank)).collect();
                let mut received = vec![0.0; receive.iter().sum()];
                let own = vector(rank, send.iter().sum());
                group.all_to_all_v(&own, &send, &mut received, &receive).unwrap();
                assert_eq!(received, exchanged(rank, ranks, &between), "all-to-all, {context}");
            }
        });
    }
}

pub(crate) fn several_vectors_at_once_are_reduced_as_one_by_one<G: Group>(kind: &Kind<G>) {
    run(kind, 3, Times::of_a_busy_machine(), |mut group| {
        let rank = group.rank();
        for lens in [&[][..], &[0], &[3], &[1, 0, 500, 30_000, 7, 9_000, 8_000, 2]] {
            let mut vectors: Vec<Vec<f32>> = lens.iter().map(|len| vector(rank, *len)).collect();
            let mut slices: Vec<&mut [f32]> = vectors.iter_mut().map(Vec::as_mut_slice).collect();
            group.all_reduce_many(ReduceOp::Sum, &mut slices).unwrap();
            for (vector, len) in vectors.iter().zip(lens) {
                assert_eq!(bits(vector), bits(&sum(3, *len)), "{len} of {lens:?}");
            }
        }
    });
}

pub(crate) fn queued_operations_run_in_order_and_return_their_vectors<G: Group>(kind: &Kind<G>) {
    run(kind, 2, Times::default(), |group| {
        let rank = group.rank();
        let queue = Queue::new(group).unwrap();
        let pending: Vec<_> = (1..50)
            .map(|number| {
                queue.start(move |group| {
                    let mut own = vec![number * (rank + 1) as u64; number as usize * 100];
                    group.all_reduce(ReduceOp::Sum, &mut own)?;
                    Ok(own)
                })
            })
            .collect();
        for (number, pending) in (1..).zip(pending) {
            assert_eq!(pending.wait().unwrap(), vec![number * 3; number as usize * 100]);
        }
        let failed = queue.start(move |group| group.all_reduce(ReduceOp::Sum, &mut vec![0u8; rank + 1]));
        let error = failed.wait().unwrap_err();
        assert!(matches!(
            error,
            CollectiveError::Mismatch { .. }
                | CollectiveError::EpochFailed { cause: FailureCause::Mismatch, .. }
        ));
    });
}

/// Ranks that messages do not concern make no calls for them, and all the same stay in step.
pub(crate) fn messages_come_whole_and_in_order<G: Group>(kind: &Kind<G>) {
    run(kind, 3, Times::of_a_busy_machine(), |mut group| {
        let rank = group.rank();
        for (round, len) in [0, 1, 13, 1_000, 9_000, 40_001, 700_000].into_iter().enumerate() {
            // Around the ring, twice.
            for of in [rank, rank + 10] {
                let previous = (rank + 2) % 3;
                let mut received = vec![0.0; len];
                if rank == 0 {
                    group.send(1, &vector(of, len)).unwrap();
                    group.recv(2, &mut received).unwrap();
                } else {
                    group.recv(previous, &mut received).unwrap();
                    group.send((rank + 1) % 3, &vector(of, len)).unwrap();
                }
                let expected = vector(of - rank + previous, len);
                assert_eq!(bits(&received), bits(&expected), "{len} elements, round {round}");
            }
            // Several short ones, before any is received.
            let short = |number: u64| [number * 7; 5];
            match rank {
                0 => (0..4).for_each(|number| group.send(2, &short(number)).unwrap()),
                2 => (0..4).for_each(|number| {
                    let mut received = [0; 5];
                    group.recv(0, &mut received).unwrap();
                    assert_eq!(received, short(number));
                }),
                _ => {}
            }
            let mut ranks = [1u32];
            group.all_reduce(ReduceOp::Sum, &mut ranks).unwrap();
            assert_eq!(ranks, [3], "after round {round}");
        }
    });
}

pub(crate) fn a_message_of_another_length_is_an_error_that_names_both<G: Group>(kind: &Kind<G>) {
    let errors = run(kind, 3, Times::default(), |mut group| match group.rank() {
        0 => group.send(1, &[1u8; 10]).map(|()| group.barrier()).err(),
        1 => group.recv(0, &mut [0u8; 11]).err(),
        // It must not leave earlier: its departure would end the group, too.
        _ => group.barrier().err(),
    });
    let error = errors[1].as_ref().expect("an error of the receiver").to_string();
    let expected = "rank 0 called send of 10 u8 from rank 0, this rank called send of 11 u8 from rank 0";
    assert!(error.starts_with(expected), "{error}");
}

pub(crate) fn a_sender_that_leaves_is_named_and_its_messages_are_not_lost<G: Group>(kind: &Kind<G>) {
    let (left, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let errors = run(kind, 2, Times::default(), |mut group| {
        if group.rank() == 1 {
            group.send(0, &[5u32; 20]).unwrap();
            drop(group);
            left.send(()).unwrap();
            return None;
        }
        wait.lock().unwrap().recv().unwrap();
        let mut received = [0u32; 20];
        group.recv(1, &mut received).unwrap();
        assert_eq!(received, [5; 20]);
        Some(group.recv(1, &mut received).unwrap_err().to_string())
    });
    let expected = "epoch 0 failed during send of 20 u32 from rank 1: rank 1 left; let all ranks make the same calls before one leaves";
    assert_eq!(errors[0].as_deref(), Some(expected));
}

pub(crate) fn every_type_and_reduction_works<G: Group>(kind: &Kind<G>) {
    fn check<T: Element + PartialEq + TryFrom<u8, Error: Debug>>(group: &mut impl Communicator) {
        let number = |number: u8| T::try_from(number).unwrap();
        let own = number(u8::try_from(group.rank()).unwrap() + 2);
        for len in [3, 50_000] {
            for (op, expected) in [
                (ReduceOp::Sum, 9),
                (ReduceOp::Product, 24),
                (ReduceOp::Min, 2),
                (ReduceOp::Max, 4),
                (ReduceOp::Average, 3),
            ] {
                let mut vector = vec![own; len];
                group.all_reduce(op, &mut vector).unwrap();
                assert!(vector.iter().all(|value| *value == number(expected)), "{op} of {}", T::DATA_TYPE);
            }
        }
    }
    run(kind, 3, Times::of_a_busy_machine(), |mut group| {
        check::<f32>(&mut group);
        check::<f64>(&mut group);
        check::<half::f16>(&mut group);
        check::<half::bf16>(&mut group);
        check::<i8>(&mut group);
        check::<u8>(&mut group);
        check::<i32>(&mut group);
        check::<u32>(&mut group);
        check::<i64>(&mut group);
        check::<u64>(&mut group);
    });
}

/// Ranks that run ahead must not overwrite what others still read.
pub(crate) fn many_operations_in_a_row_stay_exact<G: Group>(kind: &Kind<G>) {
    run(kind, 3, Times::of_a_busy_machine(), |mut group| {
        let rank = group.rank();
        for round in 0..3_000usize {
            // Now and then a rank is late.
            if round % 300 == rank * 100 {
                thread::yield_now();
            }
            let len = [1, 40, 5_000][round % 3];
            let mut vector = vec![(round * (rank + 1)) as i64; len];
            group.all_reduce(ReduceOp::Sum, &mut vector).unwrap();
            assert!(vector.iter().all(|value| *value == (round * 6) as i64), "round {round}");
            let mut copied = vec![(round + rank) as u32; len];
            group.broadcast(round % 3, &mut copied).unwrap();
            assert!(copied.iter().all(|value| *value == (round + round % 3) as u32), "round {round}");
        }
    });
}

pub(crate) fn different_calls_are_an_error_that_names_both<G: Group>(kind: &Kind<G>) {
    let errors = run(kind, 2, Times::default(), |mut group| {
        let mut vector = vec![1.0f32; 4 + group.rank()];
        let error = group.all_reduce(ReduceOp::Sum, &mut vector).unwrap_err();
        // Once failed, always failed.
        assert!(group.barrier().is_err());
        error
    });
    expect_both_calls(&errors, |rank| format!("all_reduce of {} f32, sum", 4 + rank));
}

/// No message shows that the calls differ, since both ranks wait for one.
pub(crate) fn ranks_that_wait_for_each_other_name_both_calls<G: Group>(kind: &Kind<G>) {
    let errors = run(kind, 2, Times::default(), |mut group| {
        group.barrier().unwrap();
        let root = 1 - group.rank();
        group.broadcast(root, &mut [1u8; 3]).unwrap_err()
    });
    expect_both_calls(&errors, |rank| format!("broadcast of 3 u8, root {}", 1 - rank));
}

/// Nothing is sent at all, since both ranks wait for a message. A third one waits for both.
pub(crate) fn ranks_that_wait_for_messages_of_each_other_name_both_calls<G: Group>(kind: &Kind<G>) {
    type CallOf<G> = fn(&mut G) -> Result<(), CollectiveError>;
    let receives: CallOf<G> = |group| match group.rank() {
        2 => group.barrier(),
        rank => group.recv(1 - rank, &mut [0u8; 3]),
    };
    let one_reduces: CallOf<G> = |group| match group.rank() {
        0 => group.recv(1, &mut [0u8; 3]),
        1 => group.reduce(ReduceOp::Sum, 1, &[1.0f32], &mut [0.0]),
        _ => group.recv(0, &mut [0u8; 3]),
    };
    let [of_0, of_1] = ["send of 3 u8 from rank 0", "send of 3 u8 from rank 1"];
    let reduce = "reduce of 1 f32, sum, root 1";
    // Pairs of calls that wait for each other, or follow one another in a circle: the rank that reduces waits for rank 2, too.
    let calls =
        [(receives, vec![[of_0, of_1]]), (one_reduces, vec![[of_1, reduce], [of_0, of_1], [reduce, of_0]])];
    for (call, shown) in calls {
        let errors = run(kind, 3, Times::of_a_busy_machine(), |mut group| {
            group.barrier().unwrap();
            call(&mut group).unwrap_err()
        });
        let names_both = |error: &CollectiveError| match error {
            CollectiveError::Mismatch { theirs, ours, .. } => {
                let calls = [theirs, ours].map(ToString::to_string);
                shown.iter().any(|both| both.iter().all(|shown| calls.iter().any(|call| call == shown)))
            }
            CollectiveError::EpochFailed { cause, .. } => {
                assert!(!matches!(cause, FailureCause::Late(_)), "{error}");
                false
            }
            other => panic!("{other}"),
        };
        assert_eq!(errors.len(), 3);
        let named = errors.iter().filter(|error| names_both(error)).count();
        assert!(named >= 1, "{errors:?}");
    }
}

/// Ranks 0 to 2 each receive from the next, and rank 3 from one of them.
pub(crate) fn ranks_that_wait_in_a_circle_name_two_calls<G: Group>(kind: &Kind<G>) {
    let next = |rank: usize| if rank == 3 { 0 } else { (rank + 1) % 3 };
    let named = mismatches(kind, |group| group.recv(next(group.rank()), &mut [0u8]));
    for (rank, other) in named {
        assert!(rank < 3 && other == next(rank), "rank {rank} names rank {other}");
    }
}

/// Rank 0 receives from rank 2, and the others call an operation of all, in which rank 2 waits for rank 0 or for ranks that do.
pub(crate) fn a_rank_that_waits_for_one_that_waits_for_all_is_told<G: Group>(kind: &Kind<G>) {
    mismatches(kind, |group| match group.rank() {
        0 => group.recv(2, &mut [0u8]),
        _ => group.all_reduce(ReduceOp::Sum, &mut [1.0f32; 5]),
    });
}

/// Calls made by four ranks, each of which reports a mismatch, and at least one with two calls. Returns those that do, with the ranks that they name.
fn mismatches<G: Group>(
    kind: &Kind<G>,
    call: impl Fn(&mut G) -> Result<(), CollectiveError> + Sync,
) -> Vec<(usize, usize)> {
    let errors = run(kind, 4, Times::of_a_busy_machine(), |mut group| {
        group.barrier().unwrap();
        (group.rank(), call(&mut group).unwrap_err())
    });
    let named = |(rank, error): &(usize, CollectiveError)| match error {
        CollectiveError::Mismatch { rank: other, .. } => Some((*rank, *other)),
        CollectiveError::EpochFailed { cause: FailureCause::Mismatch, .. } => None,
        other => panic!("rank {rank}: {other}"),
    };
    let named: Vec<_> = errors.iter().filter_map(named).collect();
    assert!(!named.is_empty(), "{errors:?}");
    named
}

/// Each of two ranks reports a mismatch, and at least one names both calls.
fn expect_both_calls(errors: &[CollectiveError], call: impl Fn(usize) -> String) {
    let mut mismatches = 0;
    for (rank, error) in errors.iter().enumerate() {
        match error {
            CollectiveError::Mismatch { rank: other, theirs, ours } => {
                assert_eq!(*other, 1 - rank);
                assert_eq!((theirs.to_string(), ours.to_string()), (call(1 - rank), call(rank)));
                mismatches += 1;
            }
            CollectiveError::EpochFailed { cause, .. } => assert_eq!(*cause, FailureCause::Mismatch),
            other => panic!("{other}"),
        }
    }
    assert!(mismatches >= 1, "one rank or both name the calls");
}

/// An operation on no elements needs no messages, so its rank goes on to its next call.
pub(crate) fn a_call_of_no_elements_is_compared_too<G: Group>(kind: &Kind<G>) {
    let errors = run(kind, 2, Times::default(), |mut group| {
        let mut vector = vec![1.0f32; group.rank()];
        group.all_reduce(ReduceOp::Sum, &mut vector).and_then(|()| group.barrier()).unwrap_err()
    });
    let names_both = |error: &CollectiveError| match error {
        CollectiveError::Mismatch { theirs, ours, .. } => {
            [theirs, ours].iter().any(|call| call.to_string() == "all_reduce of 1 f32, sum")
        }
        CollectiveError::EpochFailed { cause: FailureCause::Mismatch, .. } => false,
        other => panic!("{other}"),
    };
    assert!(errors.iter().any(names_both), "{errors:?}");
}

pub(crate) fn a_rank_that_leaves_is_named<G: Group>(kind: &Kind<G>) {
    let errors = run(kind, 3, Times::default(), |mut group| {
        group.barrier().unwrap();
        if group.rank() == 1 {
            return None;
        }
        Some(group.all_reduce(ReduceOp::Sum, &mut [1.0f32; 1000]).unwrap_err().to_string())
    });
    let expected = "epoch 0 failed during all_reduce of 1000 f32, sum: rank 1 left; let all ranks make the same calls before one leaves".to_owned();
    assert_eq!(errors, [Some(expected.clone()), None, Some(expected)]);
}

pub(crate) fn a_rank_that_is_alive_and_late_is_waited_for_until_the_deadline<G: Group>(kind: &Kind<G>) {
    let times = Times { deadline: Duration::from_millis(400), silence: Duration::from_millis(200) };
    let (done, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let errors = run(kind, 2, times, |mut group| {
        if group.rank() == 1 {
            // Computes until the other has given up.
            let _ = wait.lock().unwrap().recv();
            return None;
        }
        let error = group.barrier().unwrap_err().to_string();
        done.send(()).unwrap();
        Some(error)
    });
    let error = errors[0].as_deref().expect("the error of rank 0");
    let expected = "epoch 0 failed during barrier: rank 1 is alive, but did not make the call within 4";
    assert!(error.starts_with(expected), "{error}");
}

pub(crate) fn ranks_that_do_not_join_are_named<G: Group>(kind: &Kind<G>) {
    let path = name();
    let times = Times { deadline: Duration::from_millis(50), ..Times::default() };
    let join = |rank: usize| kind.join(&path, rank, 3, times).err().expect("nobody else joins");
    let error = join(0);
    assert!(matches!(&error, JoinError::Missing { missing, .. } if *missing == [1, 2]), "{error}");
    assert!(!path.exists(), "the file is removed");
    let error = join(2);
    assert!(matches!(&error, JoinError::Missing { missing, .. } if *missing == [0]), "{error}");
    // Two that wait for the third both name it. They need time to meet on a busy machine.
    let times = Times { deadline: Duration::from_secs(1), ..Times::default() };
    let join = |rank: usize| kind.join(&path, rank, 3, times).err().expect("rank 1 does not join");
    let errors = thread::scope(|scope| {
        [0, 2].map(|rank| scope.spawn(move || join(rank))).map(|joining| joining.join().expect("it returns"))
    });
    for error in errors {
        assert!(matches!(&error, JoinError::Missing { missing, .. } if *missing == [1]), "{error}");
    }
    let error = join(3);
    assert!(matches!(error, JoinError::Ranks { .. }), "{error}");
}

pub(crate) fn a_file_that_is_none_of_a_group_is_refused_and_kept<G: Group>(kind: &Kind<G>) {
    let path = name();
    std::fs::write(&path, b"somebody's notes").unwrap();
    let join = |rank: usize| kind.join(&path, rank, 2, Times::default()).err().expect("not a group's file");
    let error = join(0);
    assert!(
        matches!(error, JoinError::Foreign { .. } | JoinError::File { action: "creating", .. }),
        "{error}"
    );
    let error = join(1);
    assert!(matches!(error, JoinError::Foreign { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's notes");
    std::fs::remove_file(&path).unwrap();
}

pub(crate) fn the_longest_times_are_no_bound<G: Group>(kind: &Kind<G>) {
    let times = Times { deadline: Duration::MAX, silence: Duration::MAX };
    let errors = run(kind, 3, times, |mut group| {
        let mut sum = vec![1u32; 100_000];
        group.all_reduce(ReduceOp::Sum, &mut sum).expect("all call it");
        assert_eq!(sum, vec![3; 100_000]);
        // The last one leaves.
        (group.rank() < 2).then(|| group.barrier().expect_err("a rank has left").to_string())
    });
    assert!(errors.iter().flatten().count() == 2, "{errors:?}");
}

pub(crate) fn a_silence_that_blames_healthy_ranks_is_refused<G: Group>(kind: &Kind<G>) {
    let join = |silence: Duration| kind.join(&name(), 0, 1, Times { silence, ..Times::default() });
    for (silence, expected) in [
        (Duration::ZERO, "`silence` is 0 ms; it must be 10 ms or more"),
        (Duration::from_micros(9_500), "`silence` is 9.5 ms; it must be 10 ms or more"),
    ] {
        assert_eq!(join(silence).err().expect("a refusal").to_string(), expected);
    }
    let mut alone = join(SILENCE_MIN).expect("a group of one");
    alone.barrier().expect("it waits for nobody");
}

/// Variable of the environment for the first rank of the next function.
const FIRST_RANK: &str = "ORINOCO_TEST_FIRST_RANK";

/// Rank 0 of the next function, in a process of its own, if it is one: it waits for another that does not come.
pub(crate) fn first_rank<G: Group>(kind: &Kind<G>) {
    let Some(path) = std::env::var_os(FIRST_RANK) else { return };
    let joined = kind.join(Path::new(&path), 0, 2, Times::default());
    panic!("it is killed before {:?}", joined.err());
}

pub(crate) fn a_group_is_joined_after_a_rank_0_that_was_killed<G: Group>(kind: &Kind<G>) {
    let path = name();
    let mut first = std::process::Command::new(std::env::current_exe().unwrap());
    first.args(["--exact", &format!("{}::first_rank", kind.module)]).env(FIRST_RANK, &path);
    let mut first = first.stdout(std::process::Stdio::null()).spawn().unwrap();
    while !path.exists() {
        assert!(first.try_wait().unwrap().is_none(), "rank 0 waits for another");
        thread::yield_now();
    }
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(path.exists(), "it could not remove the file");
    let sums: Vec<u64> = thread::scope(|scope| {
        let join = |rank: usize| {
            let mut group = kind.join(&path, rank, 2, Times::default()).unwrap();
            let mut vector = [rank as u64 + 1];
            group.all_reduce(ReduceOp::Sum, &mut vector).unwrap();
            vector[0]
        };
        // Rank 1 may be there first, and find the file.
        let second = scope.spawn(move || join(1));
        vec![join(0), second.join().unwrap()]
    });
    assert_eq!(sums, [3, 3]);
    // A window that another process has made is kept.
    let _ = std::fs::remove_file(&path);
}

/// Variable of the environment for the second rank of the next function.
pub(crate) const SECOND_RANK: &str = "ORINOCO_TEST_SECOND_RANK";

/// Rank 1 of the next function, in a process of its own, if it is one: it takes part in one barrier, and then computes without end.
pub(crate) fn second_rank<G: Group>(kind: &Kind<G>) {
    let Some(path) = std::env::var_os(SECOND_RANK) else { return };
    let mut group = kind.join(Path::new(&path), 1, 2, Times::default()).unwrap();
    group.barrier().unwrap();
    loop {
        thread::park();
    }
}

pub(crate) fn a_rank_whose_process_is_killed_or_stopped_is_named<G: Group>(kind: &Kind<G>) {
    for signal in [rustix::process::Signal::KILL, rustix::process::Signal::STOP] {
        let path = name();
        let mut second = std::process::Command::new(std::env::current_exe().unwrap());
        second.args(["--exact", &format!("{}::second_rank", kind.module)]).env(SECOND_RANK, &path);
        let mut second = second.stdout(std::process::Stdio::null()).spawn().unwrap();
        let mut group = kind.join(&path, 0, 2, Times::default()).unwrap();
        group.barrier().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&second), signal).unwrap();
        let error = group.all_reduce(ReduceOp::Sum, &mut vec![1.0f32; 100_000]).unwrap_err();
        second.kill().unwrap();
        second.wait().unwrap();
        let CollectiveError::EpochFailed { epoch: 0, rank: 1, cause, .. } = error else { panic!("{error}") };
        match cause {
            FailureCause::Silent(time) => assert!(time <= Times::default().silence, "{error}"),
            FailureCause::Ended => assert!(signal == rustix::process::Signal::KILL, "{error}"),
            _ => panic!("{error}"),
        }
    }
}
