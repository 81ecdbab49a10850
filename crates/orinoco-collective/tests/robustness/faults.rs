//! Faults of a rank: its process is killed or stopped, or it calls something else.

use std::process::Command;
use std::thread;
use std::time::Duration;

use orinoco_core::Rng;
use rustix::process::Signal;

use crate::process::{Process, Report, name};
use crate::soak::load;
use crate::worker::{Orders, now};
use crate::{ALLOWANCE, SILENCE, TRANSPORTS, seeds, turn};

/// Longest time until a fault, so that it comes in the middle of operations.
const FAULT_MICROS: u64 = 60_000;
/// Loads of a crowded machine, each with more threads than cores.
const CROWD: usize = 4;
/// Bound there: each look of a rank waits for the turns of all others.
const CROWDED: Duration = Duration::from_secs(4);
/// Growth of a survivor's memory over all of its groups, in KiB: allocators keep some. A leak of one group's staging buffers, over
/// 20 groups, is more.
const GROWTH_KIB: u64 = 16 << 10;

pub(crate) fn orders(transport: &str, rank: usize, ranks: usize) -> Orders {
    Orders {
        transport: transport.to_owned(),
        path: name(),
        addresses: Vec::new(),
        key: None,
        rank,
        ranks,
        seed: 0,
        groups: 1,
        deadline: Duration::from_secs(20),
        time: Duration::from_secs(3600),
        odd_round: None,
        is_uniform: false,
    }
}

/// A fault, as the survivors are to see it.
struct Fault {
    name: &'static str,
    causes: &'static [&'static str],
    /// Whether the kernel reports it to the other ranks, over this transport.
    is_reported: fn(&str) -> bool,
}

impl Fault {
    /// Time after which every survivor has failed. Where the kernel reports the fault, it takes no silence, but as long on a machine with
    /// other work: the rank must get a core to end, and the others to see that.
    fn bound(&self, transport: &str) -> Duration {
        if (self.is_reported)(transport) { ALLOWANCE } else { SILENCE + ALLOWANCE }
    }
}

/// A connection is closed, and a process is known to have ended. Memory of a PCIe device stays as it is.
const KILLED: Fault =
    Fault { name: "kill -9", causes: &["Silent", "Ended"], is_reported: |transport| transport != "pcie" };
const STOPPED: Fault = Fault { name: "SIGSTOP", causes: &["Silent"], is_reported: |_| false };

/// Runs a fault of one rank with many seeds. The others stay: their processes join one group after the other.
fn check(fault: &Fault, quick: u64, strike: impl Fn(&Process, u64) + Copy) {
    let _turn = turn();
    for (number, transport) in TRANSPORTS.into_iter().enumerate() {
        for ranks in [2, 3, 4] {
            // The quick tests have one size of group for each transport.
            if !crate::is_long() && ranks != [4, 3, 2, 3][number] {
                continue;
            }
            check_groups(fault, transport, ranks, seeds(quick), strike);
        }
    }
}

fn check_groups(
    fault: &Fault,
    transport: &str,
    ranks: usize,
    seeds: std::ops::Range<u64>,
    strike: impl Fn(&Process, u64),
) {
    // A third of the seeds for each size: all together are the number that was asked for.
    let share = if crate::is_long() { 3 } else { 1 };
    let seeds = seeds.start..seeds.start + (seeds.end - seeds.start).div_ceil(share);
    let (victim_rank, bound) = (ranks * 7 % 3 % ranks, fault.bound(transport));
    let groups = Orders { seed: seeds.start, groups: seeds.end - seeds.start, ..orders(transport, 0, ranks) };
    let survivors: Vec<Process> = (0..ranks)
        .filter(|rank| *rank != victim_rank)
        .map(|rank| Process::start(&Orders { rank, ..groups.clone() }))
        .collect();
    let (mut slowest, mut first_kib, mut growth_kib) = (Duration::ZERO, vec![None; ranks], 0);
    for seed in seeds.clone() {
        let victim = Process::start(&Orders { rank: victim_rank, seed, groups: 1, ..groups.clone() });
        survivors.iter().chain([&victim]).for_each(|process| process.joined(seed));
        thread::sleep(Duration::from_micros(Rng::with_seed(seed).u64(..FAULT_MICROS)));
        let struck = now();
        strike(&victim, seed);
        for survivor in &survivors {
            let waited = failed(survivor, seed, victim_rank, fault.causes, struck);
            assert!(waited <= bound, "seed {seed}: rank {} failed after {waited:?}", survivor.rank);
            slowest = slowest.max(waited);
        }
        for survivor in &survivors {
            let memory_kib = survivor.left(seed).memory_kib;
            let first = *first_kib[survivor.rank].get_or_insert(memory_kib);
            growth_kib = growth_kib.max(memory_kib.saturating_sub(first));
        }
        recover(fault, &victim, seed, victim_rank, bound);
    }
    assert!(growth_kib <= GROWTH_KIB, "{}: a survivor's memory grew by {growth_kib} KiB", fault.name);
    println!(
        "{} over {transport}, {ranks} ranks: {} seeds, slowest error after {} ms, memory grew by {growth_kib} KiB",
        fault.name,
        seeds.end - seeds.start,
        slowest.as_millis()
    );
}

