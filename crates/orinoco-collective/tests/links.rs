//! Boards with several network interfaces: their links are measured, and the fastest that works is used.

#![expect(clippy::disallowed_methods, reason = "the tests wait for real threads")]
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]

mod addresses;

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use addresses::free_address;
use orinoco_collective::{
    Cluster, ClusterGroup, ClusterSettings, CollectiveError, Communicator, Epoch, JoinError, KeyPair,
    MemberList, MessageSettings, ReduceOp, Seat, SeatLink,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Maximum time that a test waits for seats, and for links: one that could not be measured on a busy machine is tried again after 10 s.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Interval at which a test looks at links.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Port at which the boards listen, where each has a network of its own.
const PORT: u16 = 4711;

/// Two boards: their list, and the key pair of each.
struct Boards {
    list: MemberList,
    keys: Vec<KeyPair>,
}

impl Boards {
    fn new(addresses: [Vec<SocketAddr>; 2]) -> Self {
        let keys: Vec<KeyPair> = (0..2).map(|_| KeyPair::generate().unwrap()).collect();
        let seat = |((name, addresses), key): ((&str, Vec<SocketAddr>), &KeyPair)| Seat {
            name: name.to_owned(),
            addresses,
            key: key.public(),
        };
        let seats = ["a", "b"].into_iter().zip(addresses).zip(&keys).map(seat).collect();
        Self { list: MemberList { name: "test".to_owned(), serial: 1, witness: None, seats }, keys }
    }

    fn open(&self, seat: usize, tcp_encryption: bool) -> Cluster {
        let messages = MessageSettings {
            deadline: WAIT_MAX,
            silence: Duration::from_secs(2),
            tcp_connections: 2,
            tcp_encryption,
            ..MessageSettings::default()
        };
        let settings = ClusterSettings {
            join_time: WAIT_MAX,
            silence: Duration::from_secs(2),
            messages,
            ..ClusterSettings::default()
        };
        Cluster::open(self.list.clone(), self.keys[seat].clone(), settings).expect("free addresses")
    }
}

/// Joins an epoch with the other board, and sums over it and over groups that are split off.
fn join(cluster: &mut Cluster) -> (Epoch, ClusterGroup) {
    loop {
        let mut epoch = cluster.join().expect("an epoch");
        // On a busy machine a board may be late, and the epoch fails. Then both join again.
        match split(&mut epoch) {
            Ok(split) => return (epoch, split),
            Err(
                JoinError::Failed(CollectiveError::EpochFailed { .. })
                | JoinError::Split(CollectiveError::EpochFailed { .. })
                | JoinError::Missing { .. },
            ) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

fn split(epoch: &mut Epoch) -> Result<ClusterGroup, JoinError> {
    let mut split = epoch.group.split(Some(0), 0)?.expect("a colour");
    let mut over_tcp = epoch.group.split_over_tcp(Some(0), 0)?.expect("a colour");
    assert_eq!((sum(&mut over_tcp)?, sum(&mut epoch.group)?, sum(&mut split)?), (2, 2, 2));
    Ok(split)
}

/// Joins epochs until one uses this address of the other board. If the fastest link could not be measured at first, a later one does.
fn join_at(cluster: &mut Cluster, other: usize, address: &str) -> (Epoch, ClusterGroup) {
    let start = Instant::now();
    loop {
        let (mut epoch, split) = join(cluster);
        let used = used(cluster, other);
        // Both boards have looked at the link before either leaves.
        if epoch.group.barrier().is_ok() && used == [address.parse::<IpAddr>().unwrap()] {
            return (epoch, split);
        }
        assert!(start.elapsed() < WAIT_MAX, "{used:?} is used instead of {address}");
        drop((epoch, split));
        thread::sleep(LOOK_EVERY);
    }
}

fn sum(group: &mut impl Communicator) -> Result<u64, CollectiveError> {
    let mut sum = [1];
    group.all_reduce(ReduceOp::Sum, &mut sum)?;
    Ok(sum[0])
}

/// Addresses of the other board on the link that is used.
fn used(cluster: &Cluster, other: usize) -> Vec<IpAddr> {
    let links = &cluster.monitor().links()[other];
    links.iter().filter(|link| link.is_used).map(|link| link.peer).collect()
}

/// Waits until the links with the other board are as wanted.
fn links_until(cluster: &Cluster, other: usize, is_wanted: impl Fn(&[SeatLink]) -> bool) -> Vec<SeatLink> {
    let start = Instant::now();
    loop {
        let links = cluster.monitor().links().swap_remove(other);
        if is_wanted(&links) {
            return links;
        }
        assert!(start.elapsed() < WAIT_MAX, "{links:?}");
        thread::sleep(LOOK_EVERY);
    }
}

#[test]
fn both_boards_see_all_links_and_the_one_that_is_used() {
    let addresses = [[1, 2], [3, 4]].map(|own| own.map(|last| free_address([127, 0, 0, last])).to_vec());
    let boards = Boards::new(addresses);
    let mut clusters = [0, 1].map(|seat| boards.open(seat, true));
    let epochs = thread::scope(|scope| {
        let threads = clusters.each_mut().map(|cluster| scope.spawn(|| join(cluster)));
        threads.map(|thread| thread.join().unwrap())
    });
    for (seat, cluster) in clusters.iter().enumerate() {
        // Seat 1 measures, and reports to seat 0.
        let is_measured =
            |link: &SeatLink| link.figures.as_ref().is_ok_and(|figures| figures.bytes_per_second > 0);
        let links = links_until(cluster, 1 - seat, |links| {
            links.iter().filter(|link| is_measured(link)).count() == 2
        });
        assert_eq!(links.iter().filter(|link| link.is_used).count(), 1, "{links:?}");
        assert!(cluster.monitor().links()[seat].is_empty(), "no link with itself");
    }
    for cluster in &clusters {
        // Each board knows its own row of figures, and gets that of the other.
        let start = Instant::now();
        let mut figures = cluster.monitor().figures();
        while figures[0][1].is_none() || figures[1][0].is_none() {
            assert!(start.elapsed() < WAIT_MAX, "{figures:?}");
            thread::sleep(LOOK_EVERY);
            figures = cluster.monitor().figures();
        }
        assert!(figures[0][0].is_none() && figures[1][1].is_none(), "no link with itself");
        assert!(figures[0][1].unwrap().bytes_per_second > 1 << 20, "{figures:?}");
    }
    let of = |cluster: &Cluster, other: usize| {
        let links = cluster.monitor().links().swap_remove(other);
        links.into_iter().find(|link| link.is_used).map(|link| (link.local.unwrap(), link.peer)).unwrap()
    };
    let (of_a, of_b) = (of(&clusters[0], 1), of(&clusters[1], 0));
    assert_eq!((of_a.0, of_a.1), (of_b.1, of_b.0), "both ends see the same link");
    drop(epochs);
    clusters[0].leave();
    assert!(used(&clusters[0], 1).is_empty());
}

/// Two network namespaces with two links between them: one of 50 Mb/s, and one that is not shaped.
struct Machines {
    names: [String; 2],
}

impl Machines {
    /// `None` where this process may not make them.
    fn new() -> Option<Self> {
        let names = ["a", "b"].map(|end| format!("orinoco-links-{}-{end}", std::process::id()));
        let machines = Self { names };
        let [a, b] = &machines.names;
        let mut all = vec![format!("ip netns add {a}"), format!("ip netns add {b}")];
        for (link, net) in [("slow", 1), ("fast", 2)] {
            all.push(format!("ip -n {a} link add {link} type veth peer name {link} netns {b}"));
            for (name, board) in [(a, 1), (b, 2)] {
                all.push(format!("ip -n {name} addr add 10.98.{net}.{board}/24 dev {link}"));
                all.push(format!("ip -n {name} link set {link} up"));
            }
        }
        let shape =
            |name| format!("tc -n {name} qdisc add dev slow root tbf rate 50mbit burst 16kb latency 50ms");
        all.extend([a, b].map(shape));
        all.iter().all(|words| run(words)).then_some(machines)
    }

    fn addresses() -> [Vec<SocketAddr>; 2] {
        [1, 2].map(|board| [1, 2].map(|net| SocketAddr::from(([10, 98, net, board], PORT))).to_vec())
    }

    /// Moves this thread, and those that it starts, into a namespace.
    fn enter(&self, board: usize) {
        let file = File::open(format!("/run/netns/{}", self.names[board])).unwrap();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    fn set_fast(&self, state: &str) {
        assert!(run(&format!("ip -n {} link set fast {state}", self.names[0])));
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| _ = run(&format!("ip netns del {name}")));
    }
}

/// Checks that all connections in this thread's network namespace are with the boards' port: a firewall needs to allow no other.
fn check_ports() {
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").expect("the table of connections");
    // proc_pid_net(5): the second and third columns are the ends, as ADDRESS:PORT in hexadecimal digits.
    let port = format!(":{PORT:04X}");
    let lines: Vec<&str> = table.lines().skip(1).collect();
    let is_of_board = |line: &&str| line.split_whitespace().skip(1).take(2).any(|end| end.ends_with(&port));
    assert!(lines.len() > 6 && lines.iter().all(is_of_board), "{table}");
}

fn run(words: &str) -> bool {
    let mut words = words.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn the_fastest_link_is_used_and_another_one_when_its_cable_is_cut() {
    for (tcp_encryption, name) in [(true, "tcp"), (false, "tcp-plaintext")] {
        use_the_fastest_link_and_cut_it(tcp_encryption, name);
    }
}

/// Runs two boards, whose epochs have a transport of that name.
fn use_the_fastest_link_and_cut_it(tcp_encryption: bool, transport: &str) {
    let Some(machines) = Machines::new() else {
        println!("skipped: the_fastest_link_is_used: no right to make network namespaces");
        return;
    };
    let boards = Boards::new(Machines::addresses());
    thread::scope(|scope| {
        for seat in 0..2 {
            let (boards, machines) = (&boards, &machines);
            scope.spawn(move || {
                machines.enter(seat);
                let (mut cluster, other) = (boards.open(seat, tcp_encryption), 1 - seat);
                let (mut epoch, split) = join_at(&mut cluster, other, &format!("10.98.2.{}", other + 1));
                assert_eq!(epoch.group.transport().name(), transport);
                check_ports();
                let links = links_until(&cluster, other, |links| {
                    links.iter().filter(|link| link.figures.is_ok()).count() == 2
                });
                let rate = |link: &SeatLink| link.figures.as_ref().expect("figures").bytes_per_second;
                let mut rates: Vec<u64> = links.iter().map(rate).collect();
                rates.sort_unstable();
                // 50 Mb/s are 6.25 MB/s, and a burst of 16 KB.
                assert!((4_000_000..7_000_000).contains(&rates[0]) && rates[1] > 2 * rates[0], "{links:?}");

                _ = epoch.group.barrier();
                if seat == 0 {
                    machines.set_fast("down");
                }
                while epoch.group.barrier().is_ok() {}
                drop((epoch, split));
                drop(join_at(&mut cluster, other, &format!("10.98.1.{}", other + 1)));
            });
        }
    });
}
