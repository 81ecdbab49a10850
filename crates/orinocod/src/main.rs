//! `orinocod`: runs a board file headless. It tells systemd when it is ready and that it is alive, and on SIGTERM it
//! stops the sources, lets the frames in work finish, and completes the outputs.

mod allocator;
mod journal;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use orinoco_api::{EndState, Summary};
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, Exit, WithSubject, codes};
use orinoco_pipeline::Stop;
use orinoco_runtime::{Progress, Runtime, repository, vars};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use journal::{Journal, Level};

/// How often `systemctl status` gets fresh figures.
const STATUS_EVERY: Duration = Duration::from_secs(10);

/// The Orinoco daemon: runs a board file.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Board file
    #[arg(long, value_name = "FILE", default_value = "/etc/orinoco/board.toml")]
    board: PathBuf,
    /// Model repository: folders of NAME/model.toml [default: $ORINOCO_MODELS, models, /var/lib/orinoco/models]
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// Folder of shared data that model.toml files refer to [default: $ORINOCO_DATA, or ../shared/data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Write the summary here as JSON at the end
    #[arg(long, value_name = "FILE.json")]
    summary: Option<PathBuf>,
}

fn main() -> ExitCode {
    allocator::bound_arenas();
    if let Some(measured) = orinoco_runtime::asked_to_measure() {
        return measure(measured);
    }
    let args = Args::parse();
    let exit = run(&args).unwrap_or_else(|faults| {
        for fault in &faults.0 {
            journal::log(Level::Error, &format!("{} {fault}", fault.code.id));
        }
        faults.0.first().map_or(Exit::RunFailed, |fault| fault.code.exit)
    });
    ExitCode::from(exit as u8)
}

/// Another process of ours asked for a model's needs.
#[allow(clippy::print_stdout, reason = "it is what the other process reads")]
fn measure(measured: Result<String, Faults>) -> ExitCode {
    match measured {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(faults) => {
            faults.0.iter().for_each(|fault| journal::log(Level::Error, &fault.to_string()));
            ExitCode::from(faults.0.first().map_or(Exit::RunFailed, |fault| fault.code.exit) as u8)
        }
    }
}

fn run(args: &Args) -> Result<Exit, Faults> {
    let stop = Stop::default();
    drain_on_signals(stop.clone())?;
    let board = orinoco_board::load(&args.board, &orinoco_infer::ENGINES, &vars())?;
    let place = repository(args.models.as_deref(), args.data.as_deref());
    let runtime = Runtime::prepare(board, &place, Arc::new(Journal), stop)?;
    let running = runtime.start()?;
    journal::log(Level::Info, "running");
    notify(&[NotifyState::Ready]);
    let mut pulse = Pulse::new();
    let summary = running.wait(|now| pulse.beat(now));
    notify(&[NotifyState::Stopping]);
    finish(args.summary.as_deref(), &summary)
}

fn finish(path: Option<&Path>, summary: &Summary) -> Result<Exit, Faults> {
    let text = serde_json::to_string(summary).expect("a summary has only text keys and plain numbers");
    journal::log(Level::Info, &format!("summary {text}"));
    if let Some(path) = path {
        std::fs::write(path, text + "\n").about(
            &codes::SINK_OPEN,
            path.display(),
            "check that its folder can be written",
        )?;
    }
    for fault in &summary.faults {
        let text = format!("{} {}: {}; {}", fault.code, fault.subject, fault.cause, fault.next);
        journal::log(Level::Error, &text);
    }
    Ok(match summary.end {
        // SIGTERM is how a daemon is meant to end.
        EndState::Complete | EndState::Interrupted => Exit::Done,
        EndState::Failed => Exit::RunFailed,
    })
}

/// The first SIGTERM or Ctrl-C asks for a clean end.
fn drain_on_signals(stop: Stop) -> Result<(), Diagnosis> {
    let next = "run it where signals can be handled";
    let mut signals = Signals::new([SIGTERM, SIGINT]).about(&codes::ENGINE_RUN, "signal handler", next)?;
    thread::spawn(move || {
        for _ in &mut signals {
            journal::log(Level::Info, "stopping: sources end, frames in work are finished");
            notify(&[NotifyState::Stopping]);
            stop.request();
        }
    });
    Ok(())
}

/// Life signs for systemd.
struct Pulse {
    watchdog_every: Option<Duration>,
    fed: Instant,
    told: Option<Instant>,
}

impl Pulse {
    fn new() -> Self {
        let mut micros = 0;
        let asked = sd_notify::watchdog_enabled(false, &mut micros);
        // Half of the limit, as sd_watchdog_enabled(3) recommends.
        let watchdog_every = asked.then(|| Duration::from_micros(micros / 2));
        Self { watchdog_every, fed: Instant::now(), told: None }
    }

    fn beat(&mut self, now: Progress) {
        if self.watchdog_every.is_some_and(|every| self.fed.elapsed() >= every) {
            self.fed = Instant::now();
            notify(&[NotifyState::Watchdog]);
        }
        if self.told.is_none_or(|told| told.elapsed() >= STATUS_EVERY) {
            self.told = Some(Instant::now());
            let text = format!(
                "{} frames in, {} out, {:.0} s",
                now.frames_in,
                now.frames_out,
                now.elapsed.as_secs_f64()
            );
            notify(&[NotifyState::Status(&text)]);
        }
    }
}

/// Outside systemd there is nobody to tell, which is no fault.
fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(false, states);
}
