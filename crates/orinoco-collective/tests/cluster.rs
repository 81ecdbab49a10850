//! Clusters of real seats on this machine: epochs, failures, returns, and who is refused.

#![expect(clippy::disallowed_methods, reason = "the tests wait for real threads")]

mod addresses;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use addresses::free_address;
use orinoco_collective::{
    Cluster, ClusterError, ClusterRdma, ClusterSettings, CollectiveError, Communicator, Epoch, JoinError,
    KeyPair, MemberList, MessageSettings, RdmaPolicy, ReduceOp, Seat, SigningKey,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A cluster's list and the key pair of each seat.
struct Boards {
    list: MemberList,
    keys: Vec<KeyPair>,
}

impl Boards {
    fn new(seats: usize) -> Self {
        let keys: Vec<KeyPair> = (0..seats).map(|_| KeyPair::generate().unwrap()).collect();
        let seat = |(number, key): (usize, &KeyPair)| Seat {
            name: char::from(b'a' + number as u8).to_string(),
            addresses: vec![free_address(Ipv4Addr::LOCALHOST)],
            key: key.public(),
        };
        let seats = keys.iter().enumerate().map(seat).collect();
        Self { list: MemberList { name: "test".to_owned(), serial: 1, witness: None, seats }, keys }
    }

    fn open(&self, seat: usize) -> Cluster {
        Cluster::open(self.list.clone(), self.keys[seat].clone(), settings()).expect("a free address")
    }

    fn open_all(&self) -> Vec<Cluster> {
        (0..self.keys.len()).map(|seat| self.open(seat)).collect()
    }
}

fn settings() -> ClusterSettings {
    let messages = MessageSettings {
        deadline: Duration::from_secs(20),
        silence: Duration::from_secs(2),
        ..MessageSettings::default()
    };
    ClusterSettings {
        join_time: Duration::from_secs(20),
        // On a busy machine a seat may be this late.
        settle: Duration::from_secs(3),
        silence: Duration::from_secs(4),
        messages,
        ..ClusterSettings::default()
    }
}

/// Lets these seats join an epoch, each on a thread, and sums 1 over it.
fn join_all(clusters: &mut [&mut Cluster]) -> Vec<(Epoch, u64)> {
    thread::scope(|scope| {
        // On a busy machine a member may be late, and the epoch ends before its first operation. Then all join again.
        let join = |cluster: &mut Cluster| loop {
            let mut epoch = cluster.join().expect("an epoch");
            let mut sum = [1u64];
            match epoch.group.all_reduce(ReduceOp::Sum, &mut sum) {
                Ok(()) => return (epoch, sum[0]),
                Err(CollectiveError::EpochFailed { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        };
        let threads: Vec<_> = clusters.iter_mut().map(|cluster| scope.spawn(move || join(cluster))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn members(epochs: &[(Epoch, u64)]) -> Vec<Vec<usize>> {
    epochs.iter().map(|(epoch, _)| epoch.members.iter().collect()).collect()
}

#[test]
fn seats_join_one_epoch_and_go_on_without_one_that_fails() {
    let boards = Boards::new(3);
    let mut clusters = boards.open_all();
    let mut first = join_all(&mut clusters.iter_mut().collect::<Vec<_>>());
    assert_eq!(members(&first), [[0, 1, 2]; 3]);
    assert!(first.iter().all(|(_, sum)| *sum == 3));
    let number = first[0].0.number;
    assert!(first.iter().all(|(epoch, _)| epoch.number == number));

    // Seat 1 ends, with all that it holds.
    drop(clusters.remove(1));
    drop(first.remove(1));
    for (epoch, _) in &mut first {
        let error = epoch.group.all_reduce(ReduceOp::Sum, &mut [1u64]).expect_err("a member is gone");
        let CollectiveError::EpochFailed { epoch: failed, rank, .. } = error else { panic!("{error}") };
        assert_eq!((failed, epoch.seat(rank)), (number, 1));
    }
    drop(first);
    let second = join_all(&mut clusters.iter_mut().collect::<Vec<_>>());
    assert_eq!(members(&second), [[0, 2]; 2]);
    assert!(second.iter().all(|(epoch, sum)| *sum == 2 && epoch.number > number));

    // It comes back, waits, and is in the next epoch.
    let mut back = boards.open(1);
    let third = thread::scope(|scope| {
        let back = scope.spawn(|| join_all(&mut [&mut back]));
        let start = Instant::now();
        while !clusters[0].monitor().waiting().contains(1) {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "seat 1 does not ask: {:?}",
                clusters[0].monitor().seats()
            );
            thread::yield_now();
        }
        drop(second);
        let mut third = join_all(&mut clusters.iter_mut().collect::<Vec<_>>());
        third.extend(back.join().unwrap());
        third
    });
    assert_eq!(members(&third), [[0, 1, 2]; 3]);
    assert!(third.iter().all(|(_, sum)| *sum == 3));
}

#[test]
fn a_split_ends_when_a_member_leaves_the_epoch() {
    let boards = Boards::new(3);
    let mut clusters = boards.open_all();
    let mut epochs = join_all(&mut clusters.iter_mut().collect::<Vec<_>>());
    let [(first, _), (second, _), (third, _)] = &mut epochs[..] else { panic!("three members") };
    let split = |epoch: &mut Epoch| {
        let start = Instant::now();
        let error = epoch.group.split(Some(0), 0).err().expect("a member is missing");
        (error, start.elapsed())
    };
    let failed = thread::scope(|scope| {
        let others = [scope.spawn(|| split(first)), scope.spawn(|| split(second))];
        // Seat 2 says that it is ready for colour 0, with key 0 and an offer of 4 bytes, and does not connect with the others.
        let choice = [1u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
        third.group.all_gather(&choice, &mut [0; 48]).expect("the others split");
        clusters[2].leave();
        others.map(|other| other.join().unwrap())
    });
    for (error, waited) in failed {
        assert!(matches!(&error, JoinError::Missing { missing, .. } if missing[..] == [2]), "{error}");
        assert!(waited < settings().messages.deadline / 2, "the others waited {waited:?}");
    }
}

/// Opens a seat that uses RDMA as a policy says, by a device that does not exist.
fn open_without_device(boards: &Boards, seat: usize, policy: RdmaPolicy, tcp_encryption: bool) -> Cluster {
    let rdma = ClusterRdma { policy, device: Some("none".to_owned()) };
    let messages = MessageSettings { tcp_encryption, ..settings().messages };
    let settings = ClusterSettings { rdma, messages, ..settings() };
    Cluster::open(boards.list.clone(), boards.keys[seat].clone(), settings).expect("a free address")
}

#[test]
fn seats_without_rdma_use_tcp_and_say_why() {
    for (tcp_encryption, name) in [(true, "tcp"), (false, "tcp-plaintext")] {
        let boards = Boards::new(2);
        let policies = [(0, RdmaPolicy::Off), (1, RdmaPolicy::Preferred)];
        let mut clusters =
            policies.map(|(seat, policy)| open_without_device(&boards, seat, policy, tcp_encryption));
        let epochs = join_all(&mut clusters.each_mut());
        assert!(epochs.iter().all(|(epoch, sum)| *sum == 2 && epoch.group.transport().name() == name));
        assert_eq!(epochs[0].0.fallback, None, "seat a did not ask for RDMA");
        let why = epochs[1].0.fallback.as_ref().expect("seat b did");
        let is_named = ["RDMA device", "libibverbs", "RDMA port"].iter().any(|part| why.contains(part));
        assert!(is_named, "{why}");
    }
}

#[test]
fn a_seat_that_requires_rdma_joins_no_epoch_without_it() {
    let boards = Boards::new(2);
    let mut clusters = [boards.open(0), open_without_device(&boards, 1, RdmaPolicy::Required, true)];
    let errors = thread::scope(|scope| {
        let threads = clusters.each_mut().map(|cluster| scope.spawn(|| cluster.join().err()));
        threads.map(|thread| thread.join().unwrap().expect("no epoch"))
    });
    let seat_b = "seat b requires RDMA, but not all boards of the group can use it: ";
    assert!(errors.iter().all(|error| error.to_string().starts_with(seat_b)), "{errors:?}");
    assert!(errors[0].to_string().ends_with("this board's settings do not include RDMA"), "{}", errors[0]);
    assert!(clusters.iter().all(|cluster| cluster.monitor().waiting().is_empty()), "nobody waits any more");
}

#[test]
fn a_seat_without_enough_others_is_isolated() {
    let boards = Boards::new(3);
    let short = ClusterSettings { join_time: Duration::from_millis(700), ..settings() };
    let mut cluster = Cluster::open(boards.list.clone(), boards.keys[2].clone(), short).unwrap();
    let error = cluster.join().err().expect("nobody else is there");
    assert!(
        matches!(&error, ClusterError::Isolated { reachable, seats: 3, needed: 2 } if reachable == &["c"]),
        "{error}"
    );
    let seats = cluster.monitor().seats();
    let fault = seats[0].fault.as_deref().expect("a reason");
    let address = boards.list.seats[0].addresses[0];
    assert_eq!(
        fault,
        format!(
            "cannot connect to {address}; check that orinocod is running there and that the firewall allows TCP"
        )
    );
    assert!(!seats[0].is_reachable && seats[2].is_reachable);

    cluster.monitor().interrupt();
    let error = cluster.join().err().expect("it was interrupted");
    assert!(matches!(error, ClusterError::Interrupted), "{error}");

    // One that can be reached but does not join is named.
    let _idle = boards.open(0);
    let error = cluster.join().err().expect("seat a does not join");
    match error {
        ClusterError::Incomplete { missing, .. } => assert_eq!(missing, ["a", "b"]),
        // The connection came too late.
        ClusterError::Isolated { .. } => {}
        other => panic!("{other}"),
    }
}

/// Variable that is set in the process whose files are limited.
const LIMITED: &str = "ORINOCO_TEST_LIMITED";

#[test]
fn seats_that_can_never_be_connected_say_why() {
    let Some(_) = std::env::var_os(LIMITED) else {
        // The limit holds for the whole process.
        let mut limited = Command::new(std::env::current_exe().unwrap());
        limited.args(["--exact", "seats_that_can_never_be_connected_say_why", "--nocapture"]);
        let output = limited.env(LIMITED, "1").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    };
    let boards = Boards::new(2);
    let join_time = Duration::from_secs(3);
    let open = |seat: usize| {
        let settings = ClusterSettings { join_time, ..settings() };
        Cluster::open(boards.list.clone(), boards.keys[seat].clone(), settings).expect("a free address")
    };
    let mut clusters = [open(0), open(1)];
    let start = Instant::now();
    while !clusters.iter().all(|cluster| cluster.monitor().seats().iter().all(|seat| seat.is_reachable)) {
        assert!(start.elapsed() < Duration::from_secs(20), "they do not reach each other");
        thread::sleep(Duration::from_millis(10));
    }
    // From now on an epoch begins, and its members get no connection.
    let open_files = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let limit = Rlimit { current: Some(open_files - 1), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    thread::scope(|scope| {
        for cluster in &mut clusters {
            scope.spawn(|| {
                let start = Instant::now();
                let error = cluster.join().err().expect("no connection");
                assert!(matches!(error, ClusterError::Unconnected { .. }), "{error}");
                assert!(start.elapsed() < 4 * join_time, "{:?}", start.elapsed());
                assert!(cluster.monitor().waiting().is_empty());
            });
        }
    });
}

#[test]
fn half_of_the_seats_go_on_with_the_witness() {
    let mut boards = Boards::new(2);
    boards.list.witness = Some(1);
    let mut cluster = boards.open(1);
    let epoch = join_all(&mut [&mut cluster]);
    assert_eq!(members(&epoch), [[1]]);
    assert_eq!(epoch[0].1, 1);
}

#[test]
fn seats_with_another_list_or_key_are_refused_by_name() {
    let boards = Boards::new(2);
    let _a = boards.open(0);
    let newer = MemberList { serial: 2, ..boards.list.clone() };
    let fault_of = |cluster: &Cluster| {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < Duration::from_secs(20), "no fault: {:?}", cluster.monitor().seats());
            match cluster.monitor().seats().swap_remove(0).fault {
                Some(fault) => return fault,
                None => thread::yield_now(),
            }
        }
    };
    let b = Cluster::open(newer, boards.keys[1].clone(), settings()).unwrap();
    assert_eq!(
        fault_of(&b),
        "the seat refused the connection: its member list has the serial number 1, this one has 2; copy the newer list to all seats"
    );
    drop(b);

    // A board that was removed from the list, whose place another has taken.
    let (mut stolen, stranger) = (boards.list.clone(), KeyPair::generate().unwrap());
    stolen.seats[1].key = stranger.public();
    let error = Cluster::open(boards.list.clone(), stranger.clone(), settings()).err().expect("no seat");
    assert!(matches!(error, ClusterError::NoSeat { serial: 1, .. }), "{error}");
    let b = Cluster::open(stolen, stranger, settings()).unwrap();
    assert_eq!(
        fault_of(&b),
        "the seat refused the connection: its member list differs, although both have the serial number 1"
    );
}

#[test]
fn the_signed_list_opens_the_seat_of_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let (boards, operator) = (Boards::new(2), SigningKey::generate().unwrap());
    let path = folder.path().join("members");
    std::fs::write(&path, boards.list.sign(&operator).unwrap()).unwrap();
    let list = MemberList::read(&path, &operator.verifying_key()).unwrap();
    let cluster = Cluster::open(list, boards.keys[1].clone(), settings()).unwrap();
    assert_eq!((cluster.seat(), cluster.addresses()), (1, boards.list.seats[1].addresses.clone()));
    let taken: SocketAddr = cluster.addresses()[0];
    let again =
        Cluster::open(boards.list.clone(), boards.keys[1].clone(), settings()).err().expect("it is taken");
    assert!(matches!(&again, ClusterError::Listen { address, .. } if *address == taken), "{again}");
}
