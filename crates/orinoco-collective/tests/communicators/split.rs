//! Groups that are split off another: who belongs to them, and that neither depends on the other.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use orinoco_collective::{
    CollectiveError, Communicator, FailureCause, JoinError, ReduceOp, Rendezvous, Security, ShmGroup,
    TcpGroup,
};

use crate::meeting::Meeting;
use crate::tcp::{addresses, group_key, key_pairs, settings};
use crate::{Group, Kind, Times, name, run};

/// A communicator that can be split.
trait Divisible: Group {
    fn split(&mut self, color: Option<u32>, key: i32) -> Result<Option<Self>, JoinError>;
}

macro_rules! divisible {
    ($($group:ident)*; $($module:ident)*) => {
        $(impl Divisible for $group {
            fn split(&mut self, color: Option<u32>, key: i32) -> Result<Option<Self>, JoinError> {
                $group::split(self, color, key)
            }
        })*

        $(mod $module {
            use crate::$module::KIND;

            divisible!(tests KIND [
                ranks_of_a_colour_form_a_group_in_the_order_of_their_keys
                groups_of_one_rank_and_of_all
                groups_of_groups_are_used_in_turn
                a_failed_group_does_not_end_the_other
                a_rank_that_leaves_is_named_by_its_number_in_each_group
                a_failed_group_is_not_split
                last_rank
                a_rank_that_is_killed_is_named_by_its_number_in_each_group
            ]);
        })*
    };
    (tests $kind:ident [$($test:ident)*]) => {$(
        #[test]
        fn $test() {
            super::$test(&$kind);
        }
    )*};
}

divisible! {
    ShmGroup TcpGroup;
    on_shm
    on_shm_without_single_copy
    on_tcp
    on_tcp_without_encryption
    on_tcp_with_authentication_only
    on_three_tcp_connections_without_busy_poll
    on_shared_ports
}

/// Numbers that the ranks of a group had in its parent, in order.
fn members(group: &mut impl Communicator, rank_of_parent: usize) -> Vec<u32> {
    let mut all = vec![0; group.ranks()];
    group.all_gather(&[u32::try_from(rank_of_parent).unwrap()], &mut all).unwrap();
    all
}

fn ranks_of_a_colour_form_a_group_in_the_order_of_their_keys<G: Divisible>(kind: &Kind<G>) {
    run(kind, 5, Times::of_a_busy_machine(), |mut group| {
        let rank = group.rank();
        // Rank 2 takes no part, the others are divided in two: the later ranks come first among the even ones.
        let (color, key) = match rank {
            2 => (None, 0),
            _ if rank.is_multiple_of(2) => (Some(u32::MAX), -i32::try_from(rank).unwrap()),
            _ => (Some(0), i32::MIN),
        };
        let part = group.split(color, key).unwrap();
        assert_eq!(part.is_some(), rank != 2);
        if let Some(mut part) = part {
            let expected = if rank.is_multiple_of(2) { [4, 0] } else { [1, 3] };
            assert_eq!(members(&mut part, rank), expected);
            assert_eq!(expected[part.rank()] as usize, rank);
            // Long enough for every way of carrying it.
            let mut vector = vec![rank as u64; 100_000];
            part.all_reduce(ReduceOp::Sum, &mut vector).unwrap();
            assert_eq!(vector, vec![4; 100_000]);
        }
        assert_eq!(members(&mut group, rank), [0, 1, 2, 3, 4]);
    });
}

fn groups_of_one_rank_and_of_all<G: Divisible>(kind: &Kind<G>) {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("group");
    let body = |rank: usize| {
        let mut group = kind.join(&path, rank, 3, Times::of_a_busy_machine()).unwrap();
        let color = u32::try_from(rank).unwrap();
        let mut alone = group.split(Some(color), 7).unwrap().expect("a group of this rank alone");
        assert_eq!((alone.rank(), alone.ranks()), (0, 1));
        assert_eq!(members(&mut alone, rank), [color]);
        let mut again = alone.split(Some(1), 0).unwrap().expect("a group of one can be split, too");
        again.barrier().unwrap();
        assert!(alone.split(None, 0).unwrap().is_none());
        let mut all = group.split(Some(5), 0).unwrap().expect("all have this colour");
        assert_eq!(members(&mut all, rank), [0, 1, 2]);
        assert!(group.split(None, 0).unwrap().is_none(), "nobody takes part");
        group.barrier().unwrap();
    };
    thread::scope(|scope| {
        let body = &body;
        (0..3).for_each(|rank| drop(scope.spawn(move || body(rank))));
    });
    let left: Vec<PathBuf> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "no file remains: {left:?}");
}

