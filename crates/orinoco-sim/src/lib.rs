//! Simulation with a seed, for tests: virtual time, chance, and an order in which tasks take their steps.
//!
//! A scenario runs cores without I/O (`next(now)`, `finished(result, now)`), each as a task of a [`Simulator`]: a thread's
//! part of the work between two waits is one step. Equal seeds give equal runs. It knows nothing of what it runs: faults and
//! invariants belong to the scenarios, which live in the tests of the crates that they test.
//!
//! Read first: [`Simulator`], [`Task`] and [`check_seeds`].

mod seeds;
mod simulator;
mod trace;

pub use seeds::check_seeds;
pub use simulator::{Simulator, Task};
