//! Strangers at the ports of TCP, and peers that break the protocol: they cost neither time nor memory, and are named.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use orinoco_collective::{
    CollectiveError, Communicator, FailureCause, GroupKey, Notice, Rendezvous, TcpGroup,
};

use crate::faults::orders;
use crate::peer::{MESSAGES, Peer, connect, for_use, free_address, hello, plain, repeat};
use crate::process::{Process, Report, name, resources};
use crate::worker::Orders;
use crate::{ALLOWANCE, SILENCE, turn};

/// Connections of a port scan.
const CONNECTS: usize = 10_000;
/// Growth of memory that is none: what allocators keep, in KiB.
const FLAT_KIB: u64 = 8 << 10;

/// Scans, garbage, half a hello, and connections that say nothing or a right hello and nothing more: 10,000 of them, while ranks
/// join. Then all ports are closed, so nobody reaches a group that runs.
#[test]
fn ten_thousand_strangers_do_not_keep_ranks_from_joining_and_none_reaches_a_group_that_runs() {
    let _turn = turn();
    let key = name();
    GroupKey::generate().unwrap().write(&key).unwrap();
    for (transport, key_file) in [("tcp", Some(key.clone())), ("tcp-plaintext", None)] {
        let address = free_address();
        let time = Duration::from_millis(1500);
        let all = Orders { addresses: vec![address], key: key_file, time, ..orders(transport, 0, 3) };
        let first = Process::start(&all);
        drop(connect(address));
        let greeting = for_use(hello(), MESSAGES);
        let mut open = Vec::new();
        for number in 0..CONNECTS {
            let Ok(mut stream) = TcpStream::connect(address) else {
                panic!("rank 0 does not listen any more")
            };
            // Whether it is taken does not matter.
            let _ = match number % 5 {
                0 => Ok(()),
                1 => stream.write_all(&[0x4f; 300]),
                2 => stream.write_all(&greeting[..20]),
                3 => stream.write_all(&greeting),
                _ => stream.write_all(b"GET / HTTP/1.1\r\n\r\n"),
            };
            if number % 20 == 0 {
                open.push(stream);
            }
        }
        let others = [1, 2].map(|rank| Process::start(&Orders { rank, ..all.clone() }));
        let ranks = [&first, &others[0], &others[1]];
        ranks.iter().for_each(|rank| rank.joined(0));
        assert!(TcpStream::connect(address).is_err(), "{transport}: a group that runs still listens");
        for rank in ranks {
            let report = rank.report(0);
            assert!(matches!(report, Report::Done { rounds: 1.. }), "{transport}: {report:?}");
            let after = rank.left(0);
            // Staging buffers of a group and the tests' vectors are a few MiB.
            assert!(after.memory_kib < 64 << 10, "{transport}: rank {} holds {after:?}", rank.rank);
        }
    }
    std::fs::remove_file(&key).unwrap();
}

/// A rank that may not open another descriptor can accept nobody. It waits without using its core, and says why.
#[test]
fn a_rank_without_free_descriptors_waits_and_says_so() {
    let _turn = turn();
    let of_listener = {
        let address = free_address();
        let rank = Process::start(&Orders { addresses: vec![address], ..orders("tcp-plaintext", 0, 2) });
        drop(connect(address));
        rank.first_socket()
    };
    let address = free_address();
    let deadline = Duration::from_secs(3);
    let all = Orders { addresses: vec![address], deadline, ..orders("tcp-plaintext", 0, 2) };
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--nofile={}", of_listener + 1)).arg(std::env::current_exe().unwrap());
    let rank = Process::start_by(&all, limited);
    let stranger = connect(address);
    let report = rank.report(0);
    let cores = rank.core_time();
    drop(stranger);
    let Report::Refused { text } = &report else { panic!("{report:?}") };
    assert!(text.contains("listening at") && text.contains("Too many open files"), "{text}");
    assert!(cores < Duration::from_millis(300), "it had a core for {cores:?} of 3 s");
}

#[test]
fn a_rank_with_another_key_is_refused_and_named() {
    let _turn = turn();
    let keys = [name(), name()];
    keys.iter().for_each(|key| GroupKey::generate().unwrap().write(key).unwrap());
    let deadline = Duration::from_millis(1500);
    let all = Orders {
        addresses: vec![free_address()],
        key: Some(keys[0].clone()),
        deadline,
        ..orders("tcp", 0, 3)
    };
    let first = Process::start(&all);
    let second = Process::start(&Orders { rank: 1, ..all.clone() });
    let third = Process::start(&Orders { rank: 2, key: Some(keys[1].clone()), ..all.clone() });
    let missing = "rank 2 did not join";
    let expected = [missing, missing, "is not that of this rank"];
    for (rank, words) in [&first, &second, &third].into_iter().zip(expected) {
        let report = rank.report(0);
        let Report::Refused { text } = &report else { panic!("rank {}: {report:?}", rank.rank) };
        assert!(text.contains(words), "rank {}: {text}", rank.rank);
        rank.left(0);
    }
    keys.iter().for_each(|key| std::fs::remove_file(key).unwrap());
}

