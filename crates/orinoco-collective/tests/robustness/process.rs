//! Processes of ranks, their reports, and what the system says of them.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::worker::{MARK, ORDERS, Orders};

/// Longest wait for a report. Nothing that is right takes as long: this is a hang.
const HANG: Duration = Duration::from_secs(60);

/// Resources that a process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resources {
    pub(crate) threads: u64,
    pub(crate) descriptors: u64,
    /// Resident memory of its own, in KiB.
    pub(crate) memory_kib: u64,
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.threads, self.descriptors, self.memory_kib)
    }
}

/// Resources that this process holds.
pub(crate) fn resources() -> Resources {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of the status");
        line.split_whitespace().next().expect("a number").parse().expect("a number")
    };
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("Linux has it").count() as u64;
    Resources { threads: number("Threads:"), descriptors, memory_kib: number("RssAnon:") }
}

/// Report of a rank about a group.
#[derive(Debug, Clone)]
pub(crate) enum Report {
    Joined,
    Refused { text: String },
    Failed { at: u64, rounds: u64, rank: usize, cause: String, text: String },
    Done { rounds: u64 },
    Left { before: Resources, after: Resources },
}

impl Report {
    /// Reads a line. The seed comes with it.
    fn decode(line: &str) -> Option<(u64, Self)> {
        let mut words = line.splitn(4, ' ');
        let kind = words.next()?;
        let (seed, at) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let rest = words.next().unwrap_or("");
        let report = match kind {
            "joined" => Self::Joined,
            "refused" => Self::Refused { text: rest.to_owned() },
            "done" => Self::Done { rounds: rest.parse().ok()? },
            "failed" => {
                let mut words = rest.splitn(4, ' ');
                let rounds = words.next()?.parse().ok()?;
                let rank = words.next()?.parse().unwrap_or(usize::MAX);
                let (cause, text) = (words.next()?.to_owned(), words.next()?.to_owned());
                Self::Failed { at, rounds, rank, cause, text }
            }
            "left" => {
                let numbers: Vec<u64> = rest.split(' ').filter_map(|word| word.parse().ok()).collect();
                let [threads, descriptors, memory_kib, threads_after, descriptors_after, memory_after] =
                    numbers.try_into().ok()?;
                let before = Resources { threads, descriptors, memory_kib };
                let (threads, descriptors, memory_kib) = (threads_after, descriptors_after, memory_after);
                Self::Left { before, after: Resources { threads, descriptors, memory_kib } }
            }
            _ => return None,
        };
        Some((seed, report))
    }
}

/// A rank's process. It is killed when it is dropped.
pub(crate) struct Process {
    pub(crate) rank: usize,
    child: Child,
    reports: Receiver<(u64, Report)>,
}

impl Process {
    pub(crate) fn start(orders: &Orders) -> Self {
        Self::start_by(orders, Command::new(std::env::current_exe().expect("this program")))
    }

    /// Starts a rank by a command to which the orders are added.
    pub(crate) fn start_by(orders: &Orders, mut command: Command) -> Self {
        command.args(["--exact", "worker::rank", "--nocapture"]).env(ORDERS, orders.encode());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, reports) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The framework writes the name of a test in front of its first line.
                let report = line.split_once(MARK).and_then(|(_, report)| Report::decode(report));
                // The test may have ended.
                report.into_iter().for_each(|report| _ = sender.send(report));
            }
        });
        Self { rank: orders.rank, child, reports }
    }

    /// The next report about the group of a seed.
    pub(crate) fn report(&self, seed: u64) -> Report {
        self.report_within(seed, HANG)
    }

    pub(crate) fn report_within(&self, seed: u64, time: Duration) -> Report {
        match self.reports.recv_timeout(time) {
            Ok((of, report)) if of == seed => report,
            Ok((of, report)) => panic!("seed {seed}: rank {} reports {report:?} of seed {of}", self.rank),
            Err(why) => panic!("seed {seed}: rank {} reports nothing (panic or hang): {why}", self.rank),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// Its lowest descriptor of a socket.
    pub(crate) fn first_socket(&self) -> u64 {
        let all = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("it is there").flatten();
        let is_socket = |entry: &std::fs::DirEntry| {
            std::fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().starts_with("socket:"))
        };
        let numbers = all.filter(is_socket).filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.min().expect("a socket")
    }

    /// Time for which its threads had a core so far.
    pub(crate) fn core_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it is there");
        let after_name = stat.rsplit_once(')').expect("a name").1;
        // Of the process, in user mode and in the kernel.
        let ticks =
            after_name.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().expect("ticks"));
        Duration::from_millis(1000 * ticks.sum::<u64>() / rustix::param::clock_ticks_per_second())
    }

    pub(crate) fn joined(&self, seed: u64) {
        let report = self.report(seed);
        assert!(matches!(report, Report::Joined), "seed {seed}: rank {}: {report:?}", self.rank);
    }

    /// The report that the group was left. What it held is given back.
    pub(crate) fn left(&self, seed: u64) -> Resources {
        let Report::Left { before, after } = self.report(seed) else {
            panic!("seed {seed}: it did not leave")
        };
        assert!(
            after.threads <= before.threads && after.descriptors <= before.descriptors,
            "seed {seed}: rank {} had {before:?} before it joined, and {after:?} after it left",
            self.rank
        );
        after
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file name that no other group has.
pub(crate) fn name() -> PathBuf {
    static GROUPS: AtomicU32 = AtomicU32::new(0);
    let number = GROUPS.fetch_add(1, Ordering::Relaxed);
    PathBuf::from(format!("/dev/shm/orinoco-robust-{}-{number}", std::process::id()))
}
