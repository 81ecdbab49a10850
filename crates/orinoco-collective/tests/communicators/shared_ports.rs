//! Groups whose ranks share the ports of their boards' daemons.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use orinoco_collective::{
    Cluster, ClusterSettings, Communicator, JoinError, KeyPair, MemberList, ReduceOp, Rendezvous, Seat,
    Security, SharedPorts, TcpGroup,
};

use crate::addresses::free_address;
use crate::name;
use crate::tcp::{group_key, hasty, key_pairs, settings, sums_of};

/// Folder of the daemons' sockets.
const FOLDER: &str = env!("CARGO_TARGET_TMPDIR");

/// The only seat of a cluster, which serves the programs of its board.
struct Daemon {
    address: SocketAddr,
    socket: PathBuf,
    _cluster: Cluster,
}

impl Daemon {
    fn start(ip: Ipv4Addr) -> Self {
        Self::start_as("daemon", ip)
    }

    /// Starts a daemon whose socket's name begins so.
    fn start_as(kind: &str, ip: Ipv4Addr) -> Self {
        let (key, address) = (KeyPair::generate().unwrap(), free_address(ip));
        let seat = Seat { name: "a".to_owned(), addresses: vec![address], key: key.public() };
        let list = MemberList { name: "test".to_owned(), serial: 1, witness: None, seats: vec![seat] };
        let socket = Path::new(FOLDER).join(format!("{kind}-{}-{}.sock", process::id(), address.port()));
        let programs = Some(Arc::new(UnixListener::bind(&socket).unwrap()));
        let settings = ClusterSettings { programs, ..ClusterSettings::default() };
        let cluster = Cluster::open(list, key, settings).expect("a free address");
        Self { address, socket, _cluster: cluster }
    }

    fn ports(&self, group: &str, ranks: usize) -> SharedPorts {
        let (addresses, socket) = (vec![self.address; ranks], self.socket.clone());
        SharedPorts { group: group.to_owned(), addresses, socket }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Another test's start may have removed it as a stale one.
        let _ = fs::remove_file(&self.socket);
    }
}

/// Sockets of the suite's daemons, of this process or of all, and their ports.
fn sockets_of(process: Option<u32>) -> Vec<(PathBuf, u16)> {
    let found = fs::read_dir(FOLDER).unwrap().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let (of, port) = name.strip_prefix("suite-")?.strip_suffix(".sock")?.split_once('-')?;
        let is_right = process.is_none_or(|process| of == process.to_string());
        is_right.then_some((entry.path(), port.parse().ok()?))
    });
    found.collect()
}

/// Socket and port of the daemon of this process's parent, which may have started this process before its daemon.
fn socket_of_parent() -> (PathBuf, u16) {
    let parent = parent_id();
    loop {
        if let Some(found) = sockets_of(Some(parent)).into_iter().next() {
            return found;
        }
        assert_eq!(parent_id(), parent, "the test that started this process has ended");
        thread::yield_now();
    }
}

/// The ports of the daemon that all groups of the suite share: that of the test's process. It lives until the process ends.
pub(crate) fn of_suite(path: &Path, ranks: usize) -> SharedPorts {
    static DAEMON: OnceLock<Daemon> = OnceLock::new();
    let group = path.file_name().unwrap().to_str().unwrap();
    if std::env::var_os(crate::suite::SECOND_RANK).is_some()
        || std::env::var_os(crate::split::LAST_RANK).is_some()
        || std::env::var_os(crate::shrink::FILE).is_some()
    {
        let (socket, port) = socket_of_parent();
        let addresses = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port)); ranks];
        return SharedPorts { group: group.to_owned(), addresses, socket };
    }
    let start = || {
        for (stale, _) in sockets_of(None) {
            if UnixStream::connect(&stale).is_err() {
                // Another process may have done so.
                let _ = fs::remove_file(stale);
            }
        }
        Daemon::start_as("suite", Ipv4Addr::LOCALHOST)
    };
    DAEMON.get_or_init(start).ports(group, ranks)
}