/// Rank 0 of a group whose rank 1 is made by hand calls an operation. Returns its error, which must come within `bound` of the call.
fn with_peer(
    deadline: Duration,
    bound: Duration,
    call: impl FnOnce(&mut TcpGroup) -> Result<(), CollectiveError> + Send,
    act: impl FnOnce(&mut Peer),
) -> CollectiveError {
    let address = free_address();
    let rendezvous = Rendezvous::List(vec![address, free_address()]);
    thread::scope(|scope| {
        let rank = scope.spawn(|| {
            let mut group = TcpGroup::join(&rendezvous, 0, 2, plain(deadline)).expect("both join");
            let start = Instant::now();
            let error = call(&mut group).expect_err("the other rank does not take part");
            assert!(start.elapsed() <= bound + ALLOWANCE, "{error}: after {:?}", start.elapsed());
            error
        });
        let mut peer = Peer::join(address);
        act(&mut peer);
        let error = rank.join().expect("no panic");
        assert_left();
        error
    })
}

/// Threads of groups.
fn pulses() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let name =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.map(name).filter(|name| name.trim() == "orinoco-pulse").count()
}

/// The thread of a group that was left ends, whatever its peers do.
fn assert_left() {
    let start = Instant::now();
    while pulses() > 0 {
        assert!(start.elapsed() < 6 * SILENCE, "a thread of the group is still there");
        thread::sleep(Duration::from_millis(5));
    }
}

fn assert_cause(error: &CollectiveError, is_it: impl FnOnce(FailureCause) -> bool) {
    let CollectiveError::EpochFailed { rank: 1, cause, .. } = error else { panic!("{error}") };
    assert!(is_it(*cause), "{error}");
}

fn barrier(group: &mut TcpGroup) -> Result<(), CollectiveError> {
    group.barrier()
}

#[test]
fn a_peer_that_takes_no_messages_is_named_at_the_deadline() {
    let _turn = turn();
    let deadline = Duration::from_millis(1200);
    let mut vector = vec![1u8; 64 << 20];
    let before = resources();
    let mut beat = None;
    let error = with_peer(
        deadline,
        deadline,
        |group| group.broadcast(0, &mut vector),
        |peer| beat = Some(peer.beat()),
    );
    assert_cause(&error, |cause| matches!(cause, FailureCause::Late(_)));
    let growth_kib = resources().memory_kib.saturating_sub(before.memory_kib);
    assert!(growth_kib < FLAT_KIB, "{growth_kib} KiB more while the peer takes nothing");
}

#[test]
fn garbage_from_a_peer_names_it() {
    let _turn = turn();
    let deadline = Duration::from_secs(20);
    let mut beat = None;
    let error = with_peer(deadline, SILENCE, barrier, |peer| {
        beat = Some(peer.beat());
        peer.messages.write_all(&[0x4f; 500]).unwrap();
    });
    assert_cause(&error, |cause| cause == FailureCause::Damaged);
    let error = with_peer(deadline, SILENCE, barrier, |peer| peer.notices.write_all(&[0x4f; 500]).unwrap());
    assert_cause(&error, |cause| cause == FailureCause::Damaged);
}

#[test]
fn half_a_header_is_waited_for_until_the_deadline() {
    let _turn = turn();
    let mut beat = None;
    let deadline = Duration::from_millis(700);
    let error = with_peer(deadline, deadline, barrier, |peer| {
        beat = Some(peer.beat());
        peer.messages.write_all(&[1; 20]).unwrap();
    });
    assert_cause(&error, |cause| matches!(cause, FailureCause::Late(_)));
}

#[test]
fn a_peer_that_says_nothing_is_named_after_the_silence() {
    let _turn = turn();
    // A rank that gets no core for a while counts the silence from then on: on a crowded machine it does so several times.
    let error = with_peer(Duration::from_secs(60), 20 * SILENCE, barrier, |_| {});
    assert_cause(&error, |cause| matches!(cause, FailureCause::Silent(_)));
}

/// Notices without end are read a bounded number at a time: they take no memory, and this rank's own signs of life go on. The thread
/// that reads them ends when the group is left.
#[test]
fn a_peer_that_floods_notices_takes_no_memory_and_holds_no_thread() {
    let _turn = turn();
    let before = resources();
    let (mut flood, mut most_kib) = (None, 0);
    let deadline = Duration::from_millis(2500);
    let error = with_peer(deadline, deadline, barrier, |peer| {
        let mut stream = peer.notices.try_clone().unwrap();
        let notices = Notice::Alive { awaited: None, call: None }.encode(0).repeat(8192);
        flood = Some(repeat(move || stream.write_all(&notices).is_ok()));
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(100));
            most_kib = most_kib.max(resources().memory_kib);
        }
    });
    assert_cause(&error, |cause| matches!(cause, FailureCause::Late(_)));
    let growth_kib = most_kib.saturating_sub(before.memory_kib);
    assert!(growth_kib < FLAT_KIB, "{growth_kib} KiB more during the flood");
}
