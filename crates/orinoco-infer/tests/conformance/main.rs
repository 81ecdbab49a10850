//! The suite that every engine passes. A new engine joins by being in `orinoco_infer::engines()`; what one cannot do
//! is a line of its `exceptions`, with the reason. The engine of `toy.rs` joins by the public traits alone.
#![expect(clippy::print_stdout, reason = "the measured differences, shown with --nocapture")]

mod faults;
mod outputs;
mod requests;
mod support;
mod toy;
