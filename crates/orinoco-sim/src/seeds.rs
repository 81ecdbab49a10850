use std::any::Any;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Simulator;

/// Environment variable with the one seed to run, to replay a failure.
const SEED: &str = "ORINOCO_SEED";
/// Environment variable with the number of seeds, in place of the test's own number.
const SEEDS: &str = "ORINOCO_SEEDS";

/// Environment variable with a time in minutes. Seeds are run for that long, in place of a number of them.
const MINUTES: &str = "ORINOCO_SEED_MINUTES";

/// Seeds that are run, counted from the first one.
#[derive(Clone, Copy)]
enum Extent {
    Count(u64),
    Time(Duration),
}

/// Runs a scenario with the seeds 0 to `seeds` - 1, on every core, and returns the number of seeds that were run.
/// `ORINOCO_SEEDS` sets another number, `ORINOCO_SEED_MINUTES` a time instead; `ORINOCO_SEED` runs only that seed.
///
/// # Panics
///
/// Panics if a seed fails. The message has the seed, the scenario's own message and the latest steps, for which the seed is
/// run a second time.
pub fn check_seeds(seeds: u64, scenario: impl Fn(&mut Simulator) + Sync) -> u64 {
    let (first, extent) = match (number(SEED), number(SEEDS), number(MINUTES)) {
        (Some(seed), ..) => (seed, Extent::Count(1)),
        (None, Some(seeds), _) => (0, Extent::Count(seeds)),
        (None, None, Some(minutes)) => (0, Extent::Time(Duration::from_secs(60 * minutes))),
        (None, None, None) => (0, Extent::Count(seeds)),
    };
    check(first, extent, scenario)
}

#[expect(clippy::disallowed_methods, reason = "how long a test runs is real time; what it tests is not")]
fn check(first: u64, extent: Extent, scenario: impl Fn(&mut Simulator) + Sync) -> u64 {
    let (next, done) = (AtomicU64::new(first), AtomicU64::new(0));
    let failed = Mutex::new(None);
    let start = Instant::now();
    let is_over = |seed: u64| match extent {
        Extent::Count(count) => seed >= first.saturating_add(count),
        Extent::Time(time) => start.elapsed() >= time,
    };
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if is_over(seed) || lock(&failed).is_some() {
                return;
            }
            done.fetch_add(1, Ordering::Relaxed);
            if run(&mut Simulator::new(seed), &scenario).is_err() {
                lock(&failed).get_or_insert(seed);
            }
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        for _ in 1..cores {
            scope.spawn(work);
        }
        work();
    });
    if let Some(seed) = *lock(&failed) {
        let mut simulator = Simulator::traced(seed);
        let why = run(&mut simulator, &scenario)
            .err()
            .unwrap_or_else(|| "it did not fail again: it depends on more than its seed".to_owned());
        let (now, trace) = (simulator.now().0 as f64 / 1e6, simulator.trace());
        panic!("seed {seed} fails at {now:.3} ms: {why}\nrun it again with {SEED}={seed}\n{trace}");
    }
    done.into_inner()
}

fn run(simulator: &mut Simulator, scenario: &impl Fn(&mut Simulator)) -> Result<(), String> {
    // State that a scenario leaves half done is dropped with it, and a simulator holds only counts and queues: unwinding is
    // safe.
    catch_unwind(AssertUnwindSafe(|| scenario(simulator))).map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {value:?}")))
}

fn lock(failed: &Mutex<Option<u64>>) -> std::sync::MutexGuard<'_, Option<u64>> {
    failed.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_core::Nanos;

    #[test]
    fn all_seeds_run_once() {
        let seen = Mutex::new(Vec::new());
        let count = check(2, Extent::Count(40), |simulator| {
            seen.lock().expect("not poisoned").push(simulator.rng().u64(..));
        });
        let mut seen = seen.into_inner().expect("not poisoned");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!((count, seen.len()), (40, 40), "each has a chance of its own");
    }

    #[test]
    fn a_failure_names_its_seed_and_the_latest_steps() {
        let scenario = |simulator: &mut Simulator| {
            let task = simulator.add_task();
            simulator.next(Nanos(0));
            simulator.work(task, Nanos(1_500_000));
            simulator.next(Nanos(u64::MAX));
            let drawn = simulator.rng().u32(..4);
            simulator.note(|| format!("drew {drawn}"));
            assert_ne!(drawn, 2, "two is forbidden");
        };
        let failure = catch_unwind(|| check(0, Extent::Count(64), scenario)).expect_err("some seed draws it");
        let words = message(&*failure);
        let seed = words.split_whitespace().nth(1).expect("its seed");
        assert!(words.contains("two is forbidden"), "{words}");
        assert!(words.contains(&format!("ORINOCO_SEED={seed}\n")), "{words}");
        assert!(words.ends_with("1.500 ms  drew 2\n"), "{words}");
    }
}