fn groups_of_groups_are_used_in_turn<G: Divisible>(kind: &Kind<G>) {
    run(kind, 4, Times::of_a_busy_machine(), |mut group| {
        let rank = group.rank();
        // Ranks 3 and 2, and 1 and 0; then ranks 3 and 1, and 2 and 0, by way of a group of all in the opposite order.
        let mut halves = group.split(Some((rank / 2) as u32), -(rank as i32)).unwrap().unwrap();
        let mut backwards = group.split(Some(0), -(rank as i32)).unwrap().unwrap();
        let number = backwards.rank();
        assert_eq!(number, 3 - rank);
        let mut pairs = backwards.split(Some((number % 2) as u32), 0).unwrap().unwrap();
        for round in 0..50u64 {
            let mut sums = [[rank as u64 + round], [rank as u64 + round], [rank as u64], [round]];
            group.all_reduce(ReduceOp::Sum, &mut sums[0]).unwrap();
            halves.all_reduce(ReduceOp::Sum, &mut sums[1]).unwrap();
            pairs.all_reduce(ReduceOp::Sum, &mut sums[2]).unwrap();
            backwards.broadcast(0, &mut sums[3]).unwrap();
            let (of_half, of_pair) =
                (if rank < 2 { 1 } else { 5 }, if rank.is_multiple_of(2) { 2 } else { 4 });
            assert_eq!(sums, [[6 + 4 * round], [of_half + 2 * round], [of_pair], [round]]);
        }
        let expected = if rank < 2 { [1, 0] } else { [3, 2] };
        assert_eq!(members(&mut halves, rank), expected);
    });
}

fn a_failed_group_does_not_end_the_other<G: Divisible>(kind: &Kind<G>) {
    run(kind, 2, Times::of_a_busy_machine(), |mut group| {
        let rank = group.rank();
        let split = |group: &mut G| group.split(Some(0), 0).unwrap().unwrap();
        let (mut first, mut second) = (split(&mut group), split(&mut group));
        first.all_reduce(ReduceOp::Sum, &mut vec![0u8; 1 + rank]).unwrap_err();
        assert!(first.barrier().is_err());
        assert_eq!(members(&mut group, rank), [0, 1], "the parent goes on");
        assert_eq!(members(&mut second, rank), [0, 1], "so do others");
        group.all_reduce(ReduceOp::Sum, &mut vec![0u8; 1 + rank]).unwrap_err();
        assert_eq!(members(&mut second, rank), [0, 1], "a group outlives its parent");
        drop(group);
        assert_eq!(members(&mut second, rank), [0, 1]);
    });
}

fn a_rank_that_leaves_is_named_by_its_number_in_each_group<G: Divisible>(kind: &Kind<G>) {
    let done = Meeting::new(3);
    let failures = run(kind, 3, Times::of_a_busy_machine(), |mut group| {
        let rank = group.rank();
        let mut part = group.split(Some(0), -(rank as i32)).unwrap().unwrap();
        if rank == 2 {
            drop((group, part));
            done.wait();
            return None;
        }
        let failures = [failure(group.barrier()), failure(part.barrier())];
        done.wait();
        Some(failures)
    });
    let expected = Some([(2, FailureCause::Left), (0, FailureCause::Left)]);
    assert_eq!(failures, [expected, expected, None]);
}

/// The rank that a failed operation names, and the cause.
fn failure(result: Result<(), CollectiveError>) -> (usize, FailureCause) {
    match result.expect_err("a rank is gone") {
        CollectiveError::EpochFailed { rank, cause, .. } => (rank, cause),
        other => panic!("{other}"),
    }
}

fn a_failed_group_is_not_split<G: Divisible>(kind: &Kind<G>) {
    run(kind, 2, Times::of_a_busy_machine(), |mut group| {
        let rank = group.rank();
        group.all_reduce(ReduceOp::Sum, &mut vec![0u8; 1 + rank]).unwrap_err();
        let error = group.split(Some(0), 0).err().expect("the group has failed");
        assert!(matches!(error, JoinError::Split(CollectiveError::EpochFailed { .. })), "{error}");
    });
}

