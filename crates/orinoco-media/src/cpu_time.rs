//! Processor time of decoders.

#![expect(clippy::disallowed_methods, reason = "it reads the processor time of a thread, not the time")]

use std::thread::{self, ThreadId};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time of the calling thread since its start.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// Returns the result of `decode`, and the processor time that the calling thread spent in it.
pub(crate) fn with_cpu_time<T>(decode: impl FnOnce() -> T) -> (T, Duration) {
    let start = thread_cpu_time();
    let decoded = decode();
    (decoded, thread_cpu_time().saturating_sub(start))
}

/// Processor time of a decoder that works on the thread which gives it a packet, and outputs its frames on that thread.
///
/// The time of a packet is measured from its entry to the next frame that leaves on the same thread. Other work of that
/// thread (reading, parsing packets, converting frames) does not count. Neither does a packet after which no frame leaves,
/// such as the first packets of a stream with reordered frames.
#[derive(Debug, Default)]
pub(crate) struct DecoderCpu {
    entered: Option<(ThreadId, Duration)>,
}

impl DecoderCpu {
    /// Records that a packet enters the decoder.
    pub(crate) fn enter(&mut self) {
        self.entered = Some((thread::current().id(), thread_cpu_time()));
    }

    /// Records that a frame leaves the decoder. Returns the processor time since the latest packet entered on this thread, only
    /// once per packet.
    pub(crate) fn leave(&mut self) -> Option<Duration> {
        let (thread, start) = self.entered.take()?;
        (thread == thread::current().id()).then(|| thread_cpu_time().saturating_sub(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Works for this long.
    fn work(duration: Duration) {
        let start = thread_cpu_time();
        while thread_cpu_time() < start + duration {}
    }

    #[test]
    fn only_work_inside_the_decoder_counts() {
        let (inside, outside) = (Duration::from_millis(5), Duration::from_millis(60));
        let mut cpu = DecoderCpu::default();
        assert_eq!(cpu.leave(), None, "nothing entered");
        cpu.enter();
        work(inside);
        let took = cpu.leave().expect("it entered on this thread");
        work(outside);
        assert_eq!(cpu.leave(), None, "it was counted");
        assert!((inside..outside).contains(&took), "{took:?}");
    }

    #[test]
    fn a_frame_that_leaves_on_another_thread_is_not_counted() {
        let mut cpu = DecoderCpu::default();
        cpu.enter();
        let left = std::thread::scope(|scope| scope.spawn(|| cpu.leave()).join());
        assert_eq!(left.expect("it does not panic"), None);
    }
}
