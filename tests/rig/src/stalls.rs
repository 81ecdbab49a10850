#![expect(clippy::disallowed_methods, reason = "it waits for real processes and boards")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Interval at which each core is checked.
const STEP: Duration = Duration::from_millis(2);

/// Measures how long this machine's cores stand still. On a shared machine the host takes them away now and then. A
/// board that is emulated on them does not notice the lost time, and loses frames that a real camera would not lose.
pub struct StallWatch {
    stop: Arc<AtomicBool>,
    watchers: Vec<JoinHandle<Duration>>,
}

impl StallWatch {
    /// Starts to watch every core that this process may use, with a thread on each that sleeps and measures how late it
    /// wakes. A core that is merely busy wakes a sleeping thread in time.
    pub fn start() -> Result<Self> {
        let mut watch = Self { stop: Arc::default(), watchers: Vec::new() };
        let cores = sched_getaffinity(None).context("asking for the cores")?;
        for core in (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core)) {
            let stop = Arc::clone(&watch.stop);
            let watcher = thread::Builder::new().name(format!("core {core}")).spawn(move || {
                let mut only = CpuSet::new();
                only.set(core);
                // If this fails, the thread watches the core that it happens to run on.
                let _ = sched_setaffinity(None, &only);
                longest_delay(&stop)
            });
            watch.watchers.push(watcher.context("starting a thread")?);
        }
        Ok(watch)
    }

    /// Returns the longest time for which a core stood still.
    pub fn longest(mut self) -> Result<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        let delays =
            self.watchers.drain(..).map(|watcher| watcher.join().map_err(|_| anyhow!("it panicked")));
        let delays: Vec<Duration> = delays.collect::<Result<_>>().context("watching a core")?;
        Ok(delays.into_iter().max().unwrap_or_default())
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn longest_delay(stop: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        thread::sleep(STEP);
        longest = longest.max(begin.elapsed().saturating_sub(STEP));
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_run_is_seen() {
        let watch = StallWatch::start().expect("threads start");
        assert!(!watch.watchers.is_empty());
        thread::sleep(STEP * 20);
        let longest = watch.longest().expect("they end");
        assert!(longest > Duration::ZERO, "nothing wakes at once");
    }
}
