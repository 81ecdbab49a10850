//! Signs of life: a thread of each rank counts up, so a rank that computes for long is not taken for dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::segment::{Pulse, Segment};
use crate::clock::{Ticks, pause};

/// Signs of life in the time after which a rank counts as dead: several may come late on a busy machine.
const BEATS: u32 = 10;

/// A rank's signs of life, until it is dropped.
pub(super) struct Life {
    segment: Arc<Segment>,
    rank: usize,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Life {
    /// Starts to give signs of life.
    pub(super) fn start(segment: Arc<Segment>, rank: usize, silence: Duration) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name("orinoco-pulse".to_owned()).spawn({
            let (segment, is_over) = (Arc::clone(&segment), Arc::clone(&is_over));
            move || {
                while !is_over.load(Ordering::Acquire) {
                    segment.pulse(rank).beats.fetch_add(1, Ordering::Relaxed);
                    pause(silence / BEATS);
                }
            }
        });
        // Without a thread the others will take this rank for dead while it computes. They say so, by name.
        Self { segment, rank, is_over, thread: thread.ok() }
    }
}

impl Life {
    /// Gives no signs of life: shuttle knows no thread but those of its test.
    #[cfg(all(test, shuttle))]
    pub(super) fn without_thread(segment: Arc<Segment>, rank: usize) -> Self {
        Self { segment, rank, is_over: Arc::default(), thread: None }
    }
}

impl Drop for Life {
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

/// Another rank's signs of life, as this rank sees them.
pub(super) struct Watch {
    beats: u64,
    heard: Ticks,
    looked: Ticks,
}

impl Watch {
    pub(super) fn new(pulse: &Pulse, now: Ticks) -> Self {
        Self { beats: pulse.beats.load(Ordering::Relaxed), heard: now, looked: now }
    }

    pub(super) fn has_left(&self, pulse: &Pulse) -> bool {
        pulse.has_left.load(Ordering::Acquire) != 0
    }

    /// Whether nothing was heard of the rank for that long. Time in which this rank did not look does not count: it may have been
    /// stopped itself.
    pub(super) fn is_silent(&mut self, pulse: &Pulse, now: Ticks, silence: Duration) -> bool {
        let beats = pulse.beats.load(Ordering::Relaxed);
        if beats != self.beats || now.since(self.looked) > silence / 4 {
            (self.beats, self.heard) = (beats, now);
        }
        self.looked = now;
        now.since(self.heard) >= silence
    }
}
