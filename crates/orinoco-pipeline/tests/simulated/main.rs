//! Whole boards in virtual time, with chance and faults: streams over lanes, sources that stall, burst, die and return,
//! engines that are slow or fail, sinks that block or fail, and streams that join, leave and stop at any moment.
//!
//! Sources, lanes and sinks are the cores that their threads run. After every step the invariants of `board::Board::check`
//! hold. `ORINOCO_SEEDS` sets how many boards there are, `ORINOCO_SEED` runs one.

#![allow(clippy::print_stdout, reason = "tests say what they ran")]

mod board;
mod camera;
mod director;

use std::sync::Mutex;

use orinoco_sim::{Simulator, check_seeds};
use orinoco_telemetry::DropCause;

use board::{Board, ClientCounts};

/// Boards of one test run.
const SEEDS: u64 = 1000;

/// Boards from which on every kind of thing must have happened.
const SEEDS_WITH_ALL: u64 = 200;

/// Counts of what happened on all boards.
#[derive(Debug, Default)]
struct Totals {
    steps: u64,
    frames_out: u64,
    dropped: [u64; DropCause::ALL.len()],
    /// Sources that were lost and came back.
    recovered: u64,
    /// Lanes that ended with a broken engine.
    broken: u64,
    /// Plans that were replaced.
    exchanged: u64,
    /// Suspended steps that were answered, answered too late, given up, and then executed here or skipped.
    answered: u64,
    answered_late: u64,
    given_up: u64,
    fallen_back: u64,
    /// Steps that were to be executed here, whose plan was replaced meanwhile, and failed.
    replaced_failed: u64,
    requests: ClientCounts,
}

#[test]
fn boards_keep_their_promises_whatever_happens() {
    let totals = Mutex::new(Totals::default());
    let seeds = check_seeds(SEEDS, |simulator| {
        let mut board = Board::new(simulator);
        board.run();
        let (changes, faults) = board.director.counts();
        assert!(changes > 0 && faults > 0, "each board has a change and a fault");
        let mut totals = totals.lock().expect("not poisoned");
        board.add_to(&mut totals);
    });
    let totals = totals.into_inner().expect("not poisoned");
    println!("{seeds} boards of {} s each: {totals:?}", director::RUN.as_secs());
    for cause in DropCause::ALL {
        let dropped = totals.dropped[cause as usize];
        assert!(dropped > 0 || seeds < SEEDS_WITH_ALL, "no frame was dropped as {}", cause.name());
    }
    let ClientCounts { parts, answered, expired, cancelled, overloaded, unanswered } = totals.requests;
    let counts = [totals.recovered, totals.broken, totals.exchanged, totals.answered, totals.answered_late];
    let requests =
        [totals.given_up, totals.fallen_back, parts, answered, expired, cancelled, overloaded, unanswered];
    let is_varied = counts.iter().chain(&requests).all(|count| *count > 0);
    assert!(is_varied || seeds < SEEDS_WITH_ALL, "everything happens on some board: {totals:?}");
}

#[test]
fn what_is_refused_or_was_so_before_is_no_change() {
    let mut simulator = Simulator::new(1);
    let mut board = Board::new(&mut simulator);
    assert!(board.stop(0) && !board.stop(0));
    assert!(board.join(0) && board.close_lane(0));
    assert!(!board.join(0) && !board.close_lane(0));
}

#[test]
fn a_board_is_repeated_from_its_seed() {
    let run = |seed| {
        let mut simulator = Simulator::new(seed);
        Board::new(&mut simulator).run();
        simulator.fingerprint()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
