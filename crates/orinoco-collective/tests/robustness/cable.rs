//! A cut cable: two ranks in network namespaces of their own, whose link is set down while they run.

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use orinoco_collective::GroupKey;
use orinoco_core::Rng;

use crate::faults::orders;
use crate::process::{Process, Report, name};
use crate::worker::{Orders, now};
use crate::{ALLOWANCE, SILENCE, seeds, turn};

/// Two namespaces with a link between them, which are removed when this is dropped.
struct Cable {
    names: [String; 2],
}

impl Cable {
    /// `None` where this process may not make them.
    fn lay() -> Option<Self> {
        let names = ["a", "b"].map(|end| format!("orinoco-{}-{end}", std::process::id()));
        let cable = Self { names };
        let [a, b] = &cable.names;
        let all = [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("-n {a} link add cable type veth peer name cable netns {b}"),
            format!("-n {a} addr add 10.99.0.1/24 dev cable"),
            format!("-n {b} addr add 10.99.0.2/24 dev cable"),
        ];
        (all.iter().all(|words| ip(words)) && cable.plug()).then_some(cable)
    }

    fn plug(&self) -> bool {
        self.names.iter().all(|name| ip(&format!("-n {name} link set cable up")))
    }

    /// Sets the link down at one end: the other loses its carrier.
    fn cut(&self) {
        assert!(ip(&format!("-n {} link set cable down", self.names[0])));
    }

    fn start(&self, orders: &Orders) -> Process {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[orders.rank]]).arg(std::env::current_exe().unwrap());
        Process::start_by(orders, command)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| _ = ip(&format!("netns del {name}")));
    }
}

fn ip(words: &str) -> bool {
    let output = Command::new("ip").args(words.split(' ')).output();
    output.is_ok_and(|output| output.status.success())
}

/// The system may give a caller the very port that it calls, if nobody listens there and the port is in the range of those for callers:
/// the connection is with itself then. In a range of two ports it does so at once.
#[test]
fn a_rank_does_not_take_itself_for_another() {
    let _turn = turn();
    let Some(cable) = Cable::lay() else {
        println!("skipped: a_rank_does_not_take_itself_for_another: no right to make network namespaces");
        return;
    };
    let inside = |words: &[&str]| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &cable.names[1]]).args(words);
        command.output().is_ok_and(|output| output.status.success())
    };
    assert!(inside(&["ip", "link", "set", "lo", "up"]));
    assert!(inside(&["sysctl", "-w", "net.ipv4.ip_local_port_range=50000 50001"]));
    let (address, deadline) = ("127.0.0.1:50000".parse().unwrap(), Duration::from_millis(700));
    let rank = cable.start(&Orders { addresses: vec![address], deadline, ..orders("tcp-plaintext", 1, 2) });
    let report = rank.report(0);
    let Report::Refused { text } = &report else { panic!("{report:?}") };
    assert!(text.starts_with("rank 0 did not join"), "{text}");
}

#[test]
fn ranks_whose_cable_is_cut_name_each_other() {
    let _turn = turn();
    let Some(cable) = Cable::lay() else {
        println!("skipped: ranks_whose_cable_is_cut_name_each_other: no right to make network namespaces");
        return;
    };
    let key = name();
    GroupKey::generate().unwrap().write(&key).unwrap();
    let addresses: Vec<SocketAddr> =
        ["10.99.0.1:7001", "10.99.0.2:7002"].map(|address| address.parse().unwrap()).into();
    let (mut slowest, seeds) = (Duration::ZERO, seeds(3));
    for seed in seeds.clone() {
        assert!(cable.plug());
        let all =
            Orders { seed, addresses: addresses.clone(), key: Some(key.clone()), ..orders("tcp", 0, 2) };
        let ranks = [0, 1].map(|rank| cable.start(&Orders { rank, ..all.clone() }));
        ranks.iter().for_each(|rank| rank.joined(seed));
        thread::sleep(Duration::from_micros(Rng::with_seed(seed).u64(..60_000)));
        let struck = now();
        cable.cut();
        for rank in &ranks {
            let report = rank.report(seed);
            let Report::Failed { at, rank: named, cause, text, .. } = &report else {
                panic!("seed {seed}: {report:?}")
            };
            assert!(*named == 1 - rank.rank && cause == "Silent", "seed {seed}: rank {}: {text}", rank.rank);
            let waited = Duration::from_nanos(at.saturating_sub(struck));
            assert!(waited <= SILENCE + ALLOWANCE, "seed {seed}: rank {} failed after {waited:?}", rank.rank);
            slowest = slowest.max(waited);
            rank.left(seed);
        }
    }
    println!("cut cable: {} seeds, slowest error after {} ms", seeds.end - seeds.start, slowest.as_millis());
    std::fs::remove_file(&key).unwrap();
}