/// Time from the fault to a rank's error, which names the failed rank and one of the causes.
fn failed(process: &Process, seed: u64, named: usize, causes: &[&str], struck: u64) -> Duration {
    let report = process.report(seed);
    let Report::Failed { at, rank, cause, text, .. } = &report else {
        panic!("seed {seed}: rank {}: {report:?}", process.rank)
    };
    assert!(
        *rank == named && causes.contains(&cause.as_str()),
        "seed {seed}: rank {} reports {cause} of rank {rank}, expected {causes:?} of rank {named}: {text}",
        process.rank
    );
    Duration::from_nanos(at.saturating_sub(struck))
}

/// A rank that was stopped goes on, and learns that the group has ended without it.
fn recover(fault: &Fault, victim: &Process, seed: u64, victim_rank: usize, bound: Duration) {
    if fault.name != STOPPED.name {
        return;
    }
    let woken = now();
    victim.signal(Signal::CONT);
    // It was told so by the others, or sees first that they have left.
    let report = victim.report(seed);
    let Report::Failed { at, rank, cause, text, .. } = report else { panic!("seed {seed}: {report:?}") };
    let is_told = rank == victim_rank && cause == "Silent";
    assert!(is_told, "seed {seed}: the rank that was stopped reports {cause} of rank {rank}: {text}");
    let waited = Duration::from_nanos(at.saturating_sub(woken));
    assert!(waited <= bound, "seed {seed}: the rank that was stopped failed after {waited:?}");
    victim.left(seed);
}

#[test]
fn survivors_of_a_killed_rank_name_it() {
    check(&KILLED, 3, |victim, _| victim.signal(Signal::KILL));
}

#[test]
fn survivors_of_a_stopped_rank_name_it_and_it_learns_of_it() {
    check(&STOPPED, 2, |victim, _| victim.signal(Signal::STOP));
}

/// Late is not dead: a rank that is stopped for much less than the silence fails nothing.
#[test]
fn a_rank_that_is_stopped_for_a_moment_is_waited_for() {
    let _turn = turn();
    for transport in TRANSPORTS {
        for seed in seeds(2) {
            let all = Orders { seed, time: Duration::from_millis(400), ..orders(transport, 0, 3) };
            let ranks = [0, 1, 2].map(|rank| Process::start(&Orders { rank, ..all.clone() }));
            ranks.iter().for_each(|rank| rank.joined(seed));
            let mut rng = Rng::with_seed(seed);
            thread::sleep(Duration::from_micros(rng.u64(..FAULT_MICROS)));
            let stopped = &ranks[rng.usize(..3)];
            stopped.signal(Signal::STOP);
            thread::sleep(SILENCE / 4);
            stopped.signal(Signal::CONT);
            for rank in &ranks {
                let report = rank.report(seed);
                assert!(
                    matches!(report, Report::Done { rounds: 1.. }),
                    "seed {seed}: {transport}: {report:?}"
                );
                rank.left(seed);
            }
        }
    }
}

/// One rank's vector is an element longer in a round that the seed decides.
#[test]
fn ranks_that_call_with_different_sizes_all_fail_for_that() {
    let _turn = turn();
    for transport in TRANSPORTS {
        for seed in seeds(4) {
            let ranks_number = 2 + seed as usize % 3;
            let odd = Rng::with_seed(seed).usize(..ranks_number);
            let all = Orders { seed, ..orders(transport, 0, ranks_number) };
            let start = |rank: usize| {
                let odd_round = (rank == odd).then(|| Rng::with_seed(seed + 1).u64(..60));
                Process::start(&Orders { rank, odd_round, ..all.clone() })
            };
            let ranks: Vec<Process> = (0..ranks_number).map(start).collect();
            ranks.iter().for_each(|rank| rank.joined(seed));
            let mut pairs = 0;
            for rank in &ranks {
                let report = rank.report(seed);
                let Report::Failed { cause, text, .. } = &report else {
                    panic!("seed {seed}: {transport}: rank {}: {report:?}", rank.rank)
                };
                assert_eq!(cause, "Mismatch", "seed {seed}: {transport}: rank {}: {text}", rank.rank);
                pairs += usize::from(text.contains("this rank called"));
                rank.left(seed);
            }
            assert!(pairs >= 1, "seed {seed}: {transport}: no rank names both calls");
        }
    }
}

