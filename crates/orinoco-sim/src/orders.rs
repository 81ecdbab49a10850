//! Orders of threads under shuttle: a test runs in many of them, which a seed decides.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};

/// Orders of each kind that a test runs. All tests together take about 20 s.
const ORDERS: usize = 2_500;
/// Points at which an order of the other kind (PCT) prefers another thread: bugs seldom need more.
const DEPTH: usize = 3;
/// An execution that takes more steps than this goes round in circles.
const STEPS_MAX: usize = 100_000;
/// Histograms are built on the stack.
const STACK_BYTES: usize = 1 << 18;
/// Replays one seed.
const SEED: &str = "ORINOCO_SEED";
/// Multiplies the number of orders.
const TIMES: &str = "ORINOCO_SHUTTLE_TIMES";

/// Runs a test in many orders of its threads: random ones, and ones that prefer one thread as long as it can run.
///
/// # Panics
///
/// Panics if the test does, or if its threads wait for one another without end.
pub fn check_orders(test: impl Fn() + Send + Sync + 'static) {
    let test: Arc<dyn Fn() + Send + Sync> = Arc::new(test);
    let (seed, orders) = (number(SEED).unwrap_or(0), ORDERS * number(TIMES).unwrap_or(1) as usize);
    run("random", seed, RandomScheduler::new_from_seed(seed, orders), Arc::clone(&test));
    run("PCT", seed, PctScheduler::new_from_seed(seed, DEPTH, orders), test);
}

fn run(name: &str, seed: u64, scheduler: impl Scheduler + 'static, test: Arc<dyn Fn() + Send + Sync>) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    let runner = Runner::new(scheduler, config);
    let ran = catch_unwind(AssertUnwindSafe(|| runner.run(move || test())));
    if let Err(panic) = ran {
        eprint(&format!("an order of the {name} scheduler fails; run it again with {SEED}={seed}"));
        resume_unwind(panic);
    }
}

#[expect(clippy::print_stderr, reason = "a test says how it is repeated")]
fn eprint(line: &str) {
    eprintln!("{line}");
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {value:?}")))
}
