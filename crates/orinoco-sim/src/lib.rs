//! Seeded simulation for tests: virtual time, random choices, and the order in which tasks take their steps.
//!
//! A scenario runs cores without I/O (`next(now)`, `finished(result, now)`), each as a task of a [`Simulator`]. One step is
//! the work of a thread between two waits. Equal seeds give equal runs. The crate does not know the cores that it runs:
//! faults and invariants belong to the scenarios, which live in the tests of the crates that they test.
//!
//! Read first: [`Simulator`], [`Task`] and [`check_seeds`].

#[cfg(shuttle)]
mod orders;
mod seeds;
mod simulator;
mod trace;

#[cfg(shuttle)]
pub use orders::check_orders;
pub use seeds::check_seeds;
pub use simulator::{Simulator, Task};
