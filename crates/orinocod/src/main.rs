//! `orinocod`: runs a board file headless. It tells systemd when it is ready and that it is alive. On SIGHUP it reads the
//! board file again: streams join and leave, the others run on. On SIGTERM it stops the sources, lets the frames in work
//! finish, and completes the outputs. Its control socket answers from before the start until the end.

mod cluster;
mod control;
mod crash;
mod journal;
mod network;
mod otlp;
mod post_mortem;
mod seats;
mod state;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use clap::Parser;
use orinoco_api::{EndState, Summary};
use orinoco_board::Board;
use orinoco_config::Faults;
use orinoco_core::text::count;
use orinoco_core::{Diagnosis, Exit, WithSubject, codes};
use orinoco_model::Repository;
use orinoco_otlp::Exporter;
use orinoco_pipeline::MonotonicClock;
use orinoco_runtime::{
    Control, ExistingOutputs, OutputFile, Progress, Reloaded, RunOptions, SlidingRate, TakenFiles,
    capabilities, faults_of, open_own_file, repository, start, vars,
};
use orinoco_sysroot::Sysroot;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use cluster::HeldSeat;
use control::MonitoredRun;
use journal::{Journal, Level};
use post_mortem::PostMortem;
use seats::{SeatLinks, seats_of};

/// Interval between two watchdog notifications, unless systemd wants them more often.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// Interval between updates of the text in `systemctl status`.
const STATUS_EVERY: Duration = Duration::from_secs(10);

/// The Orinoco daemon: runs a board file.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Board file to run
    #[arg(long, value_name = "FILE", default_value = "/etc/orinoco/board.toml")]
    board: PathBuf,
    /// Model repository: a folder with NAME/model.toml for each model [default: $ORINOCO_MODELS, else models and /var/lib/orinoco/models]
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// Folder for model and label files that a model.toml names but that are not next to it [default: $ORINOCO_DATA, else data, /var/lib/orinoco/data and ../shared/data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Folder or recording with the files of another board (/proc, /sys, /etc), from which its sensors are read [default: this machine]
    #[arg(long, value_name = "ROOT")]
    sysroot: Option<PathBuf>,
    /// Write the summary to this file as JSON when the run ends
    #[arg(long, value_name = "FILE.json")]
    summary: Option<PathBuf>,
}

fn main() -> ExitCode {
    orinoco_runtime::set_up_process();
    let exit = match orinoco_runtime::asked_to_measure() {
        Some(measured) => measure(measured),
        None => run(&Args::parse()),
    };
    let exit = exit.unwrap_or_else(|faults| {
        faults.iter().for_each(log_fault);
        match faults.first().code.exit {
            // SIGTERM is how a daemon is meant to end.
            Exit::Interrupted => Exit::Done,
            exit => exit,
        }
    });
    journal::finish(&MonotonicClock::default());
    ExitCode::from(exit as u8)
}

/// Another process of ours asked for a model's needs.
fn measure(measured: Result<String, Faults>) -> Result<Exit, Faults> {
    // One that has ended meanwhile needs no answer.
    let _ = writeln!(io::stdout(), "{}", measured?);
    Ok(Exit::Done)
}