/// Two boards with two ranks each, and several groups that are joined at the same time.
#[test]
fn groups_of_ranks_on_several_boards_share_the_ports_of_their_daemons() {
    let boards = [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2)].map(Daemon::start);
    let addresses: Vec<SocketAddr> = (0..4).map(|rank| boards[rank / 2].address).collect();
    let ways = |group: &str, security: Vec<Security>| -> Vec<(Rendezvous, Security)> {
        let way = |(rank, security): (usize, Security)| {
            let ports = SharedPorts { addresses: addresses.clone(), ..boards[rank / 2].ports(group, 4) };
            (Rendezvous::SharedPorts(ports), security)
        };
        security.into_iter().enumerate().map(way).collect()
    };
    let (key, pairs) = (ways("first", vec![group_key(); 4]), ways("second", key_pairs(4)));
    thread::scope(|scope| {
        let groups = [&key, &pairs].map(|of_ranks| scope.spawn(|| sums_of(of_ranks)));
        for group in groups {
            assert_eq!(group.join().unwrap(), [6; 4]);
        }
    });
}

/// Each rank has its own view of the addresses, and several connections with each other rank.
#[test]
fn groups_are_split_where_ranks_know_the_daemons_by_different_addresses() {
    let boards = [(); 2].map(|()| Daemon::start(Ipv4Addr::UNSPECIFIED));
    let at = |board: &Daemon, last: u8| SocketAddr::from(([127, 0, 0, last], board.address.port()));
    let key = group_key();
    let join = |rank: usize| {
        let view = 1 + rank as u8;
        let addresses = vec![at(&boards[0], view), at(&boards[1], view), at(&boards[1], view)];
        let ports = SharedPorts { addresses, ..boards[rank.min(1)].ports("group", 3) };
        let mut settings = settings(key.clone());
        settings.messages.tcp_connections = 3;
        let mut group = TcpGroup::join(&Rendezvous::SharedPorts(ports), rank, 3, settings).expect("all join");
        let mut part = group.split(Some(rank.min(1) as u32), 0).expect("a group").expect("a colour");
        let mut turned = group.split(Some(0), -(rank as i32)).expect("a group").expect("a colour");
        let mut again = turned.split(Some(0), 0).expect("a group").expect("a colour");
        [&mut part, &mut turned, &mut again].map(|group| {
            let mut all = vec![0u64; group.ranks()];
            group.all_gather(&[rank as u64], &mut all).unwrap();
            all
        })
    };
    let found = thread::scope(|scope| {
        let join = &join;
        [0, 1, 2].map(|rank| scope.spawn(move || join(rank))).map(|rank| rank.join().unwrap())
    });
    for (rank, found) in found.into_iter().enumerate() {
        let part: Vec<u64> = if rank == 0 { vec![0] } else { vec![1, 2] };
        assert_eq!(found, [part, vec![2, 1, 0], vec![2, 1, 0]]);
    }
}

/// The daemon is needed while ranks join, and not afterwards.
#[test]
fn a_group_goes_on_without_the_daemon() {
    let daemon = Daemon::start(Ipv4Addr::LOCALHOST);
    let rendezvous = Rendezvous::SharedPorts(daemon.ports("group", 3));
    let key = group_key();
    let mut groups = thread::scope(|scope| {
        let join = |rank| TcpGroup::join(&rendezvous, rank, 3, settings(key.clone())).expect("all join");
        let ranks = [0, 1, 2].map(|rank| scope.spawn(move || join(rank)));
        ranks.map(|rank| rank.join().unwrap())
    });
    drop(daemon);
    thread::scope(|scope| {
        for group in &mut groups {
            scope.spawn(move || {
                let mut vector = vec![1u32; 100_000];
                group.all_reduce(ReduceOp::Sum, &mut vector).unwrap();
                assert_eq!(vector, vec![3; 100_000]);
                let error = group.split(Some(0), 0).err().expect("no daemon");
                assert!(matches!(error, JoinError::Daemon { .. }), "{error}");
            });
        }
    });
}

