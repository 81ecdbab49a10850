//! Running commands one after another.

#![expect(clippy::disallowed_methods, reason = "it waits for real processes and boards")]

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::workspace::root;

/// Exit code of a script whose prerequisites are missing on this machine (EX_UNAVAILABLE of sysexits.h).
pub(crate) const UNAVAILABLE: i32 = 69;

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Skipped,
}

/// A command in the workspace's folder.
pub(crate) fn command(words: &[&str]) -> Command {
    let (program, arguments) = words.split_first().expect("a command has a name");
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// Runs a command with a heading; fails when it does.
pub(crate) fn step(title: &str, mut command: Command) -> Result<Outcome> {
    println!("\n== {title}");
    let start = Instant::now();
    let status = command.status().with_context(|| format!("starting {command:?}"))?;
    let seconds = start.elapsed().as_secs_f64();
    match status.code() {
        Some(0) => {
            println!("== {title}: passed in {seconds:.0} s");
            Ok(Outcome::Passed)
        }
        Some(UNAVAILABLE) => {
            println!("== {title}: skipped, see above");
            Ok(Outcome::Skipped)
        }
        _ => bail!("{title} failed ({status})"),
    }
}

/// Says that a step cannot run here, and why.
pub(crate) fn skip(title: &str, why: &str) -> Outcome {
    println!("\n== {title}: skipped: {why}");
    Outcome::Skipped
}

/// Says how many steps passed and how many were skipped. The first that fails ends the command.
pub(crate) fn report(outcomes: &[Outcome]) {
    let count = |wanted: Outcome| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    println!("\nsteps: {} passed, 0 failed, {} skipped", count(Outcome::Passed), count(Outcome::Skipped));
}

/// Whether `cargo <name>` is there.
pub(crate) fn has_cargo(name: &str) -> bool {
    let quiet = Command::new("cargo").args([name, "--version"]).output();
    quiet.is_ok_and(|output| output.status.success())
}