/// Variable of the environment for the last rank of the next function.
pub(crate) const LAST_RANK: &str = "ORINOCO_TEST_LAST_RANK_OF_SPLIT";

/// Rank 2 of the next function, in a process of its own, if it is one.
fn last_rank<G: Divisible>(kind: &Kind<G>) {
    let Some(path) = std::env::var_os(LAST_RANK) else { return };
    let (mut group, mut part) = join_and_split(kind, Path::new(&path), 2);
    part.barrier().unwrap();
    group.barrier().unwrap();
    loop {
        thread::park();
    }
}

fn join_and_split<G: Divisible>(kind: &Kind<G>, path: &Path, rank: usize) -> (G, G) {
    let mut group = kind.join(path, rank, 3, Times::default()).unwrap();
    let part = group.split(Some(0), -i32::try_from(rank).unwrap()).unwrap().unwrap();
    (group, part)
}

fn a_rank_that_is_killed_is_named_by_its_number_in_each_group<G: Divisible>(kind: &Kind<G>) {
    let path = name();
    let mut last = Command::new(std::env::current_exe().unwrap());
    last.args(["--exact", &format!("split::{}::last_rank", kind.module)]).env(LAST_RANK, &path);
    let last = Mutex::new(last.stdout(Stdio::null()).spawn().unwrap());
    let (have_met, is_killed) = (Meeting::new(2), Meeting::new(2));
    let body = |rank: usize| {
        let (mut group, mut part) = join_and_split(kind, &path, rank);
        part.barrier().unwrap();
        group.barrier().unwrap();
        // Either rank may need something from rank 2 when the other one's barrier has ended.
        have_met.wait();
        if rank == 0 {
            last.lock().unwrap().kill().unwrap();
        }
        is_killed.wait();
        [failure(part.barrier()), failure(group.barrier())]
    };
    let failures = thread::scope(|scope| {
        let body = &body;
        let ranks = [0, 1].map(|rank| scope.spawn(move || body(rank)));
        ranks.map(|rank| rank.join().unwrap())
    });
    last.lock().unwrap().wait().unwrap();
    for of_rank in failures {
        assert_eq!(of_rank.map(|(rank, _)| rank), [0, 2]);
        for (_, cause) in of_rank {
            assert!(matches!(cause, FailureCause::Silent(_) | FailureCause::Ended), "{cause}");
        }
    }
}

/// Joins as each rank over TCP, splits, and returns the members of each rank's new group.
fn split_over_tcp(rendezvous: &Rendezvous, of_ranks: &[Security]) -> Vec<Vec<u32>> {
    thread::scope(|scope| {
        let body = |rank: usize| {
            let security = settings(of_ranks[rank].clone());
            let mut group = TcpGroup::join(rendezvous, rank, of_ranks.len(), security).unwrap();
            let mut part = group.split(Some((rank % 2) as u32), -(rank as i32)).unwrap().unwrap();
            // Once more, so that subsets of keys are divided, too.
            let mut smaller = part.split(Some(0), -(rank as i32)).unwrap().unwrap();
            assert_eq!(members(&mut part, rank), members(&mut smaller, rank));
            members(&mut group, rank);
            members(&mut part, rank)
        };
        let ranks: Vec<_> = (0..of_ranks.len()).map(|rank| scope.spawn(move || body(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn groups_over_tcp_keep_the_protection_of_their_parent() {
    let all: Vec<SocketAddr> = addresses(5);
    for security in [vec![group_key(); 5], key_pairs(5), vec![Security::Plaintext; 5]] {
        for rendezvous in [Rendezvous::List(all.clone()), Rendezvous::Address(addresses(1)[0])] {
            let found = split_over_tcp(&rendezvous, &security);
            assert_eq!(found, [vec![4, 2, 0], vec![3, 1], vec![4, 2, 0], vec![3, 1], vec![4, 2, 0]]);
        }
    }
}

/// A rank that splits while the others make another call.
#[test]
fn a_split_that_not_all_call_is_an_error_that_names_both() {
    run(
        &crate::on_tcp::KIND,
        2,
        Times { deadline: Duration::from_secs(5), ..Times::of_a_busy_machine() },
        |mut group| {
            if group.rank() == 0 {
                let error = group.split(Some(0), 0).err().expect("rank 1 calls something else");
                assert!(matches!(error, JoinError::Split(_)), "{error}");
            } else {
                group.barrier().unwrap_err();
            }
        },
    );
}
