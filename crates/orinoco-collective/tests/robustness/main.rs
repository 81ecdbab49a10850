//! Groups of real processes with faults: each rank that survives returns a correct result, or an error that names the rank and the
//! cause, within a bounded time, and leaves nothing behind.
//!
//! Quick by default. `ORINOCO_TEST_LONG=1` runs [`SEEDS_LONG`] seeds of each fault; `ORINOCO_FAULT_SEEDS` sets another number, and
//! `ORINOCO_SOAK_MINUTES` the length of the soak. A failure prints its seed, which decides all but the order of the processes;
//! `ORINOCO_SEED` runs that seed alone.

#![expect(clippy::disallowed_methods, reason = "the tests wait for real threads and processes")]
#![allow(clippy::print_stdout, reason = "ranks report to the test, and tests say what they measured")]

#[path = "../addresses/mod.rs"]
mod addresses;
mod cable;
mod faults;
mod peer;
mod process;
mod rounds;
mod scribble;
mod soak;
mod strangers;
mod transfers;
mod uniform;
mod worker;

use std::env;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Seeds of each fault in the long tests.
const SEEDS_LONG: u64 = 1000;
/// Time without a sign of life after which a rank counts as dead.
const SILENCE: Duration = Duration::from_millis(500);
/// Time that a rank may take longer where builds and other tests share its cores. On an idle machine it takes a few milliseconds.
const ALLOWANCE: Duration = Duration::from_millis(1500);
/// Transports, as the orders of a worker name them.
const TRANSPORTS: [&str; 4] = ["shm", "tcp", "tcp-plaintext", "pcie"];

/// Lets one of these tests run at a time, so that they do not slow one another.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_long() -> bool {
    env::var_os("ORINOCO_TEST_LONG").is_some()
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {value:?}")))
}

/// Seeds of a fault, of which `quick` are run outside the long tests.
fn seeds(quick: u64) -> Range<u64> {
    if let Some(seed) = number("ORINOCO_SEED") {
        return seed..seed + 1;
    }
    let count = number("ORINOCO_FAULT_SEEDS").unwrap_or(if is_long() { SEEDS_LONG } else { quick });
    0..count
}
