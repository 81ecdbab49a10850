//! Checks of CI, cheapest first.

use std::process::Command;

use anyhow::Result;

use crate::format::{Odd, format};
use crate::steps::{Outcome, command, has_cargo, report, skip, step, step_with};
use crate::{arrows, exceptions, no_std, seams, shuttle, words};

/// Time in minutes for which each of the three simulations runs in the long tests: an hour together. Other simulations, such as those
/// of the governor and of the collective layer, run their own number of seeds in the step `long tests`.
const SIMULATION_MINUTES: &str = "20";
/// Test of simulated boards of the pipeline, by which it is found among those of all crates.
const PIPELINES: &str = "boards_keep_their_promises_whatever_happens";
/// Tests of simulated supervisors: two run for a time, the others make a fixed number of changes.
const SUPERVISORS: &str = "supervisor::simulated::";
/// Faults of the collective layer's processes in a step of their own: 40 seeds of each take 9 minutes (docs/measurements.md), so these
/// take 4 hours, and then a soak of 2 hours.
const FAULTS: Faults = Faults { seeds: "1000", soak_minutes: "120" };
/// Those in the step `long tests`, which has all the other tests.
const FAULTS_FEW: Faults = Faults { seeds: "12", soak_minutes: "1" };
/// Orders of threads in the long tests, to those in the others: some minutes, too.
const SHUTTLE_TIMES_LONG: u32 = 20;

/// Features of the aarch64 programs: all but `tract`, which takes minutes to compile, and which `make test-boards` builds and runs.
const CROSS_FEATURES: &str =
    "orinoco/cuda,orinoco/gstreamer,orinoco/nvml,orinoco/v4l2,orinocod/cuda,orinocod/gstreamer,orinocod/v4l2";

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
    let lint = match has_cargo("clippy") {
        true => (
            "clippy",
            command(&["cargo", "clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
        ),
        false => (
            "check, as clippy is not installed",
            command(&["cargo", "check", "--workspace", "--all-targets"]),
        ),
    };
    // Tests often wait, and cargo lets others build while they run. First those with a folder of their own: until the tests run, cargo
    // may build in that of the others.
    let mut cross = command(&["cross/build.sh", "--profile", "dev", "--no-default-features"]);
    cross.args(["--features", CROSS_FEATURES]);
    // Clippy reads only the code for this machine.
    cross.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-Dwarnings");
    let others = vec![(shuttle::TITLE, shuttle::all(1)), lint, ("cross-compilation", cross)];
    let targets = ["cargo", "test", "--workspace", "--bins", "--tests", "--no-fail-fast"];
    let tests = step_with("tests", command(&targets), others)?;
    let is_cross_built = tests.last() == Some(&Outcome::Passed);
    outcomes.extend(tests);
    let in_docs = ["cargo", "test", "--workspace", "--doc", "--quiet", "--no-fail-fast"];
    outcomes.push(step("examples in documentation", command(&in_docs))?);
    outcomes.push(no_std::run()?);
    let mut on_arm = command(&["cargo", "test", "--workspace", "--test", "aarch64", "--", "--ignored"]);
    on_arm.arg("--skip=tract_on_aarch64");
    outcomes.push(match is_cross_built {
        true => step("aarch64 under qemu-user", on_arm)?,
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
    let mut outcomes = vec![step("long tests", FAULTS_FEW.of(long))?];
    outcomes.push(simulate("simulated pipelines, 20 minutes", &["--test", "simulated"], PIPELINES)?);
    outcomes.push(simulate("simulated supervisors, 40 minutes", &["--lib"], SUPERVISORS)?);
    outcomes.push(step(shuttle::TITLE, shuttle::all(SHUTTLE_TIMES_LONG))?);
    outcomes.push(seams::run(&[])?);
    let faults = ["cargo", "test", "--release", "--workspace", "--test", "robustness", "--", "--nocapture"];
    let name = "collective layer: 1,000 seeds of each fault, 4 hours, and a soak of 2 hours";
    outcomes.push(step(name, FAULTS.of(command(&faults)))?);
    report(&outcomes);
    Ok(())
}

/// Runs the simulations whose names contain `filter` one by one, each for [`SIMULATION_MINUTES`], and shows how many boards each has
/// run. The filter, and not `-p`, selects them, because features of other packages would compile crates again.
fn simulate(name: &str, target: &[&str], filter: &str) -> Result<Outcome> {
    let mut simulate = command(&["cargo", "test", "--release", "--workspace"]);
    simulate.args(target).args(["--", "--nocapture", "--test-threads", "1", filter]);
    simulate.env("ORINOCO_SEED_MINUTES", SIMULATION_MINUTES);
    step(name, simulate)
}

/// Extent of the tests of the collective layer's processes.
struct Faults {
    /// Number of seeds of each fault.
    seeds: &'static str,
    /// Length of the soak.
    soak_minutes: &'static str,
}

impl Faults {
    /// Returns a command that runs that much, whatever other variables it has.
    fn of(&self, mut command: Command) -> Command {
        command.env("ORINOCO_FAULT_SEEDS", self.seeds).env("ORINOCO_SOAK_MINUTES", self.soak_minutes);
        command
    }
}

fn deny() -> Result<Outcome> {
    if !has_cargo("deny") {
        return Ok(skip("dependencies", "cargo-deny is not installed"));
    }
    // It reads the manifests of every platform's crates, which cargo fetches where no build has.
    step("dependencies", command(&["cargo", "deny", "check", "bans", "licenses", "sources"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_of_the_long_tests_find_three_simulations() {
        const BOARDS: &str = include_str!("../../orinoco-pipeline/tests/simulated/main.rs");
        const RUNS: &str = include_str!("../../orinoco-runtime/src/supervisor/simulated.rs");
        assert!(BOARDS.contains(&format!("fn {PIPELINES}()")));
        assert_eq!(SUPERVISORS, "supervisor::simulated::", "the module of the second file");
        let simulations = |text: &str| text.matches("= check_seeds(").count();
        assert_eq!((simulations(BOARDS), simulations(RUNS)), (1, 2));
    }
}
