//! Energy figures against a simulated board whose power is known. `ORINOCO_TEST_LONG=1` sets 2,000 runs instead of 40, and
//! then as many with other seeds.

mod known;
mod simulated;

use orinoco_core::Rng;
use orinoco_telemetry::energy::Estimate;

use simulated::{MODELS, Scenario};

/// Seeds of the runs that are checked, and those of a second set, of which nothing was known when the method was chosen.
const SEEDS: [u64; 2] = [1_000_000, 9_000_000];

/// Result of one run for one model: the estimate, and the true energy in joules.
type Outcome = (Estimate, f64);

fn outcomes(first_seed: u64, runs: u64) -> Vec<[Outcome; 2]> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64).min(runs);
    let of_thread = |thread: u64| {
        (first_seed + thread..first_seed + runs).step_by(threads as usize).map(outcome).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || of_thread(thread))).collect();
        handles.into_iter().flat_map(|handle| handle.join().expect("a run does not panic")).collect()
    })
}

fn outcome(seed: u64) -> [Outcome; 2] {
    let mut rng = Rng::with_seed(seed);
    let scenario = Scenario::random(&mut rng);
    let run = simulated::run(&scenario, &mut rng);
    [0, 1].map(|model| {
        let energy = &run.report.models.iter().find(|energy| energy.model == MODELS[model]).expect("it ran");
        let estimate = energy.per_item.unwrap_or_else(|reason| panic!("seed {seed}, {scenario:?}: {reason}"));
        (estimate, run.truth[model])
    })
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// Runs, prints and checks one set of seeds.
fn check_coverage(first_seed: u64, runs: u64, covered: std::ops::RangeInclusive<f64>) {
    let outcomes = outcomes(first_seed, runs);
    for (model, name) in ["A", "B"].iter().enumerate() {
        let of_model = || outcomes.iter().map(|run| run[model]);
        let held = of_model()
            .filter(|(estimate, truth)| {
                (estimate.energy.to_f64() - truth).abs() <= estimate.half_width.to_f64()
            })
            .count();
        let sorted = |figure: &dyn Fn(Outcome) -> f64| {
            let mut values: Vec<f64> = of_model().map(figure).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let widths = sorted(&|(estimate, truth)| estimate.half_width.to_f64() / truth * 100.0);
        let errors = sorted(&|(estimate, truth)| (estimate.energy.to_f64() / truth - 1.0) * 100.0);
        let shared = sorted(&|(estimate, _)| estimate.shared);
        let coverage = held as f64 / runs as f64;
        println!(
            "model {name}, {runs} runs from seed {first_seed}: {held} held the truth ({:.2} %); half-width p50 {:.2} %, \
             p90 {:.2} %, p99 {:.2} %, max {:.2} %; error p2.5 {:.2} %, p50 {:.2} %, p97.5 {:.2} %; shared p50 {:.3}",
            coverage * 100.0,
            quantile(&widths, 0.5),
            quantile(&widths, 0.9),
            quantile(&widths, 0.99),
            quantile(&widths, 1.0),
            quantile(&errors, 0.025),
            quantile(&errors, 0.5),
            quantile(&errors, 0.975),
            quantile(&shared, 0.5),
        );
        assert!(covered.contains(&coverage), "model {name}: {held} of {runs}");
        assert!(quantile(&widths, 1.0) <= 4.0, "model {name}: half-width {} %", quantile(&widths, 1.0));
    }
}

#[test]
fn the_error_bar_holds_the_truth_as_often_as_it_says() {
    if std::env::var_os("ORINOCO_TEST_LONG").is_some() {
        SEEDS.iter().for_each(|&seed| check_coverage(seed, 2_000, 0.94..=0.96));
    } else {
        // Four standard deviations of a binomial count below 0.95: 4 * sqrt(0.95 * 0.05 / 40).
        check_coverage(SEEDS[0], 40, 0.812..=1.0);
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
