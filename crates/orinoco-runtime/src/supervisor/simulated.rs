//! Simulates whole runs in virtual time, with random choices and faults: boards that are changed one after another and in
//! bursts; lanes, sources and sinks that fail or hang; refused changes; and stops at any moment.
//!
//! The supervisor, the comparison of boards, the choice of lanes, the rules for applying a change and the books of lanes
//! are those of the product; threads and files are simulated. After every step the invariants of `check.rs` hold.
//! `ORINOCO_SEEDS` sets the number of runs, and `ORINOCO_SEED` replays one of them.

#![allow(clippy::print_stdout, reason = "tests say what they ran")]

mod boards;
mod check;
mod director;
mod prepare;
mod run;
mod shell;
mod state;
mod threads;

use std::sync::Mutex;
use std::time::Duration;

use orinoco_sim::{Simulator, check_seeds};

use super::state::Source;
use boards::Genome;
use director::Director;
use run::{Run, Weather};
use state::State;
use threads::up_to;

/// Number of runs with faults in one test.
const SEEDS: u64 = 1000;
/// Number of runs from which on each kind of event must have happened.
const SEEDS_WITH_ALL: u64 = 300;
/// Number of pairs of boards in one test.
const PAIRS: u64 = 500;
/// Maximum pause between two of many changes.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Maximum number of streams at one time in a run without faults: those of its board, and those of a few earlier boards
/// that are leaving.
const STREAMS_MAX: usize = 24;
/// Time in which a run without faults has done everything that was requested, and all files have ended.
const SETTLE: Duration = Duration::from_secs(120);

/// Numbers of events in all runs.
#[derive(Debug, Default)]
struct Totals {
    steps: u64,
    reloads: u64,
    applied: u64,
    refused: u64,
    missed: u64,
    replaced: u64,
    restarts: u64,
    cancelled: u64,
    lanes_failed: u64,
    waited: u64,
    hung: u64,
    unread: u64,
}

#[test]
fn runs_keep_their_promises_whatever_happens() {
    let totals = Mutex::new(Totals::default());
    let seeds = check_seeds(SEEDS, |simulator| {
        let genome = Genome::any(simulator.rng());
        let end = Duration::from_secs(simulator.rng().u64(1..600));
        let director = Director::busy(genome.clone(), end);
        let mut run = Run::start(simulator, Weather::Rough, genome, director);
        run.run();
        let mut totals = totals.lock().expect("not poisoned");
        totals.steps += run.simulator.steps();
        totals.reloads += run.director.reloads;
        let seen = &run.seen;
        totals.applied += seen.applied;
        totals.refused += seen.refused;
        totals.missed += seen.missed;
        totals.replaced += seen.replaced;
        totals.restarts += seen.restarts.values().map(|lane| lane.len() as u64).sum::<u64>();
        totals.cancelled += seen.cancelled;
        totals.lanes_failed += seen.lanes_failed;
        totals.waited += seen.waited;
        let (faults, by) = seen.end.as_ref().expect("it is over");
        totals.hung += faults.iter().filter(|fault| fault.subject.starts_with("thread")).count() as u64;
        totals.unread += u64::from(by.unread);
    });
    let totals = totals.into_inner().expect("not poisoned");
    println!("{seeds} runs: {totals:?}");
    let Totals { applied, refused, missed, replaced, restarts, cancelled, .. } = totals;
    let Totals { lanes_failed, waited, hung, unread, .. } = totals;
    let all = [applied, refused, missed, replaced, restarts, cancelled, lanes_failed, waited, hung, unread];
    assert!(seeds < SEEDS_WITH_ALL || all.iter().all(|count| *count > 0), "each has happened: {totals:?}");
}