fn run(args: &Args) -> Result<Exit, Faults> {
    let place = repository(args.models.as_deref(), args.data.as_deref());
    let mut options = RunOptions::new(&place, Arc::new(Journal));
    let links = Arc::new(SeatLinks::new(Arc::new(MonotonicClock::default())));
    listen_to_signals(args.board.clone(), place.clone(), options.control.clone(), Arc::clone(&links))?;
    // What the last run wrote stays: it may have ended without anybody there.
    let board = read_board(&args.board, &place)?;
    links.set_wanted(seats_of(&board));
    let own = args
        .summary
        .as_ref()
        .map(|path| open_own_file(&board, &place, path, "the run's summary is written to this file"));
    let (file, own) = own.transpose()?.map_or((None, TakenFiles::default()), |(file, own)| (Some(file), own));
    let nv_inference = board.control.nv_inference_metrics;
    let otlp = otlp::settings(board.otlp.as_ref())?;
    let clock = Arc::new(MonotonicClock::default());
    let seat = board.cluster.as_ref().map(|spec| cluster::start(spec, &links, clock)).transpose()?;
    let server = control::open(&board.control, Arc::new(MonotonicClock::default()))?;
    let mut pulse = Pulse::new();
    (options.earlier, options.own, options.end_unread) = (ExistingOutputs::Kept, own, false);
    options.sample_every = pulse.every();
    options.govern = true;
    options.seats = Some(Arc::clone(&links) as _);
    let sysroot = match &args.sysroot {
        Some(path) => orinoco_board::open_root(path, MonotonicClock::default())?,
        None => Sysroot::host(),
    };
    options.sensors = Some(sysroot.clone());
    let own_models = links.open_models(&board, &place);
    let ready = Arc::new(OnceLock::<PostMortem>::new());
    let of_crash = Arc::clone(&ready);
    let crash_handler = crash::watch(move |crash| {
        match of_crash.get() {
            Some(post_mortem) => post_mortem.write_crash(crash),
            // There is no state yet that a dump could show.
            None => journal::log(
                Level::Error,
                &format!("crashed: {} while engines and models were loaded", crash.text()),
            ),
        }
        journal::finish(&MonotonicClock::default());
    });
    // A board that cannot tell of a crash still runs.
    crash_handler.as_ref().err().into_iter().for_each(log_fault);
    let running = start(board, options)?;
    own_models.into_iter().for_each(|own| links.share(own));
    links.serve(running.served());
    let monitor = running.monitor().clone();
    if let Some(seat) = &seat {
        seat.attach(monitor.clone());
    }
    let exporter = otlp.map(|settings| otlp::start(&settings, &sysroot, &monitor)).transpose()?;
    if let Some(server) = &server {
        let counts = exporter.as_ref().map(Exporter::counts);
        let cluster = seat.as_ref().map(HeldSeat::view);
        server.attach(Arc::new(MonitoredRun::new(
            monitor.clone(),
            cluster,
            Arc::clone(&links),
            counts,
            nv_inference,
        )));
    }
    journal::log(Level::Info, "running");
    notify(&[NotifyState::Ready]);
    let mut post_mortem = PostMortem::new(monitor.clone());
    // It is set once.
    let _ = ready.set(post_mortem.clone());
    let mut summary = running.wait(|now| {
        pulse.beat(&now, || monitor.is_healthy());
        post_mortem.check();
    });
    post_mortem.check();
    drop(crash_handler);
    notify(&[NotifyState::Stopping]);
    // Before the journal's last lines: it may have something to say.
    exporter.into_iter().for_each(Exporter::stop);
    summary.cluster = seat.as_ref().map(|seat| seat.view().status());
    seat.into_iter().for_each(HeldSeat::stop);
    finish(file, &summary)
}

fn read_board(path: &Path, place: &Repository) -> Result<Board, Faults> {
    let board = orinoco_board::load(path, &capabilities(), &vars());
    board.map_err(|error| faults_of(error, place))
}

/// Reads a changed board file, and has the run become that board. The run prepares it on a thread of its own: the life signs
/// go on.
fn reload(path: &Path, place: &Repository, control: &Control, links: &Arc<SeatLinks>) {
    notify(&[NotifyState::Reloading]);
    journal::log(Level::Info, &format!("reloading {}", path.display()));
    let stopping = control.clone();
    match read_board(path, place) {
        Ok(board) => {
            let (links, wanted) = (Arc::clone(links), seats_of(&board));
            if let Err(why) = links.check(&wanted) {
                return report_reload(Err(why.into()));
            }
            let own_models = links.open_models(&board, place);
            control.reload(board, move |done| {
                if done.is_ok() {
                    links.set_wanted(wanted);
                    own_models.into_iter().for_each(|own| links.share(own));
                }
                // A run that ends is none that goes on as it was.
                if done.is_ok() || !stopping.is_stopping() {
                    report_reload(done);
                }
            });
        }
        Err(faults) => report_reload(Err(faults)),
    }
}

