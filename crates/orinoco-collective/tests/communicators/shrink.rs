//! Groups of the ranks that are left after a failure. `message/simulated/shrink.rs` has ranks that fail at any time.

#![expect(clippy::disallowed_methods, reason = "ranks are killed at real times")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use orinoco_collective::{
    CollectiveError, Communicator, FailureCause, JoinError, MessageSettings, ReduceOp, Rendezvous,
    RetryError, Security, ShmGroup, TcpGroup, TcpSettings, Tune, Uniform,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::meeting::Meeting;
use crate::tcp::{addresses, group_key, key_pairs};
use crate::{Kind, Times, name, run};

/// Variables of the environment for the ranks that are processes of their own: the file of the group, and their number.
pub(crate) const FILE: &str = "ORINOCO_TEST_SHRINK_FILE";
const RANK: &str = "ORINOCO_TEST_SHRINK_RANK";
const RANKS: usize = 4;

fn times() -> Times {
    Times { deadline: Duration::from_secs(30), silence: Duration::from_secs(1) }
}

/// Groups that can be shrunk.
trait Shrinking: crate::Group {
    fn shrunk(&mut self) -> Result<Self, JoinError>;
}

impl Shrinking for TcpGroup {
    fn shrunk(&mut self) -> Result<Self, JoinError> {
        self.shrink()
    }
}

impl Shrinking for ShmGroup {
    fn shrunk(&mut self) -> Result<Self, JoinError> {
        self.shrink()
    }
}

/// The sum of the elements that a group's ranks had in the oldest group. Long enough for every way of carrying it.
fn sum(group: &mut impl Communicator, old: usize) -> Result<u64, CollectiveError> {
    let mut vector = vec![1u64 << (8 * old); 20_000];
    group.all_reduce(ReduceOp::Sum, &mut vector)?;
    assert!(vector.iter().all(|element| *element == vector[0]));
    Ok(vector[0])
}

fn sum_of(ranks: &[usize]) -> u64 {
    ranks.iter().map(|rank| 1u64 << (8 * rank)).sum()
}

/// Fails an operation, and shrinks.
fn fail_and_shrink<G: Shrinking>(group: &mut G, old: usize) -> G {
    sum(group, old).expect_err("a rank is gone");
    group.shrunk().expect("the others are left")
}

