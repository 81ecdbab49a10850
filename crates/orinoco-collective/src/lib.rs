//! Collective operations (all-reduce, broadcast, all-gather and the like) for small groups of boards.
//!
//! What stands today is the lowest layer: **schedules**. A schedule is the list of messages and reductions that one rank
//! executes in one collective operation. It is a pure function of the operation, the algorithm, the ranks and the rank, so
//! it can be proved and priced without a network: `tests/schedules.rs` proves every algorithm for every number of ranks up to
//! 64, and [`cost`] prices it.
//!
//! The crate opens no socket outside its transports, reads no clock in its engine, and neither prints nor exits.
//!
//! Read first: [`Collective`] (what is asked for), [`Algorithm`] (how), and [`schedule`], which returns a [`Schedule`].

mod algorithm;
mod collective;
pub mod cost;
mod partition;
mod schedule;
mod topology;

pub use algorithm::Algorithm;
pub use collective::Collective;
pub use schedule::{Buffer, Local, Region, Round, Schedule, Transfer, Unsupported, schedule};
pub use topology::Topology;
