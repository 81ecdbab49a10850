//! Energy figures against a simulated board whose power is known. `ORINOCO_TEST_LONG=1` sets 2,000 runs instead of 40, and
//! adds as many with other seeds.
#![allow(clippy::print_stdout, reason = "the figures, shown with --nocapture")]

mod known;
mod simulated;

use std::fmt;

use orinoco_core::Rng;
use orinoco_telemetry::energy::Estimate;

use simulated::{MODELS, Scenario};

/// First of the seeds of the runs that are checked.
const SEED: u64 = 1_000_000;

/// First of the seeds that were not run before the method was chosen.
const SEED_OF_SECOND_SET: u64 = 9_000_000;

/// Names of the models in what is printed.
const NAMES: [&str; 2] = ["A", "B"];

/// Greatest half-width, in percent of the true energy. A run with a wider one is repeated with other noise.
const HALF_WIDTH_MAX: f64 = 4.0;

/// Share of the cases in which an error bar should hold the truth.
const CONFIDENCE: f64 = 0.95;

/// Number of runs that repeat the scenario of a wide error bar. Their figures may differ from the expected ones by four
/// standard deviations.
const REPEATS: u64 = 200;

/// Length of the blocks of time that the meter compares, in seconds: 2^10 readings of 20 ms or 2^11 of 10 ms, because a run
/// has 16 to 31 blocks. The meter takes the errors of blocks to be independent.
const BLOCK_SECONDS: f64 = 20.48;

/// Result of one run for one model.
#[derive(Clone, Copy)]
struct Outcome {
    estimate: Estimate,
    /// True energy per inference, in joules.
    truth: f64,
    /// Time in which the sensor's cycle drifts by a whole cycle against every second frame, in seconds.
    drift_seconds: f64,
}

impl Outcome {
    fn is_held(&self) -> bool {
        (self.estimate.energy.to_f64() - self.truth).abs() <= self.estimate.half_width.to_f64()
    }

    /// Half-width of the error bar, in percent.
    fn width(&self) -> f64 {
        self.estimate.half_width.to_f64() / self.truth * 100.0
    }

    fn error(&self) -> f64 {
        (self.estimate.energy.to_f64() / self.truth - 1.0) * 100.0
    }
}

/// Calls `run` for every number below `count`, on all processors. Returns the results in the order of the numbers.
fn in_parallel<T: Send>(count: u64, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64).min(count);
    let of_thread =
        |thread| (thread..count).step_by(threads as usize).map(|at| (at, run(at))).collect::<Vec<_>>();
    let mut results: Vec<(u64, T)> = std::thread::scope(|scope| {
        let of_thread = &of_thread;
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || of_thread(thread))).collect();
        handles.into_iter().flat_map(|handle| handle.join().expect("a run does not panic")).collect()
    });
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

fn outcome(seed: u64) -> [Outcome; 2] {
    let mut rng = Rng::with_seed(seed);
    let scenario = Scenario::random(&mut rng);
    outcome_of(&scenario, &mut rng, seed)
}

/// Repeats the scenario of a seed with other noise and another shunt.
fn repeated_outcome(seed: u64, repeat: u64) -> [Outcome; 2] {
    let scenario = Scenario::random(&mut Rng::with_seed(seed));
    // These seeds are above those of all sets, and no two runs share one.
    let seed = seed * REPEATS + repeat;
    let mut rng = Rng::with_seed(seed);
    let scenario = scenario.with_other_gain(&mut rng);
    outcome_of(&scenario, &mut rng, seed)
}