#[test]
fn what_is_missing_is_named() {
    let daemon = Daemon::start(Ipv4Addr::LOCALHOST);
    let ports = daemon.ports("group", 2);
    let join = |ports: SharedPorts, rank| {
        let joined = TcpGroup::join(&Rendezvous::SharedPorts(ports), rank, 2, hasty(group_key()));
        joined.err().expect("the other rank is missing").to_string()
    };
    let error = join(ports.clone(), 1);
    let expected =
        format!("rank 0 did not join group `group` through the daemon at {} within ", daemon.address);
    assert!(error.starts_with(&expected), "{error}");
    let error = join(ports.clone(), 0);
    assert!(
        error.starts_with(&format!(
            "rank 1 did not join group `group` through the daemon at {} within ",
            daemon.address
        )),
        "{error}"
    );
    let error = join(SharedPorts { socket: name(), ..ports.clone() }, 0);
    assert!(error.starts_with("cannot register with the daemon at /dev/shm/orinoco-test-"), "{error}");
    let error = join(SharedPorts { group: "a b".to_owned(), ..ports.clone() }, 0);
    assert_eq!(error, "invalid group name `a b`: use 1 to 28 ASCII letters, digits, `-`, `_` and `.`");
    let plaintext = TcpGroup::join(&Rendezvous::SharedPorts(ports.clone()), 0, 2, hasty(Security::Plaintext));
    assert!(matches!(plaintext.err(), Some(JoinError::UnprotectedPort)), "other machines reach the daemon");
    let error = join(SharedPorts { addresses: vec![daemon.address], ..ports.clone() }, 0);
    assert_eq!(error, "1 addresses for 2 ranks; there must be one for each rank");
    // A daemon that shares its port with nobody.
    let (key, address) = (KeyPair::generate().unwrap(), free_address(Ipv4Addr::LOCALHOST));
    let seat = Seat { name: "a".to_owned(), addresses: vec![address], key: key.public() };
    let list = MemberList { name: "test".to_owned(), serial: 1, witness: None, seats: vec![seat] };
    let _unshared = Cluster::open(list, key, ClusterSettings::default()).unwrap();
    let error = join(SharedPorts { addresses: vec![address; 2], ..ports.clone() }, 1);
    assert!(error.contains(&format!("through the daemon at {address}")), "{error}");
    // A rank with another key is refused by the program, not by the daemon.
    let ranks = thread::scope(|scope| {
        [0, 1]
            .map(|rank| {
                scope.spawn({
                    let ports = ports.clone();
                    move || join(ports, rank)
                })
            })
            .map(|rank| rank.join().unwrap())
    });
    assert!(ranks[0].contains("; 1 connection was refused because of its key;"), "{ranks:?}");
    assert!(ranks[1].starts_with("rank 0 refuses this rank"), "{ranks:?}");
}

/// Others can reach a program through the daemon while it joins. They keep neither it nor the daemon from their work.
#[test]
fn strangers_that_ask_for_a_program_do_not_keep_its_group_from_joining() {
    let daemon = Daemon::start(Ipv4Addr::LOCALHOST);
    let ports = daemon.ports("group", 2);
    let key = group_key();
    let mut first = None;
    thread::scope(|scope| {
        let rank = scope.spawn({
            let (rendezvous, key) = (Rendezvous::SharedPorts(ports.clone()), key.clone());
            move || TcpGroup::join(&rendezvous, 0, 2, settings(key)).expect("both join")
        });
        let mut open = Vec::new();
        for number in 0..600u32 {
            let mut stranger = TcpStream::connect(daemon.address).unwrap();
            stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stranger.write_all(&target("group", number % 3)).unwrap();
            if number % 3 == 0 {
                stranger.write_all(&[b'x'; 30]).unwrap();
                open.push(stranger);
                continue;
            }
            // No program has asked for these: the answer is a hello with the number of that reason.
            let mut answer = [0; 48];
            stranger.read_exact(&mut answer).unwrap();
            assert_eq!((&answer[..8], answer[10]), (&b"ORINOCO\0"[..], 8));
        }
        let second = TcpGroup::join(&Rendezvous::SharedPorts(ports), 1, 2, settings(key)).expect("both join");
        first = Some((rank.join().unwrap(), second));
    });
    let (mut first, mut second) = first.unwrap();
    thread::scope(|scope| {
        scope.spawn(|| first.barrier().unwrap());
        second.barrier().unwrap();
    });
}

/// The message with which a connection asks for a program, made from the documentation of its format.
fn target(group: &str, number: u32) -> [u8; 48] {
    let mut bytes = [0; 48];
    bytes[..8].copy_from_slice(b"ORINOCO\0");
    (bytes[8], bytes[10], bytes[11]) = (1, 6, group.len() as u8);
    bytes[12..16].copy_from_slice(&number.to_le_bytes());
    bytes[16..16 + group.len()].copy_from_slice(group.as_bytes());
    let checksum = crc32c::crc32c(&bytes[..44]);
    bytes[44..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}
