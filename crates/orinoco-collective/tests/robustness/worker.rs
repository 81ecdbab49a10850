//! A rank in a process of its own: this test program, started once more with orders in its environment. It joins one group after the
//! other, runs random operations in each until it fails or ends, and reports to the test line by line.

use std::env;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use orinoco_collective::{
    CollectiveError, Communicator, GroupKey, JoinError, MessageSettings, PcieGroup, PcieSettings, ReduceOp,
    Rendezvous, Security, Settings, ShmGroup, TcpGroup, TcpSettings, Uniform,
};
use orinoco_core::Rng;
use rustix::time::{ClockId, clock_gettime};

use crate::SILENCE;
use crate::process::{Resources, resources};
use crate::rounds::round;

pub(crate) const ORDERS: &str = "ORINOCO_TEST_WORKER";
/// Beginning of a report: the test framework prints lines of its own.
pub(crate) const MARK: &str = "@ ";
/// Time in which threads and descriptors of a group must be gone: a thread of TCP reads on for as long as the silence.
const SETTLE: Duration = Duration::from_secs(4);
/// Rounds between two questions whether to go on.
const ROUNDS: usize = 20;
/// Elements of the vectors that are summed: in one message, and in several pieces.
const SUMMED: [usize; 3] = [1, 1000, 100_000];

/// Orders of a worker.
#[derive(Clone)]
pub(crate) struct Orders {
    pub(crate) transport: String,
    /// File through which ranks meet; each group has one of its own.
    pub(crate) path: PathBuf,
    /// Addresses of all ranks instead.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    /// Seed of the first group.
    pub(crate) seed: u64,
    pub(crate) groups: u64,
    pub(crate) deadline: Duration,
    /// Time for which operations run in each group.
    pub(crate) time: Duration,
    /// Round in which this rank's vector has a wrong size.
    pub(crate) odd_round: Option<u64>,
    /// Whether ranks agree on the outcome of each operation: they do nothing but all-reduce then.
    pub(crate) is_uniform: bool,
}

impl Orders {
    pub(crate) fn encode(&self) -> String {
        let mut text = format!(
            "transport={} path={} rank={} ranks={} seed={} groups={} deadline={} time={} uniform={}",
            self.transport,
            self.path.display(),
            self.rank,
            self.ranks,
            self.seed,
            self.groups,
            self.deadline.as_millis(),
            self.time.as_millis(),
            self.is_uniform
        );
        self.addresses.iter().for_each(|address| _ = write!(text, " address={address}"));
        self.key.iter().for_each(|key| _ = write!(text, " key={}", key.display()));
        self.odd_round.iter().for_each(|round| _ = write!(text, " odd_round={round}"));
        text
    }

    fn decode(text: &str) -> Self {
        let all = |wanted: &'static str| {
            let fields = text.split(' ').filter_map(|field| field.split_once('='));
            fields.filter(move |(name, _)| *name == wanted).map(|(_, value)| value)
        };
        let one = |wanted| all(wanted).next().expect("an order");
        let number = |wanted| one(wanted).parse::<u64>().expect("a number");
        Self {
            transport: one("transport").to_owned(),
            path: one("path").into(),
            addresses: all("address").map(|address| address.parse().expect("an address")).collect(),
            key: all("key").next().map(PathBuf::from),
            rank: number("rank") as usize,
            ranks: number("ranks") as usize,
            seed: number("seed"),
            groups: number("groups"),
            deadline: Duration::from_millis(number("deadline")),
            time: Duration::from_millis(number("time")),
            is_uniform: one("uniform") == "true",
            odd_round: all("odd_round").next().map(|round| round.parse().expect("a number")),
        }
    }

    /// File of the group with this seed.
    fn file(&self, seed: u64) -> PathBuf {
        let mut file = self.path.as_os_str().to_owned();
        file.push(format!("-{seed}"));
        file.into()
    }
}

/// The process, if it is one: a test that passes at once otherwise.
#[test]
fn rank() {
    let Ok(orders) = env::var(ORDERS) else { return };
    let orders = Orders::decode(&orders);
    for seed in orders.seed..orders.seed + orders.groups {
        let before = resources();
        let file = orders.file(seed);
        match orders.transport.as_str() {
            "shm" => run(&orders, seed, join_shm(&orders, &file)),
            "pcie" => run(&orders, seed, join_pcie(&orders, &file)),
            _ => run(&orders, seed, join_tcp(&orders, &file)),
        }
        let after = settled(before);
        println!("{MARK}left {seed} {} {before} {after}", now());
    }
}

/// Time of the system's monotonic clock, in nanoseconds: all processes have the same.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).expect("after the start") * 1_000_000_000
        + u64::try_from(time.tv_nsec).expect("less than a second")
}

