//! The pipeline's shells with shuttle's locks: every order of their threads that a seed decides.

use std::process::Command;

use anyhow::Result;

use crate::steps::{Outcome, command, step};
use crate::workspace::root;

/// Where the tests are. Others of the crate start threads that shuttle does not know.
const MODULE: &str = "interleavings::";

/// Runs the tests of these names, which may be parts (`lane::`), or all of them.
pub(crate) fn run(tests: &[String]) -> Result<()> {
    let mut shuttle = shuttle();
    let all = tests.is_empty().then(|| MODULE.to_owned());
    shuttle.args(tests.iter().map(|test| format!("{MODULE}{test}")).chain(all));
    step("orders of threads", shuttle).map(drop)
}

/// Runs all of them, each with `times` as many orders as it has.
pub(crate) fn check(times: u32) -> Result<Outcome> {
    let mut shuttle = shuttle();
    shuttle.arg(MODULE).env("ORINOCO_SHUTTLE_TIMES", times.to_string());
    step("orders of threads", shuttle)
}

/// The command without the names of tests. It builds in a folder of its own: other flags of the compiler are another
/// build of everything.
fn shuttle() -> Command {
    let words = ["cargo", "test", "--release", "--package", "orinoco-pipeline", "--lib", "--"];
    let mut command = command(&words);
    command.env("RUSTFLAGS", "--cfg shuttle").env("CARGO_TARGET_DIR", root().join("target/shuttle"));
    command
}
