//! Signs of life: a thread of each rank counts up, so a rank that computes for long is not taken for dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::process::RankProcess;
use super::segment::{Pulse, Segment};
use super::thread_state::ThreadState;
use crate::clock::{Ticks, pause};
use crate::{FailureCause, priority};

/// Signs of life in the time after which a rank counts as dead: several may come late on a busy machine.
const BEATS: u32 = 10;

/// Longest time between two of them: they are the clock of the flight recorder, too.
const CLOCK_EVERY: Duration = Duration::from_millis(50);

/// Heartbeat of a rank: gives signs of life until it is dropped.
pub(super) struct Heartbeat {
    segment: Arc<Segment>,
    rank: usize,
    is_over: Arc<AtomicBool>,
    /// Time of the last sign of life since the first, in ms.
    clock_ms: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Starts to give signs of life.
    pub(super) fn start(segment: Arc<Segment>, rank: usize, silence: Duration) -> Self {
        let (is_over, clock_ms) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = thread::Builder::new().name("orinoco-pulse".to_owned()).spawn({
            let (segment, is_over) = (Arc::clone(&segment), Arc::clone(&is_over));
            let clock_ms = Arc::clone(&clock_ms);
            move || {
                priority::raise();
                introduce(segment.pulse(rank));
                let start = Ticks::now();
                while !is_over.load(Ordering::Acquire) {
                    segment.pulse(rank).beats.fetch_add(1, Ordering::Relaxed);
                    let millis = Ticks::now().since(start).as_millis();
                    clock_ms.store(u64::try_from(millis).unwrap_or(u64::MAX), Ordering::Relaxed);
                    pause((silence / BEATS).min(CLOCK_EVERY));
                }
            }
        });
        // Without a thread the others will take this rank for dead while it computes. They say so, by name.
        Self { segment, rank, is_over, clock_ms, thread: thread.ok() }
    }

    /// Time of the last sign of life since the first, in ms.
    pub(super) fn clock_ms(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.clock_ms)
    }
}

/// Says which thread gives the signs of life.
fn introduce(pulse: &Pulse) {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    let (process, thread) = (std::process::id(), u32::try_from(thread).unwrap_or(0));
    if let Some(state) = ThreadState::read(process, thread) {
        pulse.thread_start.store(state.start, Ordering::Relaxed);
        pulse.thread.store(thread, Ordering::Release);
    }
}

/// Whether the kernel knows that the thread that gives the signs of life could run, but has no core: the rank is late then, and not
/// dead. It is not so if the thread was stopped, if it has ended, or in another container, where nothing is known about it.
fn is_starved(pulse: &Pulse) -> bool {
    let (process, thread) = (pulse.process.load(Ordering::Relaxed), pulse.thread.load(Ordering::Acquire));
    let state = ThreadState::read(process, thread).filter(|_| thread != 0);
    state.is_some_and(|state| state.wants_core && state.start == pulse.thread_start.load(Ordering::Relaxed))
}

impl Heartbeat {
    /// Gives no signs of life: shuttle knows no thread but those of its test.
    #[cfg(all(test, shuttle))]
    pub(super) fn without_thread(segment: Arc<Segment>, rank: usize) -> Self {
        Self { segment, rank, is_over: Arc::default(), clock_ms: Arc::default(), thread: None }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.segment.pulse(self.rank).has_left.store(1, Ordering::Release);
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It ends by itself and cannot panic.
            let _ = thread.join();
        }
    }
}

/// Another rank's process and its signs of life, as this rank sees them.
pub(super) struct Watch {
    process: RankProcess,
    beats: u64,
    heard: Ticks,
    looked: Ticks,
    /// Last time at which it was not heard of because it had no core.
    starved: Option<Ticks>,
}

impl Watch {
    pub(super) fn new(process: RankProcess, pulse: &Pulse, now: Ticks) -> Self {
        Self { process, beats: pulse.beats.load(Ordering::Relaxed), heard: now, looked: now, starved: None }
    }

    /// Reason for which nothing more comes of the rank, if it is gone: it left, its process has ended, or it is silent.
    pub(super) fn absence(&mut self, pulse: &Pulse, now: Ticks, silence: Duration) -> Option<FailureCause> {
        let has_ended = self.process.has_ended();
        // Loaded afterwards: a rank that leaves says so before its process ends.
        if pulse.has_left.load(Ordering::Acquire) != 0 {
            Some(FailureCause::Left)
        } else if has_ended {
            Some(FailureCause::Ended)
        } else {
            self.is_silent(pulse, now, silence).then_some(FailureCause::Silent(silence))
        }
    }

    /// Whether nothing was heard of the rank for that long, although it did not lack a core. Time in which this rank did not look does
    /// not count: it may have been stopped itself.
    fn is_silent(&mut self, pulse: &Pulse, now: Ticks, silence: Duration) -> bool {
        let beats = pulse.beats.load(Ordering::Relaxed);
        if beats != self.beats || now.since(self.looked) > silence / 4 {
            (self.beats, self.heard) = (beats, now);
        }
        self.looked = now;
        let was_starved = self.starved.is_some_and(|since| now.since(since) < silence / BEATS);
        if now.since(self.heard) < silence || was_starved {
            return false;
        }
        self.starved = is_starved(pulse).then_some(now);
        // It may have counted before it went to sleep again.
        self.starved.is_none() && pulse.beats.load(Ordering::Relaxed) == self.beats
    }
}
