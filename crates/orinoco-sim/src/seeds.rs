use std::any::Any;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::Simulator;

/// Environment variable with the one seed to run, to replay a failure.
const SEED: &str = "ORINOCO_SEED";
/// Environment variable with the number of seeds, in place of the test's own number.
const SEEDS: &str = "ORINOCO_SEEDS";

/// Runs a scenario with the seeds 0 to `seeds` - 1, on every core, and returns the number of seeds. `ORINOCO_SEEDS` sets
/// another number; `ORINOCO_SEED` runs only that seed.
///
/// # Panics
///
/// Panics if a seed fails. The message has the seed, the scenario's own message and the latest steps, for which the seed is
/// run a second time.
pub fn check_seeds(seeds: u64, scenario: impl Fn(&mut Simulator) + Sync) -> u64 {
    let (first, count) = match (number(SEED), number(SEEDS)) {
        (Some(seed), _) => (seed, 1),
        (None, asked) => (0, asked.unwrap_or(seeds)),
    };
    check(first, count, scenario);
    count
}

fn check(first: u64, count: u64, scenario: impl Fn(&mut Simulator) + Sync) {
    let next = AtomicU64::new(first);
    let failed = Mutex::new(None);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first.saturating_add(count) || lock(&failed).is_some() {
                return;
            }
            if run(&mut Simulator::new(seed), &scenario).is_err() {
                lock(&failed).get_or_insert(seed);
            }
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        for _ in 1..cores.min(usize::try_from(count).unwrap_or(usize::MAX)) {
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
        check(2, 40, |simulator| {
            seen.lock().expect("not poisoned").push(simulator.rng().u64(..));
        });
        let mut seen = seen.into_inner().expect("not poisoned");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 40, "each has a chance of its own");
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
        let failure = catch_unwind(|| check(0, 64, scenario)).expect_err("some seed draws it");
        let words = message(&*failure);
        let seed = words.split_whitespace().nth(1).expect("its seed");
        assert!(words.contains("two is forbidden"), "{words}");
        assert!(words.contains(&format!("ORINOCO_SEED={seed}\n")), "{words}");
        assert!(words.ends_with("1.500 ms  drew 2\n"), "{words}");
    }
}
