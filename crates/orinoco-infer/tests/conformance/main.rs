//! The suite that every engine passes. A new engine joins by being in `orinoco_infer::engines()`; what one cannot do
//! is a line of `outputs::IGNORED`, with the reason.
#![expect(clippy::print_stdout, reason = "the measured differences, shown with --nocapture")]

mod faults;
mod outputs;
mod support;
