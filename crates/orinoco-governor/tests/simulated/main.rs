//! The governor on simulated boards: a thermal model with two nodes, power and latency by mode, clock and load. Ambient
//! temperature and load change by steps, sensors have noise and gaps, and power modes take effect late.
//!
//! Limits must hold always, the p99 latency where that is feasible, and the power mode changes at most once in 10 s.
//! `ORINOCO_SEEDS` sets how many boards there are, `ORINOCO_SEED` runs one.

#![allow(clippy::print_stdout, reason = "the test says what it simulated")]

mod board;
mod run;
mod scenario;

use std::sync::atomic::{AtomicU64, Ordering};

use orinoco_sim::check_seeds;
use run::Checked;

#[test]
fn limits_hold_and_latencies_where_they_can() {
    let checked = Checked::default();
    let boards = check_seeds(1000, |simulator| run::check(simulator, &checked));
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let missed = count(&checked.missed_seconds);
    let (seconds, latency_seconds) = (count(&checked.seconds), count(&checked.latency_seconds));
    println!(
        "{boards} boards, {} h simulated, {} h with a latency to hold, missed for {missed} s of them, {} steps",
        seconds / 3600,
        latency_seconds / 3600,
        count(&checked.steps)
    );
    assert!(
        boards < 100 || latency_seconds * 10 > seconds,
        "a latency had to hold in too little of the time"
    );
    assert!(missed * 1000 <= latency_seconds, "a latency was missed for {missed} s of {latency_seconds} s");
}