/// Joins as each rank on threads, and runs a function as each. Returns the results in rank order.
fn as_ranks<R: Send>(
    rendezvous: &Rendezvous,
    of_ranks: &[Security],
    messages: MessageSettings,
    body: impl Fn(TcpGroup, usize) -> R + Sync,
) -> Vec<R> {
    let ranks = of_ranks.len();
    thread::scope(|scope| {
        let body = &body;
        let join = |rank: usize| {
            let security = of_ranks[rank].clone();
            let settings = TcpSettings { security, messages };
            move || body(TcpGroup::join(rendezvous, rank, ranks, settings).expect("all join"), rank)
        };
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(join(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn messages(uniform: Option<Uniform>) -> MessageSettings {
    let Times { deadline, silence } = times();
    MessageSettings { deadline, silence, uniform, ..MessageSettings::default() }
}

/// Ranks leave, one or two at once, in groups of every protection. The others go on, twice in a row.
#[test]
fn the_ranks_that_are_left_go_on_with_the_protection_of_their_group() {
    let listed: Vec<SocketAddr> = addresses(5);
    for security in [vec![Security::Plaintext; 5], vec![group_key(); 5], key_pairs(5)] {
        for rendezvous in [Rendezvous::List(listed.clone()), Rendezvous::Address(addresses(1)[0])] {
            let messages = MessageSettings { tcp_connections: 2, ..messages(None) };
            // A rank that fails in its next operation also ends the one in which slower ranks still are.
            let (first_is_done, second_is_done) = (Meeting::new(5), Meeting::new(3));
            let found = as_ranks(&rendezvous, &security, messages, |mut group, rank| {
                assert_eq!(sum(&mut group, rank).unwrap(), sum_of(&[0, 1, 2, 3, 4]));
                first_is_done.wait();
                if [0, 3].contains(&rank) {
                    return None;
                }
                let mut smaller = fail_and_shrink(&mut group, rank);
                assert!(matches!(group.shrink().err(), Some(JoinError::AlreadyShrunk)));
                drop(group);
                assert_eq!(sum(&mut smaller, rank).unwrap(), sum_of(&[1, 2, 4]));
                assert_eq!((smaller.rank(), smaller.ranks()), ([9, 0, 1, 9, 2][rank], 3));
                second_is_done.wait();
                if rank == 2 {
                    return None;
                }
                let mut pair = fail_and_shrink(&mut smaller, rank);
                let mut part = pair.split(Some(0), -(rank as i32)).expect("a group can be split").unwrap();
                Some([sum(&mut pair, rank).unwrap(), sum(&mut part, rank).unwrap()])
            });
            let expected = Some([sum_of(&[1, 4]); 2]);
            assert_eq!(found, [None, expected, None, None, expected]);
        }
    }
}

#[test]
fn a_group_of_2_to_5_ranks_loses_one_or_none() {
    for ranks in 2..=5 {
        for gone in [Some(0), Some(ranks - 1), None] {
            let messages = MessageSettings { tune: Tune::AtJoin, ..messages(None) };
            let rendezvous = Rendezvous::Address(addresses(1)[0]);
            let found = as_ranks(&rendezvous, &vec![group_key(); ranks], messages, |mut group, rank| {
                if gone == Some(rank) {
                    return None;
                }
                // Also before a failure is noticed.
                let mut smaller = group.shrink().expect("the others are left");
                Some((smaller.ranks(), sum(&mut smaller, rank).unwrap()))
            });
            let left: Vec<usize> = (0..ranks).filter(|rank| gone != Some(*rank)).collect();
            for rank in &left {
                assert_eq!(found[*rank], Some((left.len(), sum_of(&left))));
            }
        }
    }
}

/// Ranks leave, one or two at once, or none. The others go on, twice in a row.
#[test]
fn ranks_of_shared_memory_go_on_without_those_that_left() {
    for ranks in 1..=6 {
        for gone in [vec![], vec![0], vec![ranks - 1], vec![1, 2]] {
            let left: Vec<usize> = (0..ranks).filter(|rank| !gone.contains(rank)).collect();
            run(&crate::on_shm::KIND, ranks, times(), |mut group| {
                let rank = group.rank();
                if gone.contains(&rank) {
                    return;
                }
                // Also before a failure is noticed.
                let mut smaller = group.shrink().expect("the others are left");
                assert!(matches!(group.shrink().err(), Some(JoinError::AlreadyShrunk)));
                drop(group);
                assert_eq!(sum(&mut smaller, rank).unwrap(), sum_of(&left));
                assert_eq!(left[smaller.rank()], rank);
                if rank == left[0] {
                    return;
                }
                let mut last = fail_and_shrink(&mut smaller, rank);
                let mut part = last.split(Some(0), -(rank as i32)).expect("a group can be split").unwrap();
                assert_eq!(sum(&mut last, rank).unwrap(), sum_of(&left[1..]));
                assert_eq!(sum(&mut part, rank).unwrap(), sum_of(&left[1..]));
            });
        }
    }
}

fn join<G>(kind: &Kind<G>, path: &Path, rank: usize) -> G {
    kind.join(path, rank, RANKS, times()).unwrap()
}

/// A rank of the tests below in a process of its own, if it is one: its group fails, it shrinks it, and waits.
fn rank_in_a_process<G: Shrinking>(kind: &Kind<G>) {
    let Some(path) = std::env::var_os(FILE) else { return };
    let rank: usize = std::env::var(RANK).unwrap().parse().unwrap();
    let mut group = join(kind, Path::new(&path), rank);
    loop {
        if sum(&mut group, rank).is_err() {
            match group.shrunk() {
                Ok(smaller) => group = smaller,
                Err(_) => thread::park(),
            }
        }
    }
}

#[test]
fn rank_in_a_process_on_tcp() {
    rank_in_a_process(&crate::on_tcp::KIND);
}

#[test]
fn rank_in_a_process_on_shm() {
    rank_in_a_process(&crate::on_shm::KIND);
}

#[test]
fn rank_in_a_process_on_shared_ports() {
    rank_in_a_process(&crate::on_shared_ports::KIND);
}

fn start<G>(kind: &Kind<G>, path: &Path, rank: usize) -> Child {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", &format!("shrink::rank_in_a_process_{}", kind.module)]);
    process.env(FILE, path).env(RANK, rank.to_string()).stdout(Stdio::null()).spawn().unwrap()
}

/// Ranks 2 and 3 are processes: 3 is killed or stopped, and 2 too, at any time while the others shrink.
fn processes_are_killed<G: Shrinking>(kind: &Kind<G>, signal: Signal, delay: Duration) {
    let path: PathBuf = name();
    let processes = Mutex::new([2, 3].map(|rank| start(kind, &path, rank)));
    let (has_begun, has_failed) = (Meeting::new(2), Meeting::new(2));
    let body = |rank: usize| {
        let mut group = join(kind, &path, rank);
        let result = sum(&mut group, rank);
        // A rank that is killed earlier may fail the first operation of the other one.
        has_begun.wait();
        assert_eq!(result.unwrap(), sum_of(&[0, 1, 2, 3]));
        if rank == 0 {
            kill_process(Pid::from_child(&processes.lock().unwrap()[1]), signal).unwrap();
        }
        // The other processes go on until they notice it.
        while sum(&mut group, rank).is_ok() {}
        has_failed.wait();
        thread::scope(|scope| {
            if rank == 0 {
                scope.spawn(|| {
                    thread::park_timeout(delay);
                    processes.lock().unwrap()[0].kill().unwrap();
                });
            }
            loop {
                let mut smaller = group.shrunk().expect("both ranks are left");
                if smaller.ranks() == 2 {
                    return sum(&mut smaller, rank).unwrap();
                }
                // It goes on until rank 2 is killed, too.
                assert_eq!(smaller.ranks(), 3);
                let result = loop {
                    match sum(&mut smaller, rank) {
                        Ok(result) => assert_eq!(result, sum_of(&[0, 1, 2])),
                        Err(error) => break error,
                    }
                };
                assert!(matches!(result, CollectiveError::EpochFailed { rank: 2, .. }), "{result}");
                group = smaller;
            }
        })
    };
    let sums = thread::scope(|scope| {
        let body = &body;
        [0, 1].map(|rank| scope.spawn(move || body(rank))).map(|rank| rank.join().unwrap())
    });
    for process in processes.lock().unwrap().iter_mut() {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert_eq!(sums, [sum_of(&[0, 1]); 2]);
}

#[test]
fn ranks_are_killed_before_and_while_the_others_shrink() {
    for micros in [0, 200, 1000, 3000, 10_000, 30_000] {
        processes_are_killed(&crate::on_tcp::KIND, Signal::KILL, Duration::from_micros(micros));
        processes_are_killed(&crate::on_shm::KIND, Signal::KILL, Duration::from_micros(micros));
    }
}

#[test]
fn a_rank_that_is_stopped_is_left_out() {
    processes_are_killed(&crate::on_tcp::KIND, Signal::STOP, Duration::from_millis(5));
    processes_are_killed(&crate::on_shm::KIND, Signal::STOP, Duration::from_millis(5));
}

#[test]
fn ranks_that_share_the_ports_of_daemons_shrink() {
    // The processes look for the daemon.
    crate::shared_ports::of_suite(&name(), RANKS);
    processes_are_killed(&crate::on_shared_ports::KIND, Signal::KILL, Duration::from_millis(2));
}

/// Calls an operation in which this rank waits for one that shrinks already, and learns of the failed rank from that one. Shrinks, too.
fn is_released_and_shrinks<G: Shrinking>(group: &mut G, rank: usize, failed: usize) -> G {
    let start = Instant::now();
    let error = sum(group, rank).expect_err("a rank is gone");
    let is_named = matches!(error, CollectiveError::EpochFailed { rank, .. } if rank == failed);
    assert!(is_named && start.elapsed() < times().deadline / 2, "{error}, after {:?}", start.elapsed());
    group.shrunk().expect("the others are left")
}

#[test]
fn a_rank_that_shrinks_at_once_releases_those_in_an_operation() {
    releases_if_one_leaves(&crate::on_tcp::KIND);
    releases_if_one_leaves(&crate::on_shm::KIND);
    releases_if_one_is_killed(&crate::on_tcp::KIND);
    releases_if_one_is_killed(&crate::on_shm::KIND);
}

/// The last rank leaves, and rank 1 shrinks at once. The others wait for rank 1.
fn releases_if_one_leaves<G: Shrinking>(kind: &Kind<G>) {
    for ranks in 3..=5 {
        run(kind, ranks, times(), |mut group| {
            let rank = group.rank();
            let mut smaller = match rank {
                1 => group.shrunk().expect("the others are left"),
                _ if rank == ranks - 1 => return,
                _ => is_released_and_shrinks(&mut group, rank, ranks - 1),
            };
            let left: Vec<usize> = (0..ranks - 1).collect();
            assert_eq!((smaller.ranks(), sum(&mut smaller, rank).unwrap()), (left.len(), sum_of(&left)));
        });
    }
}

/// Rank 3 is a process that is killed.
fn releases_if_one_is_killed<G: Shrinking>(kind: &Kind<G>) {
    let path = name();
    let process = Mutex::new(start(kind, &path, 3));
    let have_summed = Meeting::new(3);
    let body = |rank: usize| {
        let mut group = join(kind, &path, rank);
        let summed = sum(&mut group, rank);
        // The others may need more from rank 3 when rank 1 has its sum.
        have_summed.wait();
        assert_eq!(summed.unwrap(), sum_of(&[0, 1, 2, 3]));
        let mut smaller = match rank {
            1 => {
                process.lock().unwrap().kill().unwrap();
                group.shrunk().expect("the others are left")
            }
            _ => is_released_and_shrinks(&mut group, rank, 3),
        };
        assert_eq!((smaller.ranks(), sum(&mut smaller, rank).unwrap()), (3, sum_of(&[0, 1, 2])));
    };
    thread::scope(|scope| {
        let ranks = [0, 1, 2].map(|rank| {
            let body = &body;
            scope.spawn(move || body(rank))
        });
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
    });
    process.lock().unwrap().wait().unwrap();
}

/// Rank 2 is alive, but makes no call.
#[test]
fn a_rank_that_is_late_is_told_that_it_was_left_out() {
    is_left_out_if_late(&crate::on_tcp::KIND);
    is_left_out_if_late(&crate::on_shm::KIND);
}

fn is_left_out_if_late<G: Shrinking>(kind: &Kind<G>) {
    let times = Times { deadline: Duration::from_secs(2), ..times() };
    let has_shrunk = Meeting::new(3);
    run(kind, 3, times, |mut group| {
        let rank = group.rank();
        if rank == 2 {
            has_shrunk.wait();
            let error = group.barrier().expect_err("it is too late");
            assert!(matches!(error, CollectiveError::EpochFailed { rank: 2, .. }), "{error}");
            let error = group.shrunk().err().expect("the others go on");
            let is_named =
                matches!(error, JoinError::Excluded { by: 0 | 1, cause: Some(FailureCause::Late(_)) });
            assert!(is_named, "{error}");
            return;
        }
        let mut smaller = fail_and_shrink(&mut group, rank);
        drop(group);
        has_shrunk.wait();
        assert_eq!(sum(&mut smaller, rank).unwrap(), sum_of(&[0, 1]));
    });
}

#[test]
fn a_rank_that_does_not_shrink_is_named_and_may_do_so_later() {
    is_named_if_it_does_not_shrink(&crate::on_tcp::KIND);
    is_named_if_it_does_not_shrink(&crate::on_shm::KIND);
}

fn is_named_if_it_does_not_shrink<G: Shrinking>(kind: &Kind<G>) {
    let times = Times { deadline: Duration::from_secs(1), ..times() };
    let (left, has_failed) = (Meeting::new(4), Meeting::new(3));
    run(kind, 4, times, |mut group| {
        let rank = group.rank();
        if rank == 3 {
            drop(group);
            left.wait();
            return;
        }
        left.wait();
        group.barrier().expect_err("rank 3 has left");
        if rank != 1 {
            let error = group.shrunk().err().expect("rank 1 does not shrink");
            assert!(matches!(&error, JoinError::NotShrunk { missing, .. } if *missing == [1]), "{error}");
        }
        has_failed.wait();
        let mut smaller = group.shrunk().expect("now all do");
        assert_eq!(sum(&mut smaller, rank).unwrap(), sum_of(&[0, 1, 2]));
    });
}

/// Ranks leave one after the other, the highest first. Rank 0 goes on alone only if it is the witness.
#[test]
fn a_uniform_group_goes_on_with_a_majority_only() {
    for witness in [None, Some(0), Some(1), Some(2)] {
        let rendezvous = Rendezvous::Address(addresses(1)[0]);
        let messages = messages(Some(Uniform { witness }));
        as_ranks(&rendezvous, &vec![group_key(); 4], messages, |mut group, rank| {
            for left in (1..4).rev() {
                if rank == left {
                    return;
                }
                sum(&mut group, rank).expect_err("a rank has left");
                let smaller = group.shrink();
                if left == 1 && witness != Some(0) {
                    let error = smaller.err().expect("one of two is no majority");
                    let is_named =
                        matches!(&error, JoinError::Isolated { reachable, ranks: 2 } if *reachable == [0]);
                    assert!(is_named, "{error}");
                    return;
                }
                group = smaller.expect("a majority is left");
                assert_eq!(group.ranks(), left);
            }
            assert_eq!(sum(&mut group, 0).unwrap(), 1);
        });
    }
}

/// Ranks leave between operations. All others return the exact sum of those that are left, each time.
#[test]
fn operations_of_a_uniform_group_are_repeated_without_the_ranks_that_fail() {
    const LEAVES_AT: [usize; 5] = [30, 12, 30, 7, 30];
    let rendezvous = Rendezvous::Address(addresses(1)[0]);
    as_ranks(&rendezvous, &key_pairs(5), messages(Some(Uniform::default())), |mut group, rank| {
        for round in 0..LEAVES_AT[rank] {
            let returned = group.retry(3, |group| sum(group, rank)).expect("a majority is left");
            let left: Vec<usize> = (0..5).filter(|rank| round < LEAVES_AT[*rank]).collect();
            assert_eq!((returned, group.ranks()), (sum_of(&left), left.len()), "round {round}");
        }
        // All leave at the same time then.
    });
}

#[test]
fn operations_are_repeated_only_if_that_can_help() {
    let pair = |uniform, body: &(dyn Fn(TcpGroup, usize) + Sync)| {
        let rendezvous = Rendezvous::Address(addresses(1)[0]);
        as_ranks(&rendezvous, &vec![group_key(); 3], messages(uniform), body);
    };
    pair(None, &|mut group, rank| {
        let error = group.retry(3, |_| -> Result<(), _> { panic!("nothing runs") }).expect_err("not uniform");
        assert!(matches!(error, RetryError::NotUniform), "{error}");
        assert_eq!(sum(&mut group, rank).unwrap(), sum_of(&[0, 1, 2]), "the group can be used");
    });
    pair(Some(Uniform::default()), &|mut group, rank| {
        let error = group.retry(3, |group| match rank {
            0 => group.barrier(),
            _ => sum(group, rank).map(drop),
        });
        let error = error.expect_err("different calls");
        assert!(matches!(error, RetryError::Operation { attempt: 1, .. }), "{error}");
    });
    pair(Some(Uniform::default()), &|mut group, rank| {
        if rank == 2 {
            return;
        }
        let error = group.retry(1, |group| sum(group, rank)).expect_err("one attempt");
        assert!(matches!(error, RetryError::Operation { attempt: 1, .. }), "{error}");
    });
}
