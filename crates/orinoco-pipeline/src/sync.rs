//! Locks, condition variables and time, on which the shells stand.
//!
//! They are the standard library's. In a build with `--cfg shuttle` (`cargo xtask shuttle`) they are shuttle's, which runs
//! the threads of a test one at a time in an order that a seed decides, and time is virtual.

#[cfg(shuttle)]
mod model;

#[cfg(shuttle)]
pub(crate) use self::model::{Condvar, Instant, join, run, spawn};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};

#[cfg(not(shuttle))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(shuttle))]
pub(crate) use std::time::Instant;
