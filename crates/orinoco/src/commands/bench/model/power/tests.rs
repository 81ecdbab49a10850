//! Energy on synthetic boards (no value in them was measured) whose power follows a known curve, in virtual time.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use orinoco_board::readers::{GpuDevices, GpuInfo, GpuPower, GpuReading, Unknown};
use orinoco_core::{Joules, Rng, Signal, WallTime};
use orinoco_runtime::EnergyRails;
use orinoco_sysroot::Sysroot;
use tempfile::TempDir;

use super::*;
use crate::commands::energy::{RailSample, Sampler, attribute, burst_length};

const MS: u64 = 1_000_000;
/// Power of the idle board, and of each model while it is busy, in watts.
const IDLE: f64 = 5.0;
const WATTS: [f64; 2] = [6.0, 3.5];
/// Duration of one inference of each model, in nanoseconds.
const INFERENCE: [u64; 2] = [7 * MS, 11 * MS];
/// Time for which each model works.
const BUSY: Duration = Duration::from_secs(10);

/// Time that moves when somebody waits or works.
#[derive(Clone, Default)]
struct VirtualClock(Arc<AtomicU64>);

impl Clock for VirtualClock {
    fn now(&self) -> Nanos {
        Nanos(self.0.load(Ordering::Relaxed))
    }

    fn wall(&self) -> WallTime {
        WallTime::from_unix_nanos(1)
    }

    fn signal(&self) -> Arc<dyn Signal> {
        Arc::new(self.clone())
    }
}

impl Signal for VirtualClock {
    fn notify(&self) {}

    fn wait(&self, until: Option<Nanos>) {
        let until = until.expect("every wait here has an end");
        self.0.fetch_max(until.0, Ordering::Relaxed);
    }
}

/// Power of the board over time.
#[derive(Default)]
struct Curve {
    /// Start and end of each inference in nanoseconds, with its power in watts.
    busy: Vec<(u64, u64, f64)>,
}

impl Curve {
    /// Returns the energy up to a time, in joules.
    fn energy(&self, until: u64) -> f64 {
        let before = &self.busy[..self.busy.partition_point(|(start, ..)| *start < until)];
        let watt_nanos: f64 =
            before.iter().map(|(start, end, watts)| (until.min(*end) - start) as f64 * watts).sum();
        (IDLE * until as f64 + watt_nanos) / 1e9
    }

    /// Returns the mean power between two times, in watts.
    fn mean(&self, from: u64, to: u64) -> f64 {
        (self.energy(to) - self.energy(from)) / ((to - from) as f64 / 1e9)
    }
}

/// Folder of a synthetic board.
struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn write(&self, path: &str, text: &str) -> &Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, format!("{text}\n")).expect("written");
        self
    }

    fn chip(&self, number: u32, files: &[(&str, &str)]) -> &Self {
        files.iter().for_each(|(name, text)| {
            self.write(&format!("sys/class/hwmon/hwmon{number}/{name}"), text);
        });
        let device = format!("../../../bus/i2c/devices/1-004{number}");
        let link = self.0.path().join(format!("sys/class/hwmon/hwmon{number}/device"));
        std::os::unix::fs::symlink(device, link).expect("a link");
        self
    }

    fn board(&self) -> BoardSensors {
        BoardSensors::find(Sysroot::at(self.0.path()))
    }
}

/// Adds an INA3221 with one rail at 19 V: one conversion of 2 ms for each of the two voltages.
fn add_ina3221(tree: &Tree, label: &str) {
    let files = [
        ("name", "ina3221"),
        ("in1_label", label),
        ("in1_input", "19000"),
        ("curr1_input", "264"),
        ("shunt1_resistor", "5000"),
        ("update_interval", "4"),
        ("samples", "1"),
    ];
    tree.chip(0, &files);
}

/// Folder of the processor's energy counter.
const RAPL: &str = "sys/class/powercap/intel-rapl:0";
/// Value of the counter, in microjoules, after which it starts again.
const RAPL_RANGE: u64 = 262_143_328_850;

