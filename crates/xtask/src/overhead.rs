//! Overhead of telemetry: the daemon with all of it (sensors, energy, control socket, scrapes and status clients) compared with
//! the daemon without. The two of a pair execute in turns of 100 ms, one while the other is stopped, in ABBA order: what other guests
//! of a shared host take from the machine changes within seconds and from core to core, and so burdens both alike. Their lanes are
//! bound to the same core, to each in turn, and their other threads to the other cores. The sensors are those of a synthetic board: files in a folder.

mod clients;
mod daemon;
mod statistics;
mod synthetic;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use orinoco_api::Summary;
use rustix::thread::{CpuSet, sched_getaffinity};

use self::clients::{ClientCounts, Clients};
use self::daemon::{Daemon, Progress, Telemetry};
use self::statistics::{Interval, Sample, interval};
use crate::workspace::{root, target_dir};

/// Greatest overhead of a frame, upper end of the 95 % interval.
const FRAME_US_MAX: f64 = 20.0;
/// Greatest ratio of a frame's time with telemetry to that without, upper end of the 95 % interval.
const RATIO_MAX: f64 = 1.01;
/// Number of pairs from which the bounds are checked: fewer only show that the measurement works.
const PAIRS_CHECKED: usize = 20;
/// Latency above which a frame of the paced streams is late, in ms.
const LATENCY_MS_MAX: u32 = 100;
/// Frame rates of the paced streams.
const PACED_FPS: [u32; 2] = [15, 10];

/// Time that a daemon of a pair executes at a time.
const TURN: Duration = Duration::from_millis(100);
/// Turns of each daemon before those that count: caches and predictors warm up.
const WARM_UP: usize = 10;

/// Settings of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Number of pairs of daemons.
    pub(crate) pairs: usize,
    /// Time for which each daemon of a pair executes.
    pub(crate) time: Duration,
    /// Time for which the paced streams run with clients, and as long without.
    pub(crate) paced: Duration,
    /// Whether clients ask the daemon while it runs at full speed.
    pub(crate) has_clients: bool,
}

/// Measures the overhead with the release binaries, and prints the figures. Fails if a bound does not hold over
/// [`PAIRS_CHECKED`] pairs or more.
pub(crate) fn measure(plan: &Plan) -> Result<()> {
    ensure!(plan.pairs >= 2, "an interval needs 2 pairs at least: use --pairs 20");
    let bench = Bench::new()?;
    let mut pairs = Vec::new();
    for pair in 0..plan.pairs {
        let (with, without, counts) = bench.pair(pair, plan)?;
        println!(
            "pair {:2}: {:.1} us a frame with telemetry, {:.1} without; processor {:.1} and {:.1} us; {counts}",
            pair + 1,
            with.wall_us,
            without.wall_us,
            with.cpu_us,
            without.cpu_us
        );
        pairs.push((with, without));
    }
    let wall = Comparison::of(&pairs, |sample| sample.wall_us);
    let cpu = Comparison::of(&pairs, |sample| sample.cpu_us);
    println!(
        "\n{} pairs, {} s for each daemon in turns of {} ms in ABBA order",
        plan.pairs,
        plan.time.as_secs(),
        TURN.as_millis()
    );
    println!("time of a frame, with to without: ratio {}; difference {} us", wall.ratio, wall.difference);
    println!(
        "processor time of the daemon for a frame: ratio {}; difference {} us",
        cpu.ratio, cpu.difference
    );
    let late = bench.late_frames(plan.paced)?;
    verdict(plan, &wall, late)
}

/// Prints whether the bounds hold.
fn verdict(plan: &Plan, wall: &Comparison, late: [u64; 2]) -> Result<()> {
    let [with, without] = late;
    let checks = [
        (format!("ratio at most {RATIO_MAX}"), wall.ratio.upper <= RATIO_MAX),
        (format!("{FRAME_US_MAX} us a frame or less"), wall.difference.upper <= FRAME_US_MAX),
        ("no frame late or dropped because of a client".to_owned(), with <= without),
    ];
    let is_checked = plan.pairs >= PAIRS_CHECKED;
    for (name, holds) in &checks {
        println!("{name}: {}", if *holds { "holds" } else { "does not hold" });
    }
    if !is_checked {
        println!("{} pairs show that the measurement works; {PAIRS_CHECKED} pairs decide", plan.pairs);
    } else if checks.iter().any(|(_, holds)| !holds) {
        bail!("telemetry costs more than its bounds");
    }
    Ok(())
}

/// Comparison of a figure with telemetry and without.
struct Comparison {
    ratio: Interval,
    /// Difference in microseconds.
    difference: Interval,
}

impl Comparison {
    fn of(pairs: &[(Sample, Sample)], figure: fn(&Sample) -> f64) -> Self {
        let logs: Vec<f64> =
            pairs.iter().map(|(with, without)| (figure(with) / figure(without)).ln()).collect();
        let differences: Vec<f64> =
            pairs.iter().map(|(with, without)| figure(with) - figure(without)).collect();
        Self { ratio: interval(&logs).exp(), difference: interval(&differences) }
    }
}

/// Binaries, the folder of the runs, that of the synthetic board, and the machine's cores.
struct Bench {
    orinocod: PathBuf,
    folder: PathBuf,
    sysroot: PathBuf,
    /// Cores that this process may use.
    cores: Vec<usize>,
}

