//! Uniform groups of real processes: those that survive have returned the same number of results.

use std::thread;
use std::time::Duration;

use orinoco_core::Rng;
use rustix::process::Signal;

use crate::faults::orders;
use crate::process::{Process, Report};
use crate::worker::{Orders, now};
use crate::{ALLOWANCE, SILENCE, seeds, turn};

/// Longest time until the fault: some dozens of sums.
const FAULT_MICROS: u64 = 30_000;

/// Results that a survivor has returned. It names the rank that failed, in time.
fn rounds(process: &Process, seed: u64, victim: usize, struck: u64) -> u64 {
    let report = process.report(seed);
    let Report::Failed { at, rounds, rank, text, .. } = report else { panic!("seed {seed}: {report:?}") };
    assert_eq!(rank, victim, "seed {seed}: rank {}: {text}", process.rank);
    let waited = Duration::from_nanos(at.saturating_sub(struck));
    assert!(
        waited <= SILENCE + ALLOWANCE,
        "seed {seed}: rank {} failed after {waited:?}: {text}",
        process.rank
    );
    rounds
}

#[test]
fn survivors_of_a_uniform_group_agree() {
    let _turn = turn();
    for transport in ["tcp", "tcp-plaintext", "pcie"] {
        for seed in seeds(12) {
            let victim = seed as usize % 3;
            let all = Orders { seed, is_uniform: true, ..orders(transport, 0, 3) };
            let mut processes: Vec<Process> =
                (0..3).map(|rank| Process::start(&Orders { rank, ..all.clone() })).collect();
            processes.iter().for_each(|process| process.joined(seed));
            thread::sleep(Duration::from_micros(Rng::with_seed(seed).u64(..FAULT_MICROS)));
            let struck = now();
            let signal = if seed % 4 == 3 { Signal::STOP } else { Signal::KILL };
            processes[victim].signal(signal);
            let killed = processes.remove(victim);
            let returned: Vec<u64> =
                processes.iter().map(|process| rounds(process, seed, victim, struck)).collect();
            assert!(returned[0] == returned[1], "seed {seed}: {transport}: {returned:?} sums");
            if signal == Signal::STOP {
                killed.signal(Signal::CONT);
                // It is no part of the majority any more, and has at most what the others have.
                let report = killed.report(seed);
                let Report::Failed { rounds, text, .. } = report else { panic!("seed {seed}: {report:?}") };
                assert!(text.contains("isolated"), "seed {seed}: {transport}: {text}");
                assert!(rounds <= returned[0], "seed {seed}: {transport}: {rounds} and {returned:?} sums");
            }
        }
    }
}
