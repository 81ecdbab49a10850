//! Developer commands, such as `cargo xtask test` and `cargo xtask demo`. The Makefile calls them after `setup.sh`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a developer's command line")]

mod arrows;
mod boards;
mod demo;
mod exceptions;
mod format;
mod gpu;
mod no_std;
mod overhead;
mod schemas;
mod seams;
mod shuttle;
mod steps;
mod test;
mod torch;
mod words;
mod workspace;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

/// Developer commands of Orinoco.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything that CI checks
    Test,
    /// Many seeds and soaks
    TestLong,
    /// The Python package of the collective operations, with PyTorch's own tests. Uses the Python that ORINOCO_PYTHON names, or installs
    /// PyTorch into target/torch
    TestTorch,
    /// Tests that need an NVIDIA GPU: CUDA kernels, pipelines on the GPU, models on ort-cuda. ORT_DYLIB_PATH names an ONNX Runtime built
    /// with CUDA, ORINOCO_PYTHON a Python with the package onnx
    TestGpu,
    /// A video through a detector, on this machine
    Demo,
    /// Benchmark pipelines compared with their engines alone
    Bench,
    /// Measure what telemetry costs: the daemon with sensors, energy, scrapes and status clients, compared with none of it, in
    /// turns. Needs a quiet machine and the release binaries (`make build`)
    Overhead {
        /// Pairs of daemons; 20 decide whether the bounds hold
        #[arg(long, default_value_t = 20)]
        pairs: usize,
        /// Seconds for which each daemon of a pair executes, in turns of 100 ms
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        /// Seconds for which paced streams run with clients and without
        #[arg(long, default_value_t = 60)]
        paced_seconds: u64,
        /// No scrapes and status requests at full speed: what telemetry costs alone, without what its clients take from the machine
        #[arg(long)]
        without_clients: bool,
    },
    /// Emulated aarch64 boards: build, up, down, ssh, put, camera, fault, test
    #[command(subcommand)]
    Boards(boards::Action),
    /// The threads of the pipeline, and the ranks of shared memory, in many orders, by a seed: names of tests run those alone
    Shuttle {
        /// Names of tests, or their beginnings: `lane::`
        tests: Vec<String>,
    },
    /// Check which crate may use which, that no files use one another in a cycle, and where `unsafe` may stand
    Arrows,
    /// Format every source file, also those that `cargo fmt` does not find
    Format,
    /// Add a toy engine, source, head and sink to a copy of the tree, each as one file and one line, and run their suites
    Seams {
        /// engine, source, head or sink; all of them, unless some are named
        names: Vec<String>,
    },
    /// Build the drivers for microcontrollers (thumbv6m, thumbv7em) and print the size of the example firmware. Needs those targets
    /// from rustup, or the standard library's sources; skipped without
    NoStd,
    /// Write the JSON Schemas of the contracts into docs/schemas
    Schemas,
    /// Check that no retired word is used
    Words,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Test => test::test(),
        Command::TestLong => test::test_long(),
        Command::TestTorch => torch::test(),
        Command::TestGpu => gpu::test(),
        Command::Demo => demo::demo(),
        Command::Bench => demo::bench(),
        Command::Overhead { pairs, seconds, paced_seconds, without_clients } => {
            let (time, paced) = (Duration::from_secs(seconds), Duration::from_secs(paced_seconds));
            overhead::measure(&overhead::Plan { pairs, time, paced, has_clients: !without_clients })
        }
        Command::Boards(action) => match boards::run(action) {
            Ok(status) if status.success() => Ok(()),
            // A command on a board failed, and said why.
            Ok(status) => std::process::exit(status.code().unwrap_or(1)),
            Err(error) => {
                eprintln!("xtask: {error:#}");
                std::process::exit(boards::exit_code(&error));
            }
        },
        Command::Shuttle { tests } => shuttle::run(&tests),
        Command::Arrows => arrows::check().and_then(|()| exceptions::check()),
        Command::Format => format::format(format::Odd::Written),
        Command::Seams { names } => seams::run(&names).map(drop),
        Command::NoStd => no_std::run().map(drop),
        Command::Schemas => schemas::write(),
        Command::Words => words::check(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
