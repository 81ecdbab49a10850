//! Transfers with owners that are killed, stopped, or do not keep the protocol, and their memory.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use orinoco_collective::transfer::{Access, Position, Region, TransferAgent, TransferError, TransferOptions};
use orinoco_collective::{FailureCause, MessageSettings, Rendezvous, Security, TcpGroup, TcpSettings};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::peer::{Beat, Peer, free_address, plain};
use crate::process::{name, resources};
use crate::{ALLOWANCE, SILENCE, turn};

/// File through which an owner's process meets the test, its number of ranks, the silence in ms, and its kind of protection.
const OWNER: &str = "ORINOCO_TEST_OWNER";
/// Rank of an owner that is a process of its own.
const OWNER_RANK: usize = 1;
/// Bytes of its region in memory.
const REGION: usize = 64 << 20;
/// Bytes of its region in a file, far more than a window and the buffers of sockets.
const FILE: u64 = 768 << 20;
/// Memory that a transfer may take, in KiB: its window, buffers that are kept, and stacks.
const MEMORY_KIB: u64 = 8 << 10;

/// An owner in a process of its own. It is killed when it is dropped.
struct Owner {
    child: Child,
    path: PathBuf,
}

impl Owner {
    fn start(ranks: usize, silence: Duration, protection: &str) -> Self {
        let path = name();
        let orders = format!("{} {ranks} {} {protection}", path.display(), silence.as_millis());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "transfers::owner", "--nocapture"]).env(OWNER, orders);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        Self { child, path }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// Stops it, and returns when it has stopped. A signal alone leaves its threads running until one of them has taken it: on a
    /// machine that is busy, some of them can still answer meanwhile.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let status = waitid(WaitId::Pid(Pid::from_child(&self.child)), WaitIdOptions::STOPPED).unwrap();
        assert!(status.expect("it waits").stopped(), "{status:?}");
    }

    /// Resident memory of its own, in KiB.
    fn memory_kib(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it is there");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line of it");
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(file_of(&self.path));
    }
}

fn file_of(path: &Path) -> PathBuf {
    std::env::temp_dir().join(path.file_name().expect("a name")).with_extension("region")
}

fn start(path: &Path, rank: usize, ranks: usize, silence: Duration, protection: &str) -> TransferAgent {
    let messages = MessageSettings { silence, ..MessageSettings::default() };
    let security = if protection == "plaintext" { Security::Plaintext } else { Security::FileKey };
    let settings = TcpSettings { security, messages };
    let group = TcpGroup::join(&Rendezvous::File(path.to_owned()), rank, ranks, settings).expect("all join");
    TransferAgent::start(group).expect("an agent")
}

/// Byte of the region at an offset.
fn content(offset: usize) -> u8 {
    (offset / 1000) as u8
}

/// An owner, if its orders are in the environment. Its program does nothing but wait for the end.
#[test]
fn owner() {
    let Ok(orders) = std::env::var(OWNER) else { return };
    let words: Vec<&str> = orders.split(' ').collect();
    let silence = Duration::from_millis(words[2].parse().unwrap());
    let agent = start(Path::new(words[0]), OWNER_RANK, words[1].parse().unwrap(), silence, words[3]);
    let file =
        File::options().read(true).write(true).create_new(true).open(file_of(Path::new(words[0]))).unwrap();
    file.set_len(FILE).unwrap();
    let file = agent.register("file", Region::file(file, FILE).unwrap(), Access::ReadWrite).unwrap();
    let host: Vec<u8> = (0..REGION).map(content).collect();
    let host = agent.register("host", host.into(), Access::ReadWrite).unwrap();
    agent.next_notification(Duration::from_secs(600));
    drop((file, host));
}

