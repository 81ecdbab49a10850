use super::*;
use crate::Quiet;
use crate::event_log::EventLog;
use crate::monitor::ListedStream;
use crate::summary::unused_model;
use crate::testing::shared;
use orinoco_core::{ComputeUnit, LaneId, ModelId, StreamId, TimeSpan};
use orinoco_telemetry::{Stage, Telemetry};
use std::fs;
use std::path::Path;

const MS: u64 = 1_000_000;
/// Time in which the synthetic chip makes a new value: one conversion of the shunt's voltage, then one of the bus voltage.
const UPDATE: u64 = 10 * MS;
const CONVERSION: u64 = UPDATE / 2;
const INTERVAL: Duration = Duration::from_millis(100);
const IDLE_WATTS: f64 = 4.0;

/// Begins to sample at time zero.
fn begun(sysroot: &Sysroot, feed: WorkFeed, monitor: Monitor) -> Sampling {
    let mut sampling = Sampling::new(sysroot, INTERVAL, Rng::with_seed(7), feed, monitor);
    sampling.begin(Nanos(0));
    sampling
}

/// One model on a lane of its own, which works for `work` and then rests for a random time.
struct Load {
    watts: f64,
    work: u64,
    rest_max: u64,
    spans: Vec<TimeSpan>,
    emitted: usize,
    lane: LaneId,
    model: ModelId,
    stream: StreamId,
}

impl Load {
    /// Returns the time in nanoseconds for which the model works between `from` and `to`.
    fn busy(&self, from: u64, to: u64) -> u64 {
        let overlap = |span: &TimeSpan| span.end().0.min(to).saturating_sub(span.start().0.max(from));
        let first = self.spans.partition_point(|span| span.end().0 <= from);
        self.spans[first..].iter().take_while(|span| span.start().0 < to).map(overlap).sum()
    }
}

/// Synthetic board with one INA3221 channel, whose power follows the loads.
struct Synthetic {
    dir: tempfile::TempDir,
    telemetry: Telemetry,
    monitor: Monitor,
    loads: Vec<Load>,
}

impl Synthetic {
    fn new(loads: &[(f64, u64, u64)], end: u64) -> Self {
        let (dir, telemetry) = (tempfile::tempdir().expect("temporary folder"), Telemetry::default());
        put_chip(dir.path());
        let events = Arc::new(EventLog::new(Arc::new(Quiet), shared().clock));
        let monitor = Monitor::new(shared().clock, telemetry.clone(), events, "synthetic");
        let mut rng = Rng::with_seed(3);
        let mut load = |(index, &(watts, work, rest_max)): (usize, &(f64, u64, u64))| {
            let (stream, model) = (telemetry.add_stream(&index.to_string()), telemetry.add_model());
            let listed = ListedStream {
                name: index.to_string(),
                source: String::new(),
                lane: index,
                models: vec![model],
            };
            monitor.directory_mut().add_model(model, unused_model(&listed.name, "tract", 1));
            monitor.directory_mut().join(stream, listed);
            let (mut spans, mut at) = (Vec::new(), 1_000 * MS);
            while at < end {
                spans.push(TimeSpan::new(Nanos(at), Nanos(at + work)));
                at += work + rng.u64(0..rest_max);
            }
            let lane = LaneId::from_index(index);
            Load { watts, work, rest_max, spans, emitted: 0, lane, model, stream }
        };
        let loads = loads.iter().enumerate().map(&mut load).collect();
        Self { dir, telemetry, monitor, loads }
    }

    /// Emits the batches that have ended by `now`, and writes what the chip shows then.
    fn advance(&mut self, now: Nanos) {
        // The latest conversion of the shunt's voltage that is over.
        let shown_until = (now.0 + UPDATE - CONVERSION) / UPDATE * UPDATE;
        let shown_until = shown_until.saturating_sub(UPDATE - CONVERSION);
        let mut watts = IDLE_WATTS;
        for load in &mut self.loads {
            let (model, lane) = (self.telemetry.model(load.model), self.telemetry.lane(load.lane));
            while let Some(&span) = load.spans.get(load.emitted).filter(|span| span.end() <= now) {
                model.batch(&lane, ComputeUnit::Cpu, [load.stream].into_iter(), &[(Stage::Infer, span)]);
                let seq = load.emitted as u64;
                self.telemetry.stream(load.stream).emitter().result(seq, 0, None, span.end());
                load.emitted += 1;
            }
            let busy = load.busy(shown_until.saturating_sub(CONVERSION), shown_until);
            watts += load.watts * busy as f64 / CONVERSION as f64;
        }
        let milliamperes = (watts / 5.0 * 1e3).round();
        put(self.dir.path(), "curr1_input", &format!("{milliamperes}\n"));
    }

