//! Supervisor of a carrier board: it samples the rails, drives the fan, shows a heartbeat and raises an alert.
//!
//! `supervisor.rs` is the program, for any microcontroller with an `embedded-hal` implementation. On a development host this
//! example runs it against simulated chips in virtual time. For a target without an operating system it is a firmware
//! for Cortex-M whose pins and bus are stand-ins: replace those in `firmware.rs` by the ones of your board's crate.
//!
//! ```text
//! cargo run --release --package orinoco-sensors --example carrier_supervisor
//! cargo xtask no-std
//! ```
#![cfg_attr(target_os = "none", no_std, no_main)]
#![allow(clippy::print_stdout, reason = "it reports what the supervisor does")]

#[cfg(target_os = "none")]
mod firmware;
#[cfg(not(target_os = "none"))]
mod host;
mod supervisor;

#[cfg(not(target_os = "none"))]
fn main() {
    host::run(&mut |line| println!("{line}"));
}
