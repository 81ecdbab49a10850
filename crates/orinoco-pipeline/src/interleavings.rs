//! The shells under shuttle: their threads run one at a time, in an order that a seed decides, and time is virtual
//! (`cargo xtask shuttle`). A thread that waits without end is a deadlock to shuttle, and fails the test.
//!
//! A failure prints its seed; `ORINOCO_SEED=<seed> cargo xtask shuttle <test>` runs the same orders again.

mod channel;
mod frames;
mod lane;
mod late;
mod mux;
mod sink;
mod source;
mod waits;

use crate::sync;

/// Runs a test in many orders of its threads.
fn check(test: impl Fn() + Send + Sync + 'static) {
    orinoco_sim::check_orders(move || sync::run(&test));
}