impl Bench {
    fn new() -> Result<Self> {
        let orinocod = target_dir().join("release/orinocod");
        ensure!(orinocod.is_file(), "{} does not exist: run `make build`", orinocod.display());
        let folder = target_dir().join("overhead");
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let sysroot = folder.join("sysroot");
        synthetic::write(&sysroot)?;
        let usable = sched_getaffinity(None).context("asking for the cores")?;
        let cores = (0..CpuSet::MAX_CPU).filter(|core| usable.is_set(*core)).collect();
        Ok(Self { orinocod, folder, sysroot, cores })
    }

    /// Measures two daemons in turns: one stream as fast as its model can, with telemetry and without.
    /// Returns their figures, and the answers of the clients.
    fn pair(&self, pair: usize, plan: &Plan) -> Result<(Sample, Sample, ClientCounts)> {
        let board = |telemetry| board_file(telemetry, &[("test://ball?width=320&height=240", None)]);
        let start = |telemetry| -> Result<_> {
            let mut daemon = self.daemon(telemetry, &board(telemetry))?;
            let (addresses, lane) = (daemon.addresses()?, daemon.lane()?);
            daemon.stop()?;
            Ok((daemon, lane, addresses))
        };
        let (mut with, its_lane, addresses) = start(Telemetry::On)?;
        let (mut without, other_lane, _) = start(Telemetry::Off)?;
        let clients = Clients::start(addresses.filter(|_| plan.has_clients));
        clients.pause();

        let take_turns =
            |count: usize, with: &mut Daemon, without: &mut Daemon| -> Result<(Progress, Progress)> {
                let before = (with.progress()?, without.progress()?);
                // Pairs begin in turn with telemetry and without, and so do the turns of each.
                for turn in 0..count {
                    // Both execute twice on a core, in ABBA order, and then on the next one.
                    let core = self.cores[turn / 2 % self.cores.len()];
                    for half in 0..2 {
                        if (pair + turn + half).is_multiple_of(2) {
                            clients.resume();
                            with.execute_for(TURN, its_lane, core, &self.cores)?;
                            clients.pause();
                        } else {
                            without.execute_for(TURN, other_lane, core, &self.cores)?;
                        }
                    }
                }
                Ok((with.progress()?.since(before.0), without.progress()?.since(before.1)))
            };
        take_turns(WARM_UP, &mut with, &mut without)?;
        let turns = plan.time.div_duration_f64(TURN).ceil() as usize;
        let (progress, other) = take_turns(turns, &mut with, &mut without)?;
        without.end()?;
        let summary = with.end()?;
        let counts = clients.finish()?;
        ensure!(summary.power.energy_j.is_some(), "the energy is not measured: {}", summary.power.source);
        Ok((progress.frame()?, other.frame()?, counts))
    }

    fn daemon(&self, telemetry: Telemetry, board: &str) -> Result<Daemon> {
        let folder = self.folder.join(format!("{telemetry:?}").to_lowercase());
        Daemon::start(&self.orinocod, &folder, &self.sysroot, board)
    }

    /// Runs two paced streams with all clients, and without. Returns their frames that were late or dropped.
    fn late_frames(&self, time: Duration) -> Result<[u64; 2]> {
        let run = |telemetry| -> Result<u64> {
            let source = |fps: u32| {
                let frames = u64::from(fps) * time.as_secs();
                format!("test://ball?width=320&height=240&fps={fps}&pace=pts&frames={frames}")
            };
            let sources = PACED_FPS.map(source);
            let streams: Vec<(&str, Option<u32>)> =
                sources.iter().map(|source| (source.as_str(), Some(LATENCY_MS_MAX))).collect();
            let board = board_file(telemetry, &streams);
            let daemon = self.daemon(telemetry, &board)?;
            let clients = Clients::start(daemon.addresses()?);
            let summary = daemon.wait()?;
            let counts = clients.finish()?;
            let lost = late_or_dropped(&summary);
            println!("paced streams, telemetry {telemetry:?}: {lost} frames late or dropped; {counts}");
            Ok(lost)
        };
        Ok([run(Telemetry::On)?, run(Telemetry::Off)?])
    }
}

fn late_or_dropped(summary: &Summary) -> u64 {
    let of = |stream: &orinoco_api::StreamSummary| {
        stream.late + stream.dropped.iter().map(|dropped| dropped.frames).sum::<u64>()
    };
    summary.streams.iter().map(of).sum()
}

/// Returns a board file with these sources and bounds of their latency, all of which run the demo model.
fn board_file(telemetry: Telemetry, streams: &[(&str, Option<u32>)]) -> String {
    let model = root().join("models/person-nano");
    let (sensors, control) = match telemetry {
        // Port 0 takes a free one.
        Telemetry::On => ("enabled = true", "socket = 'control.sock'\nlisten = '127.0.0.1:0'"),
        Telemetry::Off => ("enabled = false", "socket = false"),
    };
    let mut text = format!(
        "version = 1\n[sensors]\n{sensors}\n[control]\n{control}\n[[model]]\nname = 'm'\nmodel = '{}'\n\
         [[sink]]\nname = 'log'\nkind = 'jsonl'\npath = '{{stream}}.jsonl'\n",
        model.display()
    );
    for (index, (source, latency)) in streams.iter().enumerate() {
        let latency = latency.map_or_else(String::new, |max| format!("latency_ms_max = {max}\n"));
        text += &format!(
            "[[stream]]\nname = 's{index}'\nsource = '{source}'\nmodels = ['m']\nsinks = ['log']\n{latency}"
        );
    }
    text
}