fn outcome_of(scenario: &Scenario, rng: &mut Rng, seed: u64) -> [Outcome; 2] {
    let run = simulated::run(scenario, rng);
    [0, 1].map(|model| {
        let energy = run.report.models.iter().find(|energy| energy.model == MODELS[model]).expect("it ran");
        let estimate = energy.per_item.unwrap_or_else(|reason| panic!("seed {seed}, {scenario:?}: {reason}"));
        Outcome { estimate, truth: run.truth[model], drift_seconds: scenario.drift_seconds(model) }
    })
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the standard deviation.
fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

/// Runs, prints and checks one set of seeds.
fn check_coverage(first_seed: u64, runs: u64, covered: std::ops::RangeInclusive<f64>) {
    let outcomes = in_parallel(runs, |run| outcome(first_seed + run));
    for (model, name) in NAMES.iter().enumerate() {
        let of_model = || outcomes.iter().map(|run| run[model]);
        let held = of_model().filter(Outcome::is_held).count();
        let shares = |figure: fn(&Outcome) -> f64, shares: [f64; 4]| {
            let mut values: Vec<f64> = of_model().map(|outcome| figure(&outcome)).collect();
            values.sort_by(f64::total_cmp);
            shares.map(|share| quantile(&values, share))
        };
        let widths = shares(Outcome::width, [0.5, 0.9, 0.99, 1.0]);
        let errors = shares(Outcome::error, [0.025, 0.5, 0.975, 1.0]);
        let wide = of_model().filter(|outcome| outcome.width() > HALF_WIDTH_MAX).count();
        let coverage = held as f64 / runs as f64;
        println!(
            "model {name}, {runs} runs from seed {first_seed}: {held} held the truth ({:.2} %); half-width in % p50 {:.2}, \
             p90 {:.2}, p99 {:.2}, max {:.2}; above {HALF_WIDTH_MAX}: {wide}; error in % p2.5 {:.2}, p50 {:.2}, p97.5 {:.2}",
            coverage * 100.0,
            widths[0],
            widths[1],
            widths[2],
            widths[3],
            errors[0],
            errors[1],
            errors[2],
        );
        assert!(covered.contains(&coverage), "model {name}: {held} of {runs}");
        assert!(widths[2] <= HALF_WIDTH_MAX, "model {name}: half-width {widths:?}");
    }
    let mut repeats = Vec::new();
    for (seed, run) in (first_seed..).zip(&outcomes) {
        let widths = run.map(|outcome| outcome.width()).into_iter().enumerate();
        let wide = widths.filter(|(_, width)| *width > HALF_WIDTH_MAX);
        repeats.extend(wide.map(|(model, width)| Repeats::run(seed, model, width)));
    }
    check_wide_bars(&repeats);
}

/// Other runs of the scenario of a run whose error bar was wide, for one model.
struct Repeats {
    seed: u64,
    model: usize,
    /// The wide bar's half-width, in percent.
    own_width: f64,
    /// As in [`Outcome`].
    drift_seconds: f64,
    /// Number of runs whose bar held the truth.
    held: u64,
    /// Median half-width, in percent.
    width: f64,
    /// Greatest half-width that is expected by chance, in percent: four standard deviations above the mean.
    width_max: f64,
    /// Size that 95 % of the errors do not exceed, in percent.
    error: f64,
}

impl Repeats {
    fn run(seed: u64, model: usize, own_width: f64) -> Self {
        let outcomes = in_parallel(REPEATS, |repeat| repeated_outcome(seed, repeat)[model]);
        let sorted = |figure: fn(&Outcome) -> f64| {
            let mut values: Vec<f64> = outcomes.iter().map(figure).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let widths = sorted(Outcome::width);
        Self {
            seed,
            model,
            own_width,
            drift_seconds: outcomes[0].drift_seconds,
            held: outcomes.iter().filter(|outcome| outcome.is_held()).count() as u64,
            width: quantile(&widths, 0.5),
            width_max: mean(&widths) + 4.0 * deviation(&widths),
            error: quantile(&sorted(|outcome| outcome.error().abs()), CONFIDENCE),
        }
    }

    fn coverage(&self) -> f64 {
        self.held as f64 / REPEATS as f64
    }

    /// Median half-width as a multiple of what the errors need.
    fn excess(&self) -> f64 {
        self.width / self.error
    }

    fn drift(&self) -> Drift {
        match self.drift_seconds {
            seconds if seconds <= BLOCK_SECONDS => Drift::Fast,
            seconds if seconds <= simulated::SECONDS => Drift::Slow,
            _ => Drift::None,
        }
    }

    fn check(&self) {
        println!("{self}");
        // That a bar is wide by chance is possible as far as others of the scenario scatter.
        assert!(self.own_width <= self.width_max, "{self}");
        let coverage_min = CONFIDENCE - coverage_tolerance(REPEATS);
        match self.drift() {
            Drift::Fast => {
                assert!(self.coverage() >= coverage_min && self.excess() <= excess_max(), "{self}")
            }
            // FIXME: these bars are up to three times as wide as they need be. What one block of the meter sees too much of, a
            // later one sees too little of. The meter takes their errors to be independent, and does not know that they cancel.
            Drift::Slow => {
                assert!(self.coverage() >= coverage_min && self.excess() <= 3.0 * excess_max(), "{self}");
            }
            // FIXME: these bars are too narrow. The sensor sees the same part of the inferences for the whole run, and nothing
            // in the readings shows it.
            Drift::None => assert!(self.coverage() < coverage_min, "{self}"),
        }
    }
}

impl fmt::Display for Repeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, model, own_width, drift_seconds, width, width_max, error, .. } = self;
        write!(
            f,
            "seed {seed}, model {}: half-width {own_width:.2} %; {REPEATS} other runs: {:.1} % held the truth; half-width in % \
             p50 {width:.2}, mean + 4 sd {width_max:.2}, error p95 {error:.2}, ratio {:.2}; the sensor drifts by a \
             cycle in {drift_seconds:.1} s",
            NAMES[*model],
            100.0 * self.coverage(),
            self.excess(),
        )
    }
}