/// Agents of an owner's other ranks.
fn with_owner<const OTHERS: usize>(silence: Duration, protection: &str) -> (Owner, [TransferAgent; OTHERS]) {
    let ranks = 1 + OTHERS;
    let owner = Owner::start(ranks, silence, protection);
    let agents = thread::scope(|scope| {
        let others = (0..ranks).filter(|rank| *rank != OWNER_RANK);
        let threads: Vec<_> = others
            .map(|rank| {
                scope.spawn({
                    let path = &owner.path;
                    move || start(path, rank, ranks, silence, protection)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    let is_ready = || agents[0].regions(OWNER_RANK, Duration::from_secs(20)).unwrap().len() == 2;
    while !is_ready() {
        thread::sleep(Duration::from_millis(1));
    }
    (owner, agents.try_into().ok().expect("the others"))
}

fn within(deadline: Duration) -> TransferOptions {
    TransferOptions { deadline, ..TransferOptions::default() }
}

/// Gets again and again until it fails. Returns the error, and when it came.
fn get_until_failure(agent: &TransferAgent) -> (TransferError, Instant) {
    let mut into = vec![0; REGION];
    loop {
        if let Err(error) = agent.get(OWNER_RANK, "host", 0, &mut into, within(Duration::from_secs(60))) {
            return (error, Instant::now());
        }
    }
}

/// Also a copy into the owner's file: whatever is under way ends, and the other ranks go on.
#[test]
fn an_owner_that_is_killed_or_stopped_is_named_in_time_and_others_go_on() {
    let _turn = turn();
    for (signal, protection) in [(Signal::KILL, "key"), (Signal::KILL, "plaintext"), (Signal::STOP, "key")] {
        let (owner, [first, third]) = with_owner::<2>(SILENCE, protection);
        let region = first.register("own", Region::host(100), Access::ReadWrite).unwrap();
        let source = third.register("source", Region::host(REGION), Access::Read).unwrap();
        let (from, to) = (
            Position { rank: 2, region: "source", offset: 0 },
            Position { rank: OWNER_RANK, region: "file", offset: 0 },
        );
        thread::scope(|scope| {
            let get = scope.spawn(|| get_until_failure(&first));
            let copy = scope.spawn(|| {
                loop {
                    if let Err(error) = third.copy(from, to, REGION as u64, within(Duration::from_secs(60))) {
                        return (error, Instant::now());
                    }
                }
            });
            thread::sleep(Duration::from_millis(50));
            let struck = Instant::now();
            owner.signal(signal);
            for (error, at) in [get.join().unwrap(), copy.join().unwrap()] {
                let TransferError::RankFailed { rank: OWNER_RANK, cause } = error else { panic!("{error}") };
                let is_right = match cause {
                    FailureCause::Ended => signal == Signal::KILL,
                    FailureCause::Silent(_) => true,
                    _ => false,
                };
                assert!(is_right, "{signal:?}, {protection}: {cause:?}");
                let late = at.saturating_duration_since(struck);
                assert!(late <= SILENCE + ALLOWANCE, "{signal:?}, {protection}: after {late:?}");
            }
        });
        let error = first.put(OWNER_RANK, "host", 0, &[1], within(Duration::from_secs(60))).unwrap_err();
        assert!(matches!(error, TransferError::RankFailed { rank: OWNER_RANK, .. }), "{error}");
        third.put(0, "own", 0, &[1; 100], within(Duration::from_secs(20))).expect("others go on");
        drop((region, source));
    }
}

/// It is alive as far as anybody knows. When it goes on, answers to transfers that were given up come late, and are not those of others.
#[test]
fn a_transfer_with_a_stopped_owner_ends_at_its_deadline_and_late_answers_go_nowhere() {
    let _turn = turn();
    let silence = Duration::from_secs(20);
    for protection in ["key", "plaintext"] {
        let (owner, [agent]) = with_owner::<1>(silence, protection);
        let deadline = Duration::from_millis(200);
        let mut given_up = vec![0; REGION];
        owner.stop();
        for _ in 0..3 {
            let start = Instant::now();
            let error = agent.get(OWNER_RANK, "host", 0, &mut given_up, within(deadline)).unwrap_err();
            let waited = start.elapsed();
            assert!(matches!(error, TransferError::Late { rank: OWNER_RANK, .. }), "{error}");
            assert!(waited >= deadline && waited < deadline + ALLOWANCE, "{waited:?}");
        }
        let error = agent.put(OWNER_RANK, "host", 0, &given_up, within(deadline)).unwrap_err();
        let TransferError::Late { bytes, confirmed: 0, .. } = error else { panic!("{error}") };
        assert_eq!(bytes, REGION as u64);
        assert!(given_up.iter().all(|byte| *byte == 0), "nothing came");
        owner.signal(Signal::CONT);
        for offset in [3_000_000, 20_000_000] {
            let mut into = vec![0; 3 << 20];
            agent.get(OWNER_RANK, "host", offset as u64, &mut into, within(silence)).unwrap();
            assert!(into.iter().enumerate().all(|(at, byte)| *byte == content(offset + at)), "{protection}");
        }
        assert!(given_up.iter().all(|byte| *byte == 0), "late answers were written");
    }
}

#[test]
fn copying_a_file_takes_memory_that_does_not_depend_on_its_length() {
    let _turn = turn();
    for protection in ["key", "plaintext"] {
        let (owner, [agent]) = with_owner::<1>(Duration::from_secs(20), protection);
        let path = name();
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(std::env::temp_dir().join(path.file_name().unwrap()));
        let region = Region::file(file.unwrap(), FILE).unwrap();
        let region = agent.register("copy", region, Access::Read).unwrap();
        let (own, other) = (
            Position { rank: 0, region: "copy", offset: 0 },
            Position { rank: OWNER_RANK, region: "file", offset: 0 },
        );
        let before = [owner.memory_kib(), resources().memory_kib];
        for (from, to) in [(other, own), (own, other)] {
            thread::scope(|scope| {
                let copy = scope.spawn(|| agent.copy(from, to, FILE, within(Duration::from_secs(120))));
                while !copy.is_finished() {
                    let now = [owner.memory_kib(), resources().memory_kib];
                    for (now, before) in now.into_iter().zip(before) {
                        let growth = now.saturating_sub(before);
                        assert!(growth < MEMORY_KIB, "{protection}: {growth} KiB more during the copy");
                    }
                    thread::sleep(Duration::from_millis(2));
                }
                copy.join().unwrap().unwrap();
            });
        }
        drop(region);
        std::fs::remove_file(std::env::temp_dir().join(path.file_name().unwrap())).unwrap();
    }
}

/// The agent of rank 0, whose rank 1 is made by hand.
fn with_peer(act: impl FnOnce(&TransferAgent, &mut Peer)) {
    let address = free_address();
    let rendezvous = Rendezvous::List(vec![address, free_address()]);
    let (agent, mut peer, _beat) = thread::scope(|scope| {
        let rank = scope.spawn(|| {
            let group = TcpGroup::join(&rendezvous, 0, 2, plain(Duration::from_secs(20))).expect("both join");
            TransferAgent::start(group).expect("an agent")
        });
        let peer = Peer::join(address);
        let beat: Beat = peer.beat();
        (rank.join().expect("no panic"), peer, beat)
    });
    act(&agent, &mut peer);
}

/// A header as its documentation describes it.
fn header(kind: u8, number: u32, bytes: u32, offset: u64, name: &[u8]) -> [u8; 128] {
    let mut header = [0; 128];
    (header[0], header[1], header[3]) = (b'T', kind, name.len() as u8);
    header[4..8].copy_from_slice(&number.to_le_bytes());
    header[8..12].copy_from_slice(&bytes.to_le_bytes());
    header[16..24].copy_from_slice(&offset.to_le_bytes());
    header[60..60 + name.len()].copy_from_slice(name);
    let checksum = crc32c::crc32c(&header[..124]);
    header[124..].copy_from_slice(&checksum.to_le_bytes());
    header
}

const GET: u8 = 2;
const DATA: u8 = 5;
const REFUSED: u8 = 7;

#[test]
fn peers_that_break_the_protocol_are_named_and_the_connection_is_closed() {
    let _turn = turn();
    let attempts: [(&str, Vec<u8>, FailureCause); 6] = [
        ("noise", vec![0x4f; 500], FailureCause::Damaged),
        ("an unknown kind", header(9, 0, 0, 0, b"").to_vec(), FailureCause::Damaged),
        ("a length beyond the bound", header(GET, 0, u32::MAX, 0, b"region").to_vec(), FailureCause::Damaged),
        ("a name that is not UTF-8", header(GET, 0, 1, 0, b"\xff\xfe").to_vec(), FailureCause::Damaged),
        ("an answer to nothing", header(DATA, 0, 0, 0, b"").to_vec(), FailureCause::Unexpected),
        (
            "half a header, then the end",
            header(GET, 0, 1, 0, b"region")[..70].to_vec(),
            FailureCause::Disconnected,
        ),
    ];
    for (what, bytes, expected) in attempts {
        with_peer(|agent, peer| {
            let region = agent.register("region", vec![7; 100].into(), Access::ReadWrite).unwrap();
            peer.messages.write_all(&bytes).unwrap();
            if expected == FailureCause::Disconnected {
                peer.messages.shutdown(std::net::Shutdown::Both).unwrap();
            }
            let start = Instant::now();
            let error = agent.get(1, "region", 0, &mut [0], within(Duration::from_secs(20))).unwrap_err();
            let is_right = matches!(error, TransferError::RankFailed { rank: 1, cause } if cause == expected);
            assert!(is_right, "{what}: {error}");
            assert!(start.elapsed() < SILENCE + ALLOWANCE, "{what}: after {:?}", start.elapsed());
            // The end of the connection, behind the request.
            let mut rest = Vec::new();
            let _ = peer.messages.read_to_end(&mut rest);
            let mut kept = [0; 100];
            region.read(0, &mut kept).unwrap();
            assert_eq!(kept, [7; 100], "{what}");
        });
    }
}

#[test]
fn a_peer_s_request_at_the_bounds_of_numbers_is_refused_and_the_next_is_served() {
    let _turn = turn();
    with_peer(|agent, peer| {
        let region = agent.register("region", vec![7; 100].into(), Access::Read).unwrap();
        for (number, offset) in [(0, u64::MAX), (1, u64::MAX - 4), (2, 100)] {
            peer.messages.write_all(&header(GET, number, 5, offset, b"region")).unwrap();
            let mut answer = [0; 128];
            peer.messages.read_exact(&mut answer).unwrap();
            assert_eq!((answer[1], answer[4]), (REFUSED, number as u8));
        }
        peer.messages.write_all(&header(GET, 3, 5, 95, b"region")).unwrap();
        let mut answer = [0; 133];
        peer.messages.read_exact(&mut answer).unwrap();
        assert_eq!((answer[1], &answer[128..]), (DATA, &[7; 5][..]));
        drop(region);
    });
}

/// It asks without end and reads nothing: its requests are bounded, and it is named.
#[test]
fn a_peer_that_floods_requests_takes_no_memory() {
    let _turn = turn();
    with_peer(|agent, peer| {
        let region = agent.register("region", Region::host(256 << 10), Access::Read).unwrap();
        let before = resources().memory_kib;
        let mut number = 0;
        while peer.messages.write_all(&header(GET, number, 256 << 10, 0, b"region")).is_ok() {
            number += 1;
            assert!(number < 1_000_000, "it is served without a bound");
        }
        let growth = resources().memory_kib.saturating_sub(before);
        assert!(growth < MEMORY_KIB, "{growth} KiB more");
        let error = agent.get(1, "region", 0, &mut [0], within(Duration::from_secs(20))).unwrap_err();
        let is_named =
            matches!(error, TransferError::RankFailed { rank: 1, cause: FailureCause::Unexpected });
        assert!(is_named, "{error}");
        drop(region);
    });
}
