//! Overhead of telemetry: the daemon with all of it (sensors, energy, control socket, scrapes and status clients) compared with
//! the daemon without. Runs alternate in ABBA order, so that a machine that grows slower or warmer burdens both alike. The sensors are
//! those of a synthetic board: files in a folder.

mod clients;
mod daemon;
mod statistics;
mod synthetic;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use orinoco_api::Summary;

use self::clients::Clients;
use self::daemon::{Daemon, Telemetry};
use self::statistics::{Interval, Sample, interval, median};
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

/// Settings of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Number of pairs of runs.
    pub(crate) pairs: usize,
    /// Number of frames of a run.
    pub(crate) frames: u64,
    /// Runs of which each figure of a pair is the median.
    pub(crate) repeats: usize,
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
        let (with, without) = bench.pair(pair, plan)?;
        println!(
            "pair {:2}: {:.1} us a frame with telemetry, {:.1} without; processor {:.1} and {:.1} us",
            pair + 1,
            with.median.wall_us,
            without.median.wall_us,
            with.median.cpu_us,
            without.median.cpu_us
        );
        pairs.push((with, without));
    }
    let wall = Comparison::of(&pairs, |runs| runs.median.wall_us);
    let cpu = Comparison::of(&pairs, |runs| runs.median.cpu_us);
    let fastest = Comparison::of(&pairs, |runs| runs.fastest.wall_us);
    println!(
        "\n{} pairs, {} frames, each figure the median of {}, all in ABBA order",
        plan.pairs, plan.frames, plan.repeats
    );
    println!("time of a frame, with to without: ratio {}; difference {} us", wall.ratio, wall.difference);
    // What other guests of the host take from the machine slows some runs, and the fastest ones least.
    println!("the same of the fastest runs: ratio {}; difference {} us", fastest.ratio, fastest.difference);
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

/// Runs of a pair with telemetry, or those without.
struct Runs {
    median: Sample,
    fastest: Sample,
}

impl Runs {
    fn of(samples: &[Sample]) -> Self {
        let of = |summary: fn(Vec<f64>) -> f64| Sample {
            wall_us: summary(samples.iter().map(|run| run.wall_us).collect()),
            cpu_us: summary(samples.iter().map(|run| run.cpu_us).collect()),
        };
        let least = |values: Vec<f64>| values.into_iter().fold(f64::INFINITY, f64::min);
        Self { median: of(median), fastest: of(least) }
    }
}

/// Comparison of a figure with telemetry and without.
struct Comparison {
    ratio: Interval,
    /// Difference in microseconds.
    difference: Interval,
}

impl Comparison {
    fn of(pairs: &[(Runs, Runs)], figure: fn(&Runs) -> f64) -> Self {
        let logs: Vec<f64> =
            pairs.iter().map(|(with, without)| (figure(with) / figure(without)).ln()).collect();
        let differences: Vec<f64> =
            pairs.iter().map(|(with, without)| figure(with) - figure(without)).collect();
        Self { ratio: interval(&logs).exp(), difference: interval(&differences) }
    }
}

/// Binaries, the folder of the runs, and that of the synthetic board.
struct Bench {
    orinocod: PathBuf,
    folder: PathBuf,
    sysroot: PathBuf,
}

impl Bench {
    fn new() -> Result<Self> {
        let orinocod = target_dir().join("release/orinocod");
        ensure!(orinocod.is_file(), "{} does not exist: run `make build`", orinocod.display());
        let folder = target_dir().join("overhead");
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let sysroot = folder.join("sysroot");
        synthetic::write(&sysroot)?;
        Ok(Self { orinocod, folder, sysroot })
    }

    /// Measures `repeats` runs with telemetry and as many without, in ABBA order.
    fn pair(&self, pair: usize, plan: &Plan) -> Result<(Runs, Runs)> {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for turn in 0..plan.repeats.max(1) {
            let mut order = [Telemetry::On, Telemetry::Off];
            // Pairs begin in turn with telemetry and without, and so do the runs of each.
            if (pair + turn) % 2 == 1 {
                order.reverse();
            }
            for telemetry in order {
                let runs = if telemetry == Telemetry::On { &mut with } else { &mut without };
                runs.push(self.full_speed(telemetry, plan)?);
            }
        }
        Ok((Runs::of(&with), Runs::of(&without)))
    }

    /// Runs one stream as fast as its model can.
    fn full_speed(&self, telemetry: Telemetry, plan: &Plan) -> Result<Sample> {
        let frames = plan.frames;
        let source = format!("test://ball?width=320&height=240&frames={frames}");
        let board = board_file(telemetry, &[(&source, None)]);
        let daemon = Daemon::start(&self.orinocod, &self.folder, &self.sysroot, &board)?;
        let addresses = daemon.addresses()?;
        let clients = Clients::start(addresses.filter(|_| plan.has_clients));
        let (summary, cpu) = daemon.wait()?;
        clients.finish()?;
        ensure!(
            summary.power.energy_j.is_some() == (telemetry == Telemetry::On),
            "the energy is measured: {}",
            summary.power.source
        );
        let stream = summary.streams.first().context("the summary has no stream")?;
        ensure!(stream.frames_out == frames, "{} of {frames} frames came through", stream.frames_out);
        Ok(Sample { wall_us: 1e6 / stream.fps, cpu_us: cpu.as_secs_f64() * 1e6 / frames as f64 })
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
            let daemon = Daemon::start(&self.orinocod, &self.folder, &self.sysroot, &board)?;
            let clients = Clients::start(daemon.addresses()?);
            let (summary, _) = daemon.wait()?;
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
        "version = 1\n[sensors]\n{sensors}\n[control]\n{control}\n[[model]]\nname = 'm'\nmodel = '{}'\n",
        model.display()
    );
    for (index, (source, latency)) in streams.iter().enumerate() {
        let latency = latency.map_or_else(String::new, |max| format!("latency_ms_max = {max}\n"));
        text += &format!("[[stream]]\nname = 's{index}'\nsource = '{source}'\nmodels = ['m']\n{latency}");
    }
    text
}