/// Speed at which the sensor's phase changes against the frames of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drift {
    /// A cycle within a block of the meter.
    Fast,
    /// A cycle within the run.
    Slow,
    /// Less than a cycle in the run.
    None,
}

/// Returns four standard deviations of the share of `runs` runs whose bar holds the truth.
fn coverage_tolerance(runs: u64) -> f64 {
    4.0 * (CONFIDENCE * (1.0 - CONFIDENCE) / runs as f64).sqrt()
}

/// Returns the greatest ratio of a right half-width to the 95 % quantile of the errors of [`REPEATS`] runs, which are taken to be
/// normally distributed.
fn excess_max() -> f64 {
    /// Density of the size of a normal error at its 95 % quantile, in standard deviations: twice that of the normal
    /// distribution at 1.96.
    const DENSITY: f64 = 0.1169;
    /// That quantile.
    const QUANTILE: f64 = 1.96;
    // The variance of a quantile of a sample is p (1 - p) / (n * density^2). The quantile is the divisor.
    1.0 / (1.0 - coverage_tolerance(REPEATS) / (DENSITY * QUANTILE))
}

/// Checks that wide error bars are as wide as the errors of the same scenario are large.
fn check_wide_bars(repeats: &[Repeats]) {
    repeats.iter().for_each(Repeats::check);
    let right: Vec<&Repeats> = repeats.iter().filter(|bar| bar.drift() == Drift::Fast).collect();
    let (runs, held) = (REPEATS * right.len() as u64, right.iter().map(|bar| bar.held).sum::<u64>());
    if runs > 0 {
        // The limits of all of them together are close enough to find bars that are a quarter too wide or too narrow.
        let coverage = held as f64 / runs as f64;
        println!("{runs} other runs of scenarios with wide bars: {:.2} % held the truth", coverage * 100.0);
        assert!((coverage - CONFIDENCE).abs() <= coverage_tolerance(runs), "{held} of {runs}");
    }
}

fn is_long() -> bool {
    std::env::var_os("ORINOCO_TEST_LONG").is_some()
}

#[test]
fn the_error_bar_holds_the_truth_as_often_as_it_says() {
    match is_long() {
        true => check_coverage(SEED, 2_000, 0.94..=0.96),
        // Four standard deviations of a binomial count below 0.95: 4 * sqrt(0.95 * 0.05 / 40).
        false => check_coverage(SEED, 40, 0.812..=1.0),
    }
}

#[test]
fn the_error_bar_holds_the_truth_with_seeds_that_were_not_run_before() {
    match is_long() {
        true => check_coverage(SEED_OF_SECOND_SET, 2_000, 0.94..=0.96),
        false => println!("skipped: the second set of seeds (ORINOCO_TEST_LONG is not set)"),
    }
}

#[test]
fn energies_of_two_concurrent_models_are_those_of_the_closed_form() {
    let run = simulated::run(&Scenario::exact(), &mut Rng::with_seed(4));
    for energy in &run.report.models {
        let truth = run.truth[energy.model.index()];
        let estimate = energy.per_item.expect("measured");
        let error = estimate.energy.to_f64() / truth - 1.0;
        println!("{:?}: {estimate:?}, true {truth} J, error {:.2} %", energy.model, error * 100.0);
        assert!(error.abs() <= 0.03, "{error}");
    }
    let board = run.report.total.energy.to_f64();
    assert!((board / run.board - 1.0).abs() < 0.005, "{board} J of {} J", run.board);
}
