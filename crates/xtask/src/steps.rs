//! Running commands one after another.

#![expect(clippy::disallowed_methods, reason = "it waits for real processes and boards")]

use std::io::{self, Read};
use std::process::{Command, ExitStatus};
use std::thread;
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
    outcome(title, status, start.elapsed().as_secs_f64())
}

fn outcome(title: &str, status: ExitStatus, seconds: f64) -> Result<Outcome> {
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

/// Runs a step, and during it others, one after another, in processor time that it leaves idle. What those print is shown when the
/// step has ended. All are run, also if one fails.
pub(crate) fn step_with(title: &str, command: Command, others: Vec<(&str, Command)>) -> Result<Vec<Outcome>> {
    thread::scope(|scope| {
        let during = scope.spawn(|| {
            // Of this thread, on Linux, and of the processes that it starts.
            let niced = rustix::process::nice(NICE_MAX);
            let run = |(title, command)| (title, run_quietly(command));
            niced.map(|_| others.into_iter().map(run).collect::<Vec<_>>())
        });
        let mut outcomes = vec![step(title, command)];
        for (title, ran) in during.join().expect("no panic").context("lowering the priority of a thread")? {
            println!("\n== {title}, during the step before");
            outcomes.push(ran.and_then(|ran| {
                print!("{}", String::from_utf8_lossy(&ran.printed));
                outcome(title, ran.status, ran.seconds)
            }));
        }
        outcomes.into_iter().collect()
    })
}

/// The lowest priority: more than 50 times less of the processor than a process that has the usual one.
const NICE_MAX: i32 = 19;

/// End of a command whose output is kept.
struct Ran {
    status: ExitStatus,
    seconds: f64,
    printed: Vec<u8>,
}

fn run_quietly(mut command: Command) -> Result<Ran> {
    let start = Instant::now();
    let (mut reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    // It holds the pipe's other end, too.
    drop(command);
    let mut printed = Vec::new();
    reader.read_to_end(&mut printed)?;
    Ok(Ran { status: child.wait()?, seconds: start.elapsed().as_secs_f64(), printed })
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