#[test]
fn ranks_that_expect_another_number_of_ranks_are_refused() {
    let _turn = turn();
    for transport in TRANSPORTS {
        // Over PCIe each rank reads the other's hello, and none waits for the deadline.
        let is_pcie = transport == "pcie";
        let deadline = Duration::from_millis(if is_pcie { 20_000 } else { 700 });
        let all = Orders { deadline, ..orders(transport, 0, 2) };
        let first = Process::start(&all);
        let second = Process::start(&Orders { rank: 1, ranks: 3, ..all.clone() });
        let of_first = if is_pcie { "its group has 3 ranks" } else { "rank 1 did not join" };
        for (rank, words) in [(&first, of_first), (&second, "ranks")] {
            let report = rank.report(0);
            let Report::Refused { text } = &report else { panic!("{transport}: {report:?}") };
            assert!(text.contains(words), "{transport}: rank {}: {text}", rank.rank);
            rank.left(0);
        }
    }
}

/// Ranks that never come because their process is killed while it joins: the others say who is missing, at their deadline.
#[test]
fn a_rank_that_is_killed_while_it_joins_is_named() {
    let _turn = turn();
    // All at once: they wait for nearly all of the time.
    thread::scope(|scope| {
        for transport in TRANSPORTS {
            scope.spawn(move || seeds(2).for_each(|seed| kill_while_joining(transport, seed)));
        }
    });
}

fn kill_while_joining(transport: &str, seed: u64) {
    let all = Orders { seed, deadline: Duration::from_millis(1500), ..orders(transport, 0, 3) };
    let victim = Process::start(&Orders { rank: 1, ..all.clone() });
    let first = Process::start(&all);
    thread::sleep(Duration::from_micros(Rng::with_seed(seed).u64(..FAULT_MICROS)));
    let struck = now();
    drop(victim);
    let third = Process::start(&Orders { rank: 2, ..all.clone() });
    for rank in [&first, &third] {
        let mut report = rank.report(seed);
        if matches!(report, Report::Joined) {
            // In shared memory all have joined as soon as each has put down its name.
            report = rank.report(seed);
        }
        let (Report::Refused { text, .. } | Report::Failed { text, .. }) = &report else {
            panic!("seed {seed}: {transport}: {report:?}")
        };
        let names = text.contains("rank 1") || text.contains("ranks 1");
        assert!(names, "seed {seed}: {transport}: rank {}: {text}", rank.rank);
        rank.left(seed);
    }
    let waited = Duration::from_nanos(now() - struck);
    assert!(waited < all.deadline * 2 + ALLOWANCE, "seed {seed}: {transport}: {waited:?}");
}

/// The bound holds, too, if every core has work of others for each moment that a rank gives way.
#[test]
fn a_stopped_rank_is_named_on_a_crowded_machine() {
    let _turn = turn();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let _crowd: Vec<_> = (0..CROWD).flat_map(|_| load()).collect();
    // In shared memory, ranks give way if they are more than the cores.
    for (transport, ranks) in [("shm", (cores + 1).min(8)), ("tcp", 2)] {
        for seed in seeds(1) {
            let all = Orders { seed, ..orders(transport, 0, ranks) };
            let processes: Vec<Process> =
                (0..ranks).map(|rank| Process::start(&Orders { rank, ..all.clone() })).collect();
            processes.iter().for_each(|process| process.joined(seed));
            thread::sleep(Duration::from_micros(Rng::with_seed(seed).u64(..FAULT_MICROS)));
            let struck = now();
            processes[1].signal(Signal::STOP);
            for process in processes.iter().filter(|process| process.rank != 1) {
                let waited = failed(process, seed, 1, STOPPED.causes, struck);
                assert!(
                    waited <= CROWDED,
                    "seed {seed}: {transport}: rank {} failed after {waited:?}",
                    process.rank
                );
            }
        }
    }
}

/// Late is not dead: a rank whose core another program takes for itself gives no sign of life for longer than the silence. In shared
/// memory the others see why, and wait for it.
#[test]
fn a_rank_that_gets_no_core_is_waited_for() {
    let _turn = turn();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let may = Command::new("chrt").args(["-f", "1", "true"]).status().is_ok_and(|status| status.success());
    if cores < 2 || !may {
        println!(
            "skipped: a_rank_that_gets_no_core_is_waited_for: one core, or no right to real-time priorities"
        );
        return;
    }
    for seed in seeds(1) {
        let all = Orders { seed, time: Duration::from_secs(2), ..orders("shm", 0, 3) };
        let ranks = [0, 1, 2].map(|rank| {
            let mut pinned = Command::new("taskset");
            pinned.args(["-c", if rank == 1 { "0" } else { "1" }]).arg(std::env::current_exe().unwrap());
            Process::start_by(&Orders { rank, ..all.clone() }, pinned)
        });
        ranks.iter().for_each(|rank| rank.joined(seed));
        // The program that ends it is not on that core.
        let words = ["0.8", "taskset", "-c", "0", "chrt", "-f", "1", "sh", "-c", "while :; do :; done"];
        let ended = Command::new("timeout").args(words).status().unwrap();
        assert_eq!(ended.code(), Some(124), "it ran until it was ended");
        for rank in &ranks {
            let report = rank.report(seed);
            assert!(matches!(report, Report::Done { rounds: 1.. }), "seed {seed}: {report:?}");
        }
    }
}
