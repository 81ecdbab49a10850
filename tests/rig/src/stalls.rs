#![expect(clippy::disallowed_methods, reason = "it waits for real processes and boards")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How often each core is asked.
const STEP: Duration = Duration::from_millis(2);

/// Finds out for how long this machine's cores stand still. On a shared machine the host takes them away now and then, and
/// what is emulated on them keeps no time meanwhile: it loses frames that no camera would lose.
pub struct StallWatch {
    stop: Arc<AtomicBool>,
    watchers: Vec<JoinHandle<Duration>>,
}

impl StallWatch {
    /// Watches every core that this process may use, by a thread on each that sleeps and notes how late it wakes. A core
    /// that merely has much to do wakes a sleeper in time.
    pub fn start() -> Result<Self> {
        let mut watch = Self { stop: Arc::default(), watchers: Vec::new() };
        let cores = sched_getaffinity(None).context("asking for the cores")?;
        for core in (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core)) {
            let stop = Arc::clone(&watch.stop);
            let watcher = thread::Builder::new().name(format!("core {core}")).spawn(move || {
                let mut only = CpuSet::new();
                only.set(core);
                // Where it cannot, it watches whatever core it is on.
                let _ = sched_setaffinity(None, &only);
                longest_delay(&stop)
            });
            watch.watchers.push(watcher.context("starting a thread")?);
        }
        Ok(watch)
    }

    /// The longest time for which a core stood still.
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