fn log_fault(fault: &Diagnosis) {
    journal::log(Level::Error, &format!("{} {fault}", fault.code.id));
}

fn report_reload(done: Result<Reloaded, Faults>) {
    match done {
        Ok(Reloaded { joined, left, stayed, replaced, faults }) => {
            faults.iter().for_each(log_fault);
            let named = |names: Vec<String>| if names.is_empty() { "-".to_owned() } else { names.join(",") };
            let (joined, left, replaced) = (named(joined), named(left), named(replaced));
            let text = format!("reloaded joined={joined} left={left} stayed={stayed} replaced={replaced}");
            journal::log(Level::Info, &text);
        }
        Err(faults) => {
            faults.iter().for_each(log_fault);
            journal::log(Level::Error, "not reloaded: the board runs unchanged");
        }
    }
    notify(&[NotifyState::Ready]);
}

fn finish(file: Option<OutputFile>, summary: &Summary) -> Result<Exit, Faults> {
    let text = serde_json::to_string(summary).expect("a summary has only text keys and plain numbers");
    journal::log(Level::Info, &format!("summary {text}"));
    for fault in &summary.faults {
        let text = format!("{} {}: {}; {}", fault.code, fault.subject, fault.cause, fault.next);
        journal::log(Level::Error, &text);
    }
    let next = "check that its folder can be written";
    let written = file.map_or(Ok(()), |file| {
        let path = file.path().display().to_string();
        let written = file.write_whole((text + "\n").as_bytes());
        written.about(&codes::SINK_OPEN, path, next)
    });
    match summary.end {
        // SIGTERM is how a daemon is meant to end.
        EndState::Complete | EndState::Interrupted => Ok(written.map(|()| Exit::Done)?),
        EndState::Failed => {
            written.err().iter().for_each(log_fault);
            Ok(Exit::RunFailed)
        }
    }
}

/// SIGTERM and Ctrl-C ask for a clean end, SIGHUP for a reload.
fn listen_to_signals(
    board: PathBuf,
    place: Repository,
    control: Control,
    links: Arc<SeatLinks>,
) -> Result<(), Diagnosis> {
    let next = "check the sandbox or seccomp profile";
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    let mut signals =
        signals.about(&codes::ENGINE_RUN, "installing the handler for SIGTERM and SIGHUP", next)?;
    thread::spawn(move || {
        for signal in &mut signals {
            if signal == SIGHUP {
                if !control.is_stopping() {
                    reload(&board, &place, &control, &links);
                }
                continue;
            }
            control.stop();
            notify(&[NotifyState::Stopping]);
            journal::log(Level::Info, "stopping: sources end, frames in progress are completed");
        }
    });
    Ok(())
}

/// Life signs for systemd. Times are those of the run.
struct Pulse {
    watchdog_every: Option<Duration>,
    fed: Duration,
    /// Whether the run made progress when that was last asked.
    is_healthy: bool,
    told: Option<Duration>,
    rate: SlidingRate,
}

impl Pulse {
    fn new() -> Self {
        let mut micros = 0;
        let asked = sd_notify::watchdog_enabled(false, &mut micros);
        // Half of the limit, as sd_watchdog_enabled(3) recommends.
        let watchdog_every = asked.then(|| Duration::from_micros(micros / 2));
        Self {
            watchdog_every,
            fed: Duration::ZERO,
            is_healthy: true,
            told: None,
            rate: SlidingRate::default(),
        }
    }

    /// Time between two beats. systemd hears of each second one at the latest, and so in time.
    fn every(&self) -> Duration {
        self.watchdog_every.map_or(BEAT_EVERY, |every| BEAT_EVERY.min(every / 2))
    }