    /// Samples until `end`, and returns the latest readings.
    fn run(&mut self, end: u64) -> Arc<Latest> {
        self.run_with_change(end, u64::MAX, |_| {})
    }

    /// Samples until `end`, makes a change at a time, and returns the latest readings.
    fn run_with_change(&mut self, end: u64, change_at: u64, change: impl FnOnce(&mut Self)) -> Arc<Latest> {
        let mut change = Some(change);
        self.advance(Nanos(0));
        let feed = self.telemetry.subscribe_work().expect("nobody reads it");
        let sysroot = Sysroot::at(self.dir.path());
        let mut sampling = begun(&sysroot, feed, self.monitor.clone());
        let mut now = Nanos(0);
        while now.0 < end {
            if let Some(change) = change.take_if(|_| now.0 >= change_at) {
                change(self);
            }
            self.advance(now);
            now = sampling.step(now);
        }
        self.advance(now);
        sampling.finish(now);
        self.monitor.readings().latest()
    }
}

fn put(root: &Path, name: &str, text: &str) {
    put_file(root, &format!("sys/class/hwmon/hwmon3/{name}"), text);
}

fn put_file(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

fn put_chip(root: &Path) {
    fs::create_dir_all(root.join("sys/class/hwmon/hwmon3")).expect("made");
    let files = [
        ("name", "ina3221\n"),
        ("in1_label", "VDD_IN\n"),
        ("in1_input", "5000\n"),
        ("shunt1_resistor", "5000\n"),
        ("update_interval", "10\n"),
        ("curr1_input", "800\n"),
    ];
    files.iter().for_each(|(name, text)| put(root, name, text));
}

#[test]
fn energy_of_two_models_that_overlap_is_within_3_percent_of_the_closed_form() {
    const END: u64 = 900_000 * MS;
    let mut board = Synthetic::new(&[(6.0, 30 * MS, 140 * MS), (3.0, 20 * MS, 100 * MS)], END);
    let latest = board.run(END);
    let report = latest.energy.as_ref().unwrap_or_else(|why| panic!("{why}"));
    for (load, energy) in board.loads.iter().zip(&report.models) {
        let exact = load.watts * load.work as f64 * 1e-9;
        let seen = energy.per_item.unwrap_or_else(|why| panic!("{why}"));
        let error = (seen.energy.to_f64() / exact - 1.0).abs();
        assert!(error <= 0.03, "{:?} instead of {exact} J (rest up to {} ns)", seen, load.rest_max);
        let of_stream =
            report.streams.iter().find(|energy| energy.stream == load.stream).expect("it has one");
        let per_frame = of_stream.per_frame.unwrap_or_else(|why| panic!("{why}"));
        assert!((per_frame.energy.to_f64() / exact - 1.0).abs() <= 0.03, "{per_frame:?}");
    }
    // The counter of the rail is the integral of the whole power.
    let busy: f64 = board.loads.iter().map(|load| load.watts * load.busy(0, END) as f64 * 1e-9).sum();
    let exact = IDLE_WATTS * END as f64 * 1e-9 + busy;
    let seen = report.total.energy.to_f64();
    assert!((seen / exact - 1.0).abs() <= 0.01, "{seen} instead of {exact} J");
    assert_eq!(latest.sensors.rails[0].name, "VDD_IN");
    assert_eq!(latest.sensors.rails[0].joules, Some(seen));
}

#[test]
fn energy_after_a_change_of_a_clock_limit_is_measured_from_new() {
    const END: u64 = 600_000 * MS;
    const LIMIT: &str = "sys/class/devfreq/17000000.gpu/max_freq";
    let mut board = Synthetic::new(&[(9.0, 30 * MS, 140 * MS)], END);
    put_file(board.dir.path(), LIMIT, "918000000\n");
    // From the middle of the run on, between two looks at the settings, the model needs a third of its power.
    let change = |board: &mut Synthetic| {
        put_file(board.dir.path(), LIMIT, "306000000\n");
        board.loads[0].watts = 3.0;
    };
    let latest = board.run_with_change(END, END / 2 + 500 * MS, change);
    let report = latest.energy.as_ref().unwrap_or_else(|why| panic!("{why}"));
    let exact = 3.0 * board.loads[0].work as f64 * 1e-9;
    let seen = report.models[0].per_item.unwrap_or_else(|why| panic!("{why}"));
    assert!((seen.energy.to_f64() / exact - 1.0).abs() <= 0.03, "{seen:?} instead of {exact} J");
    let total = report.models[0].total.unwrap_or_else(|why| panic!("{why}")).energy.to_f64();
    let all = board.loads[0].emitted as f64 * 2.0 * exact;
    assert!((total / all - 1.0).abs() <= 0.05, "{total} J instead of {all} J, half at three times the power");
}

/// Checks in which of several looks, each with another content of a file, the settings have changed.
fn check_looks<const N: usize>(file: &str, looks: [&str; N], expected: [bool; N]) {
    let dir = tempfile::tempdir().expect("temporary folder");
    let sysroot = Sysroot::at(dir.path());
    let mut settings = PowerSettings::default();
    let is_changed = |text: &str| {
        put_file(dir.path(), file, text);
        let mut snapshot = Snapshot::default();
        Sensors::discover(&sysroot).read(Nanos(0), &mut snapshot);
        settings.update(&sysroot, &snapshot)
    };
    assert_eq!(looks.map(is_changed), expected, "{file}");
}

#[test]
fn a_power_mode_or_a_limit_has_changed_when_it_has_held_for_two_looks() {
    let modes = ["pmode:0002 fmode:quiet", "pmode:0002 fmode:cool", "pmode:0000", "pmode:0000", "pmode:0000"];
    check_looks("var/lib/nvpmodel/status", modes, [false, false, false, true, false]);
    let limits = ["1728000", "1728000", "115200", "115200"];
    check_looks(
        "sys/devices/system/cpu/cpufreq/policy0/scaling_min_freq",
        limits,
        [false, false, false, true],
    );
    // Unreadable, then lower for a moment, then lower for good.
    let limits = ["918000000", "918000000", "nonsense", "306000000", "918000000", "306000000", "306000000"];
    let expected = [false, false, false, false, false, false, true];
    check_looks("sys/class/devfreq/17000000.gpu/max_freq", limits, expected);
}

#[test]
fn a_board_without_power_sensors_says_so_and_shows_its_other_sensors() {
    let mut board = Synthetic::new(&[(1.0, MS, MS)], 10 * MS);
    fs::remove_dir_all(board.dir.path().join("sys/class/hwmon/hwmon3")).expect("removed");
    let zone = board.dir.path().join("sys/class/thermal/thermal_zone0");
    fs::create_dir_all(&zone).expect("made");
    fs::write(zone.join("type"), "cpu-thermal\n").expect("written");
    fs::write(zone.join("temp"), "41500\n").expect("written");
    let feed = board.telemetry.subscribe_work().expect("nobody reads it");
    let sysroot = Sysroot::at(board.dir.path());
    let mut sampling = begun(&sysroot, feed, board.monitor.clone());
    board.loads.clear();
    fs::write(zone.join("temp"), "43000\n").expect("written");
    assert_eq!(sampling.step(Nanos(500 * MS)), Nanos(1_000 * MS));
    let celsius = |latest: &Latest| latest.sensors.temperatures[0].celsius;
    assert_eq!(celsius(&board.monitor.readings().latest()), Some(41.5));
    sampling.step(Nanos(1_000 * MS));
    let latest = board.monitor.readings().latest();
    assert_eq!(celsius(&latest), Some(43.0));
    let why = latest.energy.as_ref().expect_err("no rail");
    assert!(why.starts_with("this machine has no power sensor"), "{why}");
}

#[test]
fn rails_that_answer_later_are_measured_from_then_on() {
    let board = Synthetic::new(&[], 0);
    put(board.dir.path(), "curr1_input", "nonsense\n");
    let feed = board.telemetry.subscribe_work().expect("nobody reads it");
    let sysroot = Sysroot::at(board.dir.path());
    let mut sampling = begun(&sysroot, feed, board.monitor.clone());
    let energy = || board.monitor.readings().latest().energy.clone();
    assert!(energy().is_err());
    put(board.dir.path(), "curr1_input", "800\n");
    let run = |sampling: &mut Sampling, end: u64| {
        let mut now = Nanos(0);
        while now.0 < end {
            now = sampling.step(now);
        }
    };
    run(&mut sampling, 29_000 * MS);
    assert!(energy().is_err(), "it is not looked for at every reading");
    run(&mut sampling, 60_000 * MS);
    let joules = energy().unwrap_or_else(|why| panic!("{why}")).total.energy.to_f64();
    assert!((100.0..=120.0).contains(&joules), "4 W for about 28 s: {joules} J");
}

#[test]
fn the_thread_ends_with_its_owner() {
    let board = Synthetic::new(&[], 0);
    let feed = board.telemetry.subscribe_work().expect("nobody reads it");
    let sysroot = Sysroot::at(board.dir.path());
    let sampler = Sampler::start(sysroot, INTERVAL, &shared(), feed, &board.monitor);
    let sampler = sampler.expect("threads start");
    assert!(board.telemetry.subscribe_work().is_none(), "the thread reads the feed");
    drop(sampler);
    assert!(board.telemetry.subscribe_work().is_some(), "the thread has dropped the feed");
    assert_eq!(board.monitor.readings().latest().sensors.rails[0].name, "VDD_IN", "it has published");
}