#[test]
fn a_run_is_repeated_from_its_seed() {
    let run = |seed| {
        let mut simulator = Simulator::new(seed);
        let genome = Genome::any(simulator.rng());
        let director = Director::busy(genome.clone(), Duration::from_secs(100));
        let mut run = Run::start(&mut simulator, Weather::Rough, genome, director);
        run.run();
        run.simulator.fingerprint()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

/// Starts a board in a run without faults.
fn start(simulator: &mut Simulator, genome: Genome) -> Run<'_> {
    let director = Director::idle(genome.clone());
    Run::start(simulator, Weather::Calm, genome, director)
}

/// Starts a board, changes it to each of the others, and returns its final state and the number of refused changes.
fn state_after(simulator: &mut Simulator, boards: &[&Genome]) -> (State, u64) {
    let (first, others) = boards.split_first().expect("there is a board to start");
    let mut run = start(simulator, (*first).clone());
    for other in others {
        // The changes come in a burst, or one after the other.
        let pause = [Duration::ZERO, Duration::from_secs(1), SETTLE][run.simulator.rng().usize(..3)];
        let pause = up_to(run.simulator.rng(), pause);
        run.run_for(pause);
        run.reload(other.board());
    }
    run.run_for(SETTLE);
    run.run_until(Run::is_settled);
    let state = run.state();
    let refused = run.seen.refused;
    run.stop();
    run.run();
    (state, refused)
}

#[test]
fn a_start_is_a_change() {
    let counts = Mutex::new((0, 0));
    let pairs = check_seeds(PAIRS, |simulator| {
        let a = Genome::any(simulator.rng());
        let b = a.changed(simulator.rng());
        let seed = simulator.rng().u64(..);
        let alone = |genome: &Genome| state_after(&mut Simulator::new(seed), &[genome]).0;
        let (started_a, started_b) = (alone(&a), alone(&b));
        // If the lanes of A have no memory for B, the change is refused, and A continues.
        let check = |simulator: &mut Simulator, boards: &[&Genome], wanted: &State| {
            let (state, refused) = state_after(simulator, boards);
            assert!(refused == 0 || a.has_budget(), "{refused} changes are refused");
            assert_eq!(&state, if refused == 0 { wanted } else { &started_a }, "{boards:#?}");
            refused
        };
        check(&mut Simulator::new(seed), &[&a, &b, &a], &started_a);
        assert_eq!(
            check(&mut Simulator::new(seed), &[&a, &a], &started_a),
            0,
            "a board fits in its own place"
        );
        let refused = check(simulator, &[&a, &b], &started_b);
        let mut counts = counts.lock().expect("not poisoned");
        *counts = (counts.0 + 1, counts.1 + refused);
    });
    let (done, refused) = counts.into_inner().expect("not poisoned");
    println!("{done} pairs of boards, {refused} refused for want of memory");
    assert_eq!(done, pairs);
    assert!(
        done < SEEDS_WITH_ALL || refused < done / 4,
        "most boards can become the other one: {refused} of {done}"
    );
}

/// Time at which the next board is requested: when the change before was answered, or soon after that was requested.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Answered,
    Soon,
}

/// Changes a board many times, and compares it with the last board started alone.
fn change_often(changes: usize, pace: Pace) {
    // One seed is enough for so many changes.
    let mut simulator = Simulator::new(0);
    let mut genome = Genome::any(simulator.rng());
    while genome.has_budget() {
        genome = Genome::any(simulator.rng());
    }
    let mut run = start(&mut simulator, genome);
    for _ in 0..changes {
        run.reload_changed();
        if pace == Pace::Answered {
            run.run_until(|run| run.asked.is_empty());
        }
        let pause_max = if pace == Pace::Answered { PAUSE_MAX } else { PAUSE_MAX / 100 };
        let pause = up_to(run.simulator.rng(), pause_max);
        run.run_for(pause);
    }
    run.run_for(SETTLE);
    run.run_until(Run::is_settled);
    let (state, wanted) = (run.state(), run.director.wanted.clone());
    assert_eq!((run.seen.answered, run.seen.refused), (changes as u64, 0));
    let (streams, threads) = (run.seen.streams_max, run.threads_max());
    println!(
        "{changes} changes in {:.0} s: {streams} streams, {threads} threads",
        run.simulator.now().0 as f64 / 1e9
    );
    assert!(
        streams <= STREAMS_MAX && threads <= 3 * STREAMS_MAX,
        "{streams} streams, {threads} threads at one time"
    );
    run.stop();
    run.run();
    assert_eq!(state, state_after(&mut Simulator::new(0), &[&wanted]).0);
}

#[test]
fn ten_thousand_changes_one_after_another_lose_nothing() {
    change_often(10_000, Pace::Answered);
}

#[test]
fn a_thousand_changes_in_quick_succession_lose_nothing() {
    change_often(1000, Pace::Soon);
}