    fn beat(&mut self, now: &Progress, is_healthy: impl Fn() -> bool) {
        let fps = self.rate.add(now);
        if self.feeds(now.elapsed, is_healthy) {
            notify(&[NotifyState::Watchdog]);
        }
        if self.told.is_none_or(|told| now.elapsed - told >= STATUS_EVERY) {
            self.told = Some(now.elapsed);
            notify(&[NotifyState::Status(&status_text(now, fps))]);
        }
    }

    /// Whether the watchdog is fed now: when it is due, and only while every lane makes progress. The supervisor would report
    /// progress, and a timer would run, also where a lane hangs.
    fn feeds(&mut self, now: Duration, is_healthy: impl Fn() -> bool) -> bool {
        let is_due = self.watchdog_every.is_some_and(|every| now - self.fed + self.every() > every);
        if !is_due {
            return false;
        }
        let was_healthy = std::mem::replace(&mut self.is_healthy, is_healthy());
        match (was_healthy, self.is_healthy) {
            (true, false) => {
                let text =
                    "watchdog=starving a lane makes no progress: systemd restarts the daemon if that lasts";
                journal::log(Level::Error, text);
            }
            (false, true) => journal::log(Level::Info, "watchdog=fed every lane makes progress again"),
            _ => {}
        }
        if self.is_healthy {
            self.fed = now;
        }
        self.is_healthy
    }
}

/// One line of `systemctl status`: what is wrong comes first.
fn status_text(now: &Progress, fps: f64) -> String {
    let live = now.streams - now.away.len();
    let streams = count(now.streams as u64, "stream");
    let away = match now.away_text() {
        away if away.is_empty() => away,
        away => format!("{away}; "),
    };
    let up = now.elapsed.as_secs();
    let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
    format!(
        "{away}{live} of {streams} live, {fps:.1} fps, {} in, {} out, up {hours}:{minutes:02}:{seconds:02}",
        count(now.frames_in, "frame"),
        now.frames_out
    )
}

/// Outside systemd there is nobody to tell, which is no fault.
fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(false, states);
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_runtime::OfflineStream;

    #[test]
    fn the_watchdog_is_fed_in_time_and_only_while_lanes_make_progress() {
        let watchdog_every = Some(Duration::from_secs(15));
        let mut pulse = Pulse { watchdog_every, ..Pulse::new() };
        let mut check = |seconds: std::ops::Range<u64>, is_healthy: bool| -> Vec<u64> {
            seconds.filter(|&now| pulse.feeds(Duration::from_secs(now), || is_healthy)).collect()
        };
        assert_eq!(check(0..60, true), [15, 30, 45], "twice in the 30 s of its limit");
        assert_eq!(check(60..120, false), [0; 0], "a lane hangs");
        assert_eq!(check(120..150, true), [120, 135], "at once when it goes on");
        let mut without = Pulse { watchdog_every: None, ..Pulse::new() };
        assert!(!without.feeds(Duration::from_secs(60), || unreachable!("nobody asked for life signs")));
    }

    #[test]
    fn the_status_says_what_runs_and_what_is_away() {
        let mut now = Progress { frames_in: 1, frames_out: 1, streams: 1, ..Progress::default() };
        assert_eq!(status_text(&now, 0.0), "1 of 1 stream live, 0.0 fps, 1 frame in, 1 out, up 0:00:00");
        now.elapsed = Duration::from_secs(3 * 3600 + 125);
        (now.frames_in, now.frames_out, now.streams) = (1234, 1230, 3);
        now.away =
            vec![OfflineStream { stream: "cam1".into(), was_live: true, silence: Duration::from_secs(12) }];
        let expected =
            "cam1 offline 12 s; 2 of 3 streams live, 49.8 fps, 1234 frames in, 1230 out, up 3:02:05";
        assert_eq!(status_text(&now, 49.8), expected);
    }
}
