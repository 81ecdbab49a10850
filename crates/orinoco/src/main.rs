//! `orinoco`: runs pipelines in the foreground and measures models.

mod args;
mod client;
mod commands;
mod figures;
mod output;
mod signals;

use std::process::ExitCode;

use clap::Parser;
use orinoco_config::Faults;
use orinoco_core::Exit;

use args::{BenchCommand, BoardCommand, Cli, Command, ModelsCommand};

fn main() -> ExitCode {
    orinoco_runtime::set_up_process();
    if let Some(measured) = orinoco_runtime::asked_to_measure() {
        return ExitCode::from(measure(measured) as u8);
    }
    let cli = Cli::parse();
    let json = cli.json;
    let exit = run(cli.command, json).unwrap_or_else(|faults| output::report_faults(faults.as_slice(), json));
    ExitCode::from(output::check_printed(exit) as u8)
}

fn run(command: Command, json: bool) -> Result<Exit, Faults> {
    // A run completes its outputs, and a screen restores the terminal; they listen themselves.
    if !matches!(command, Command::Run(_) | Command::Top(_)) {
        signals::end_on_signals()?;
    }
    match command {
        Command::Run(args) => commands::run::run(&args, json),
        Command::Infer(args) => commands::infer::run(&args, json),
        Command::Models(ModelsCommand::List(args)) if args.cluster => commands::pull::list(args.socket, json),
        Command::Models(ModelsCommand::List(args)) => commands::models::list(&args.place, json),
        Command::Models(ModelsCommand::Pull(args)) => commands::pull::run(&args, json),
        Command::Models(ModelsCommand::Show(args)) => commands::models::show(&args, json),
        Command::Models(ModelsCommand::Check(args)) => commands::models::check(&args, json),
        Command::Models(ModelsCommand::Init(args)) => commands::init::run(&args, json),
        Command::Models(ModelsCommand::Import(args)) => commands::init::import(&args, json),
        Command::Eval(args) => commands::eval::run(&args, json),
        Command::Memory(args) => commands::memory::run(&args, json),
        Command::Doctor(args) => commands::doctor::run(&args, json),
        Command::Status(args) => commands::status::run(&args, json),
        Command::Top(args) => commands::top::run(&args, json),
        Command::Cameras => commands::cameras::run(json),
        Command::Board(BoardCommand::Detect { sysroot }) => commands::board::detect(sysroot.as_deref(), json),
        Command::Board(BoardCommand::List) => commands::board::list(json),
        Command::Board(BoardCommand::Show { name }) => commands::board::show(&name, json),
        Command::Board(BoardCommand::Record(args)) => commands::board::record(&args, json),
        Command::Bench(BenchCommand::Pipeline(args)) => commands::bench::pipeline::run(&args, json),
        Command::Bench(BenchCommand::Streams(args)) => commands::bench::streams::run(&args, json),
        Command::Bench(BenchCommand::Memory(args)) => commands::bench::memory::run(&args, json),
        #[cfg(feature = "cuda")]
        Command::Bench(BenchCommand::Graph(args)) => commands::bench::graph::run(&args, json),
        Command::Bench(BenchCommand::MemoryChild(args)) => commands::bench::memory::run_child(&args),
        Command::Bench(BenchCommand::Model(args)) => commands::bench::model::run(&args, json),
        Command::Bench(BenchCommand::ModelChild(args)) => commands::bench::model::run_child(&args),
        Command::Bench(BenchCommand::Preprocess(args)) => commands::bench::preprocess::run(&args, json),
        Command::Cluster(command) => commands::cluster::run(&command, json),
        Command::Links(args) => commands::links::run(&args, json),
        Command::Perf(args) => commands::perf::run(&args, json),
        Command::Explain { code } => commands::explain::run(code.as_deref(), json),
        Command::Completions { shell } => {
            commands::completions(shell);
            Ok(Exit::Done)
        }
    }
}

/// Another process of ours asked for a model's needs.
fn measure(measured: Result<String, Faults>) -> Exit {
    match measured {
        Ok(text) => {
            output::print(&text);
            Exit::Done
        }
        Err(faults) => output::report_faults(faults.as_slice(), false),
    }
}
