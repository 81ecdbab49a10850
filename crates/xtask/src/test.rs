//! Checks of CI, cheapest first.

use anyhow::Result;

use crate::format::{Odd, format};
use crate::steps::{Outcome, command, has_cargo, report, skip, step, step_with};
use crate::{arrows, exceptions, no_std, seams, shuttle, words};

/// Time in minutes for which each of the three simulations runs in the long tests: an hour together.
const SIMULATION_MINUTES: &str = "20";
/// Orders of threads in the long tests, to those in the others: some minutes, too.
const SHUTTLE_TIMES_LONG: u32 = 20;

/// Builds in the profile `dev`, which compiles sooner than `release`. What is installed is optimised more; [`test_long`] and the tests on
/// boards run that.
pub(crate) fn test() -> Result<()> {
    let mut outcomes = Vec::new();
    println!("== arrows, unsafe code and retired words");
    arrows::check()?;
    exceptions::check()?;
    words::check()?;
    outcomes.push(Outcome::Passed);
    outcomes.push(match has_cargo("fmt") {
        true => {
            println!("\n== format");
            format(Odd::Refused)?;
            Outcome::Passed
        }
        false => skip("format", "rustfmt is not installed"),
    });
    outcomes.push(deny()?);
    // Targets as in the step `tests` below: another selection would compile crates again. Clippy checks the examples and benchmarks.
    outcomes.push(step("build", command(&["cargo", "build", "--workspace", "--bins", "--tests"]))?);
    outcomes.push(match has_cargo("clippy") {
        true => step(
            "clippy",
            command(&["cargo", "clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
        )?,
        false => step(
            "check, as clippy is not installed",
            command(&["cargo", "check", "--workspace", "--all-targets"]),
        )?,
    });
    // Tests often wait, and cargo lets others build while they run: `shuttle` first, which builds in a folder of its own.
    let cross = command(&["cross/build.sh", "--profile", "dev"]);
    let others = vec![(shuttle::TITLE, shuttle::all(1)), ("cross-compilation", cross)];
    let targets = ["cargo", "test", "--workspace", "--bins", "--tests", "--no-fail-fast"];
    let tests = step_with("tests", command(&targets), others)?;
    let is_cross_built = tests.last() == Some(&Outcome::Passed);
    outcomes.extend(tests);
    let in_docs = ["cargo", "test", "--workspace", "--doc", "--quiet", "--no-fail-fast"];
    outcomes.push(step("examples in documentation", command(&in_docs))?);
    outcomes.push(no_std::run()?);
    let on_arm = ["cargo", "test", "--workspace", "--test", "aarch64", "--", "--ignored"];
    outcomes.push(match is_cross_built {
        true => step("aarch64 under qemu-user", command(&on_arm))?,
        false => skip("aarch64 under qemu-user", "there are no aarch64 binaries"),
    });
    let on_board = ["cargo", "test", "--workspace", "--test", "on_board", "--"];
    let mut smoke = command(&on_board);
    smoke.args(["--ignored", "--exact", "smoke", "--nocapture"]);
    outcomes.push(step("emulated board", smoke)?);
    report(&outcomes);
    Ok(())
}

pub(crate) fn test_long() -> Result<()> {
    let mut long = command(&["cargo", "test", "--release", "--workspace", "--no-fail-fast"]);
    long.env("ORINOCO_TEST_LONG", "1");
    let mut outcomes = vec![step("long tests", long)?];
    outcomes.push(simulate("simulated pipelines", &["--test", "simulated"], &[])?);
    outcomes.push(simulate("simulated supervisors", &["--lib"], &["simulated"])?);
    outcomes.push(step(shuttle::TITLE, shuttle::all(SHUTTLE_TIMES_LONG))?);
    outcomes.push(seams::run(&[])?);
    report(&outcomes);
    Ok(())
}

/// Runs simulations one by one, each for [`SIMULATION_MINUTES`], and shows how many boards each has run.
fn simulate(name: &str, targets: &[&str], filter: &[&str]) -> Result<Outcome> {
    let mut simulate = command(&["cargo", "test", "--release", "--workspace"]);
    simulate.args(targets).args(["--", "--nocapture", "--test-threads", "1"]).args(filter);
    simulate.env("ORINOCO_SEED_MINUTES", SIMULATION_MINUTES);
    step(name, simulate)
}

fn deny() -> Result<Outcome> {
    if !has_cargo("deny") {
        return Ok(skip("dependencies", "cargo-deny is not installed"));
    }
    // It reads the manifests of every platform's crates, which cargo fetches where no build has.
    step("dependencies", command(&["cargo", "deny", "check", "bans", "licenses", "sources"]))
}