/// Adds the energy counter of a processor.
fn add_rapl(tree: &Tree) {
    tree.write(&format!("{RAPL}/name"), "package-0");
    tree.write(&format!("{RAPL}/max_energy_range_uj"), &RAPL_RANGE.to_string());
    tree.write(&format!("{RAPL}/energy_uj"), "0");
}

/// Sets the counter for a time. It is updated each millisecond, in steps of 61 µJ, and starts near its end.
fn write_rapl(tree: &Tree, curve: &Curve, now: u64) {
    let joules = curve.energy(now / MS * MS);
    let microjoules = (RAPL_RANGE - 90_000_000 + (joules * 1e6 / 61.0) as u64 * 61) % RAPL_RANGE;
    tree.write(&format!("{RAPL}/energy_uj"), &microjoules.to_string());
}

/// Energy counter of a synthetic discrete GPU, in microjoules.
#[derive(Clone, Debug, Default)]
struct GpuCounter(Arc<AtomicU64>);

impl GpuCounter {
    /// Returns the sensors of a board with this GPU.
    fn sensors(&self, tree: &Tree) -> Sensors {
        let info = GpuInfo { name: "card".to_owned(), address: String::new(), counts_energy: true };
        Sensors::discover(&Sysroot::at(tree.0.path())).with_gpus(Ok(Box::new(Gpu([info], self.clone()))))
    }