fn join_shm(orders: &Orders, file: &Path) -> Result<ShmGroup, JoinError> {
    let settings = Settings { deadline: orders.deadline, silence: SILENCE, single_copy: true };
    ShmGroup::join(file, orders.rank, orders.ranks, settings)
}

fn join_pcie(orders: &Orders, file: &Path) -> Result<PcieGroup, JoinError> {
    let settings = PcieSettings { security: Security::Plaintext, messages: messages(orders) };
    PcieGroup::join(file, orders.rank, orders.ranks, settings)
}

fn messages(orders: &Orders) -> MessageSettings {
    MessageSettings {
        deadline: orders.deadline,
        silence: SILENCE,
        uniform: orders.is_uniform.then(Uniform::default),
        ..MessageSettings::default()
    }
}

fn join_tcp(orders: &Orders, file: &Path) -> Result<TcpGroup, JoinError> {
    let security = match (orders.transport.as_str(), &orders.key) {
        ("tcp-plaintext", _) => Security::Plaintext,
        (_, Some(key)) => Security::GroupKey(GroupKey::read(key).expect("a key")),
        _ => Security::FileKey,
    };
    let messages = messages(orders);
    let rendezvous = match orders.addresses.as_slice() {
        [] => Rendezvous::File(file.to_owned()),
        [one] => Rendezvous::Address(*one),
        all => Rendezvous::List(all.to_vec()),
    };
    TcpGroup::join(&rendezvous, orders.rank, orders.ranks, TcpSettings { security, messages })
}

fn run<C: Communicator>(orders: &Orders, seed: u64, joined: Result<C, JoinError>) {
    let mut group = match joined {
        Ok(group) => group,
        Err(error) => return println!("{MARK}refused {seed} {} {}", now(), describe(&error)),
    };
    println!("{MARK}joined {seed} {}", now());
    let mut rounds = 0;
    let result = match orders.is_uniform {
        true => sum_on(seed, &mut group, &mut rounds),
        false => operate(orders, seed, &mut group, &mut rounds),
    };
    match result {
        Ok(()) => println!("{MARK}done {seed} {} {rounds}", now()),
        Err(error) => {
            // Once failed, always failed.
            assert!(group.barrier().is_err());
            println!("{MARK}failed {seed} {} {rounds} {}", now(), failure(&error));
        }
    }
}

/// Sums vectors until a rank fails, and counts the sums that were returned.
fn sum_on(seed: u64, group: &mut impl Communicator, rounds: &mut u64) -> Result<(), CollectiveError> {
    let (mut rng, ranks) = (Rng::with_seed(seed), group.ranks() as u64);
    loop {
        let mut vector = vec![*rounds + group.rank() as u64; SUMMED[rng.usize(..SUMMED.len())]];
        group.all_reduce(ReduceOp::Sum, &mut vector)?;
        let sum = ranks * *rounds + ranks * (ranks - 1) / 2;
        assert!(vector.iter().all(|element| *element == sum), "sum {rounds} of {} elements", vector.len());
        *rounds += 1;
    }
}

/// Runs operations until the time is over, and counts the rounds.
fn operate(
    orders: &Orders,
    seed: u64,
    group: &mut impl Communicator,
    rounds: &mut u64,
) -> Result<(), CollectiveError> {
    let (mut rng, start) = (Rng::with_seed(seed), Instant::now());
    loop {
        for _ in 0..ROUNDS {
            let excess = usize::from(orders.odd_round == Some(*rounds));
            round(group, &mut rng, excess)?;
            *rounds += 1;
        }
        let mut goes_on = [u8::from(start.elapsed() < orders.time)];
        group.broadcast(0, &mut goes_on)?;
        if goes_on == [0] {
            return Ok(());
        }
    }
}

/// The rank that failed, its cause, and the whole error.
fn failure(error: &CollectiveError) -> String {
    match error {
        CollectiveError::Mismatch { rank, .. } => format!("{rank} Mismatch {}", describe(error)),
        CollectiveError::EpochFailed { rank, cause, .. } => {
            let cause = format!("{cause:?}");
            let kind = cause.split('(').next().expect("a word");
            format!("{rank} {kind} {}", describe(error))
        }
        _ => format!("- - {}", describe(error)),
    }
}

fn describe(error: &dyn std::error::Error) -> String {
    let source = error.source().map_or_else(String::new, |source| format!(": {source}"));
    format!("{error}{source}")
}

/// Waits until threads and descriptors are those from before, and returns what there is then or in the end.
fn settled(before: Resources) -> Resources {
    let start = Instant::now();
    loop {
        let now = resources();
        let is_settled = now.threads <= before.threads && now.descriptors <= before.descriptors;
        if is_settled || start.elapsed() >= SETTLE {
            return now;
        }
        thread::sleep(Duration::from_millis(2));
    }
}
