//! Conformance suite of the engines. A new engine is included by being in `orinoco_infer::engines()`. A model that an
//! engine cannot run is a line of `support::IGNORED`, with the reason. The engine of `toy.rs` is included by the public
//! traits alone.
#![expect(clippy::print_stdout, reason = "the measured differences, shown with --nocapture")]

mod faults;
mod outputs;
mod support;
mod toy;