    /// Sets the counter for a time. It is updated every 100 ms, in steps of 1 mJ.
    fn set(&self, curve: &Curve, now: u64) {
        let millijoules = (curve.energy(now / (100 * MS) * (100 * MS)) * 1e3) as u64;
        self.0.store(millijoules * 1_000, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Gpu([GpuInfo; 1], GpuCounter);

impl GpuDevices for Gpu {
    fn gpus(&self) -> &[GpuInfo] {
        &self.0
    }

    fn read_power(&mut self, _: usize) -> GpuPower {
        let microjoules = self.1.0.load(Ordering::Relaxed).cast_signed();
        GpuPower { watts: Err(Unknown::NotOffered), joules: Ok(Joules::from_micro(microjoules)) }
    }

    fn read(&mut self, index: usize) -> GpuReading {
        GpuReading { power: self.read_power(index), ..GpuReading::unknown(&Unknown::NotOffered) }
    }
}

/// Executes two models by the plan of a measurement, in virtual time.
fn work(burst: Duration, seed: u64) -> (Curve, Vec<BatchRecord>, u64) {
    let clock = VirtualClock::default();
    let mut curve = Curve::default();
    let infer = |subject: usize| {
        let start = clock.now().0;
        let end = start + INFERENCE[subject];
        curve.busy.push((start, end, WATTS[subject]));
        clock.0.store(end, Ordering::Relaxed);
        Ok(())
    };
    let plan = LoadPlan::new(Nanos(0), burst, BUSY, 2, Rng::with_seed(seed));
    let batches = execute(infer, plan, &clock).expect("nothing fails");
    (curve, batches, clock.now().0)
}

/// Samples the rails at the times of the sampler. `set` writes the board's files for a time.
fn sample(mut sampler: Sampler<'_>, end: u64, mut set: impl FnMut(u64)) -> Vec<RailSample> {
    let mut now = Nanos(0);
    loop {
        now = sampler.next(now);
        if now.0 >= end {
            return sampler.into_samples();
        }
        set(now.0);
        sampler.read(now);
        now = now + Duration::from_nanos(1);
    }
}

/// Checks both models: every figure is within `share` of the truth, and so is its bar. Returns how many bars of 95 % hold the
/// truth, of 6.
fn check_figures(figures: &[PowerFigures], share: f64) -> usize {
    let mut held = 0;
    for (index, figures) in figures.iter().enumerate() {
        let energy = figures.energy.value().unwrap_or_else(|| panic!("{:?}", figures.energy));
        let power = figures.power.value().expect("measured");
        let busy = power.busy.value().expect("measured");
        assert!(energy.statistical <= energy.half_width && energy.systematic > 0.0, "{energy:?}");
        for (found, half_width, truth) in [
            (energy.value, energy.half_width, WATTS[index] * INFERENCE[index] as f64 / 1e6),
            (power.idle.value, power.idle.half_width, IDLE),
            (busy.value, busy.half_width, IDLE + WATTS[index]),
        ] {
            let text = format!("{found} ± {half_width}, in truth {truth}");
            assert!((found - truth).abs() <= share * truth && half_width <= 2.0 * share * truth, "{text}");
            held += usize::from((found - truth).abs() <= half_width);
        }
    }
    held
}

fn choose(board: &mut BoardSensors, unit: ComputeUnit, now: Nanos) -> Result<EnergyRails, String> {
    let rails = EnergyRails::choose(&mut board.sensors, &board.detection, unit, None, now);
    rails.map_err(|why| why.to_string())
}

fn measurement(rails: &EnergyRails, samples: &[RailSample], batches: &[BatchRecord]) -> Measurement {
    Measurement {
        settings: rails.settings().clone(),
        report: attribute(rails.settings(), Nanos(0), samples, batches),
        readings: samples.len(),
        batches: batches.to_vec(),
    }
}

/// Returns the figures of both models from the samples.
fn evaluate(rails: &EnergyRails, samples: &[RailSample], batches: &[BatchRecord]) -> Vec<PowerFigures> {
    let measured = measurement(rails, samples, batches);
    (0..2).map(|index| figures(&measured, index)).collect()
}

#[test]
fn energy_of_a_known_curve_is_within_its_bar() {
    const RUNS: u64 = 6;
    let mut held = 0;
    for seed in 0..RUNS {
        // The gain is anywhere within the tolerance of 1 %.
        let gain = 1.0 + 0.01 * (2.0 * Rng::with_seed(seed).f64() - 1.0);
        let tree = Tree::new();
        add_ina3221(&tree, "VDD_IN");
        let mut board = tree.board();
        let rails = choose(&mut board, ComputeUnit::Cpu, Nanos(0)).expect("there is a rail");
        assert_eq!(rails.settings().covers, Covers::Input);
        let (curve, batches, end) = work(burst_length(&rails.settings().sensor), seed);
        let mut noise = Rng::with_seed(seed + 100);
        let times = rails.reading_times(Nanos(0), Rng::with_seed(seed + 200));
        let sampler = Sampler::new(&mut board.sensors, times);
        let samples = sample(sampler, end, |now| {
            // The latest conversion of the shunt's voltage that is over; the chip's clock has a phase of its own.
            let conversion_end = ((now + MS) / (4 * MS) * (4 * MS)).saturating_sub(MS).max(2 * MS);
            let power =
                gain * curve.mean(conversion_end - 2 * MS, conversion_end) + 0.2 * (noise.f64() - 0.5);
            let step = 40e-6 / 5e-3;
            let milliamperes = (power / 19.0 / step).round() * step * 1e3;
            tree.write("sys/class/hwmon/hwmon0/curr1_input", &format!("{milliamperes:.0}"));
        });
        held += check_figures(&evaluate(&rails, &samples, &batches), 0.03);
    }
    // Of 36 bars of 95 %, 34 are expected to hold.
    assert!(held >= 32, "{held} of {} bars hold the truth", 6 * RUNS);
}

#[test]
fn energy_counters_are_read_at_regular_times() {
    let tree = Tree::new();
    add_rapl(&tree);
    let mut board = tree.board();
    let rails = choose(&mut board, ComputeUnit::Cpu, Nanos(0)).expect("there is a counter");
    assert_eq!(rails.settings().covers, Covers::NamedRails);
    let (curve, batches, end) = work(burst_length(&rails.settings().sensor), 5);
    let times = rails.reading_times(Nanos(0), Rng::with_seed(6));
    let sampler = Sampler::new(&mut board.sensors, times);
    let samples = sample(sampler, end, |now| {
        write_rapl(&tree, &curve, now);
    });
    assert_eq!(samples[0].powers, [None], "a counter needs a second reading");
    // The tolerance of what a processor reports itself is 5 %.
    let held = check_figures(&evaluate(&rails, &samples, &batches), 0.05);
    assert_eq!(held, 6, "this counter has no error of its gain");
}

#[test]
fn a_board_that_never_works_has_no_energy() {
    let tree = Tree::new();
    add_ina3221(&tree, "VDD_IN");
    let mut board = tree.board();
    let rails = choose(&mut board, ComputeUnit::Cpu, Nanos(0)).expect("there is a rail");
    let figures = figures(&measurement(&rails, &[], &[]), 0);
    assert_eq!(figures.energy.reason(), Some("nothing was executed yet; measure longer with --seconds"));
    assert_eq!(figures.power.reason(), Some("the board was never idle; measure longer with --seconds"));
}

/// Model 0 computes on the processor, and model 1 on a discrete GPU. Each changes the power of its unit only.
#[test]
fn models_on_the_processor_and_on_a_gpu_are_measured_by_the_rails_of_their_units() {
    const UNITS: [ComputeUnit; 2] = [ComputeUnit::Cpu, ComputeUnit::Gpu];
    let (tree, gpu) = (Tree::new(), GpuCounter::default());
    add_rapl(&tree);
    let mut sensors = UNITS.map(|unit| (unit, gpu.sensors(&tree)));
    let mut meters = Meters::choose(&mut sensors, &tree.board().detection, Nanos(0));
    let (curve, batches, end) = work(meters.burst().expect("there are meters"), 7);
    let part = |model: usize| Curve {
        busy: curve.busy.iter().copied().filter(|(.., watts)| *watts == WATTS[model]).collect(),
    };
    let (of_cpu, of_gpu) = (part(0), part(1));
    let mut measured = Vec::new();
    for meter in &mut meters.meters {
        let samples = sample(meter.sampler(Nanos(0)), end, |now| {
            write_rapl(&tree, &of_cpu, now);
            gpu.set(&of_gpu, now);
        });
        measured.push(meter.measurement(Nanos(0), &samples, batches.clone()));
    }
    let figures = meters.figures(&UNITS, &measured);
    check_figures(&figures, 0.05);
    let rails: Vec<_> = figures.iter().map(|of| &of.power.value().expect("measured").rails[..]).collect();
    assert_eq!(rails, [["package-0"], ["GPU"]]);
}

#[test]
fn units_with_the_same_rails_have_one_meter() {
    let tree = Tree::new();
    add_ina3221(&tree, "VDD_IN");
    let mut sensors = ComputeUnit::ALL.map(|unit| (unit, tree.board().sensors));
    let meters = Meters::choose(&mut sensors, &tree.board().detection, Nanos(0));
    assert_eq!(meters.meters.len(), 1);
    assert_eq!(meters.of_unit, ComputeUnit::ALL.map(|unit| (unit, Ok(0))));
}

#[test]
fn a_model_on_the_processor_is_not_measured_by_the_rail_of_a_gpu() {
    let (tree, gpu) = (Tree::new(), GpuCounter::default());
    let mut sensors = ComputeUnit::ALL.map(|unit| (unit, gpu.sensors(&tree)));
    let meters = Meters::choose(&mut sensors, &tree.board().detection, Nanos(0));
    let figures = meters.figures(&[ComputeUnit::Cpu], &[]);
    let reason = figures[0].energy.reason().expect("not measured");
    assert!(reason.starts_with("only the GPU's own power can be read"), "{reason}");
    assert_eq!(meters.of_unit[1], (ComputeUnit::Gpu, Ok(0)));
}
