//! The pipeline's shells with shuttle's locks, and the shared memory of collective operations with its atomics: every order of their
//! threads that a seed decides.

use std::process::Command;

use anyhow::Result;

use crate::steps::{command, step};
use crate::workspace::root;

/// Module of the tests. Others of the crate start threads that shuttle does not know.
const MODULE: &str = "interleavings::";

/// Crates with such tests.
const PACKAGES: [&str; 2] = ["orinoco-pipeline", "orinoco-collective"];

/// Runs the tests of these names, which may be parts (`lane::`), or all of them.
pub(crate) fn run(tests: &[String]) -> Result<()> {
    let mut shuttle = shuttle();
    let all = tests.is_empty().then(|| MODULE.to_owned());
    shuttle.args(tests.iter().map(|test| format!("{MODULE}{test}")).chain(all));
    step(TITLE, shuttle).map(drop)
}

pub(crate) const TITLE: &str = "orders of threads";

/// The command that runs all of them, each with `times` as many orders as it has.
pub(crate) fn all(times: u32) -> Command {
    let mut shuttle = shuttle();
    shuttle.arg(MODULE).env("ORINOCO_SHUTTLE_TIMES", times.to_string());
    shuttle
}

/// The command without the names of tests. It builds in a folder of its own: other flags of the compiler are another
/// build of everything.
fn shuttle() -> Command {
    let mut command = command(&["cargo", "test", "--release", "--lib"]);
    command.args(PACKAGES.iter().flat_map(|package| ["--package", package])).arg("--");
    command.env("RUSTFLAGS", "--cfg shuttle").env("CARGO_TARGET_DIR", root().join("target/shuttle"));
    command
}
