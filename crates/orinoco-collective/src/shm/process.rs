//! Processes of other ranks, of which the kernel says when they end.
//!
//! The kernel closes the connections of a process that is killed, but changes nothing in memory that it shared. So each rank has a
//! descriptor of each other rank's process (pidfd_open(2), since Linux 5.3), and asks it in long waits. Where that is not possible, a
//! missing sign of life is all that is noticed.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::segment::Pulse;
use super::sync::Ordering;
use super::thread_state::ThreadState;

/// Process of a rank.
#[derive(Clone, Default)]
pub(super) struct RankProcess {
    /// Means the same process as long as it is open, also when its number has become another one's. `None` if nothing is known of the
    /// process.
    descriptor: Option<Arc<OwnedFd>>,
}

impl RankProcess {
    /// Opens the process that a rank has named. Nothing is known of it in another container, on an old kernel, or where `/proc` hides
    /// it; nor of this process, which cannot see its own end.
    pub(super) fn open(pulse: &Pulse) -> Self {
        let number = pulse.process.load(Ordering::Acquire);
        let process =
            Pid::from_raw(i32::try_from(number).unwrap_or(0)).filter(|_| number != std::process::id());
        let opened = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
        // Compared afterwards: if the number is the rank's now, it was when it was opened.
        Self { descriptor: opened.filter(|_| is_of_rank(number, pulse)).map(Arc::new) }
    }

    /// Whether the process is known to have ended, with all its threads.
    pub(super) fn has_ended(&self) -> bool {
        self.descriptor.as_ref().is_some_and(|descriptor| {
            let mut process = [PollFd::new(descriptor, PollFlags::IN)];
            // An error says nothing of the process: the next look asks again.
            let answer = poll(&mut process, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
            answer.is_ok() && process[0].revents().contains(PollFlags::IN)
        })
    }
}

/// Writes down what tells this process from others with its number. Called before the number is written down, with which others
/// read it. If two processes claim one rank, it may be of the one that is refused; then nothing is known of the other.
pub(super) fn introduce(pulse: &Pulse) {
    let process = std::process::id();
    if let (Some(main_thread), Some(namespace)) = (ThreadState::read(process, process), number_namespace()) {
        pulse.process_start.store(main_thread.start, Ordering::Relaxed);
        pulse.process_namespace.store(namespace, Ordering::Relaxed);
    }
}

/// Whether the process that has this number here is the one that a rank has named.
fn is_of_rank(number: u32, pulse: &Pulse) -> bool {
    let start = ThreadState::read(number, number).map(|main_thread| main_thread.start);
    start == Some(pulse.process_start.load(Ordering::Relaxed))
        && number_namespace() == Some(pulse.process_namespace.load(Ordering::Relaxed))
}

/// Namespace in which this process has its number (pid_namespaces(7)), as the system numbers them.
fn number_namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|namespace| namespace.ino())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::Duration;

    use rustix::process::{Signal, WaitId, WaitIdOptions, kill_process, waitid};

    use super::super::heartbeat::Watch;
    use super::super::segment::Segment;
    use super::*;
    use crate::FailureCause;
    use crate::clock::Ticks;

    /// No rank becomes silent within a test.
    const SILENCE: Duration = Duration::from_secs(3600);

    /// A rank whose process sleeps, until it is dropped. It gives no signs of life.
    struct Sleeper {
        process: Child,
        segment: Segment,
    }

    impl Sleeper {
        fn start() -> Self {
            let file = tempfile::tempfile().expect("a file");
            file.set_len(Segment::file_bytes(1) as u64).expect("a longer file");
            let segment = Segment::map(&file, 1).expect("a mapping");
            let process = Command::new("sleep").arg("60").spawn().expect("a process that sleeps");
            let sleeper = Self { process, segment };
            let number = sleeper.process.id();
            let state = ThreadState::read(number, number).expect("it is there");
            sleeper.pulse().process_start.store(state.start, Ordering::Relaxed);
            let namespace = number_namespace().expect("Linux has it");
            sleeper.pulse().process_namespace.store(namespace, Ordering::Relaxed);
            sleeper.pulse().process.store(number, Ordering::Release);
            sleeper
        }

        fn pulse(&self) -> &Pulse {
            self.segment.pulse(0)
        }

        fn watch(&self) -> Watch {
            Watch::new(RankProcess::open(self.pulse()), self.pulse(), Ticks::now())
        }

        fn absence(&self, watch: &mut Watch, silence: Duration) -> Option<FailureCause> {
            watch.absence(self.pulse(), Ticks::now(), silence)
        }

        fn signal(&self, signal: Signal) {
            kill_process(Pid::from_child(&self.process), signal).expect("it is there");
        }

        /// Kills it, and waits until it has ended. Its number stays.
        fn kill(&self) {
            self.signal(Signal::KILL);
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(Pid::from_child(&self.process)), options).expect("it ends");
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            // It may have ended.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }

    #[test]
    fn the_end_of_a_process_is_noticed_at_once_and_a_stop_is_not_its_end() {
        let mut sleeper = Sleeper::start();
        let mut watch = sleeper.watch();
        assert_eq!(sleeper.absence(&mut watch, SILENCE), None);
        sleeper.signal(Signal::STOP);
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&sleeper.process)), options).expect("it stops");
        assert_eq!(sleeper.absence(&mut watch, SILENCE), None);
        sleeper.kill();
        assert_eq!(sleeper.absence(&mut watch, SILENCE), Some(FailureCause::Ended));
        sleeper.process.wait().expect("it has ended");
        assert_eq!(sleeper.absence(&mut watch, SILENCE), Some(FailureCause::Ended), "its number is free");
    }

    #[test]
    fn a_rank_that_left_before_its_process_ended_has_left() {
        let sleeper = Sleeper::start();
        let mut watch = sleeper.watch();
        sleeper.pulse().has_left.store(1, Ordering::Release);
        sleeper.kill();
        assert_eq!(sleeper.absence(&mut watch, SILENCE), Some(FailureCause::Left));
    }

    #[test]
    fn of_a_process_that_may_be_another_only_silence_is_noticed() {
        let falsify: [fn(&Pulse); 6] = [
            |pulse| _ = pulse.process_start.fetch_add(1, Ordering::Relaxed),
            |pulse| _ = pulse.process_namespace.fetch_add(1, Ordering::Relaxed),
            |pulse| pulse.process_start.store(0, Ordering::Relaxed),
            |pulse| pulse.process.store(u32::MAX, Ordering::Relaxed),
            // No process has a number as high.
            |pulse| pulse.process.store((1 << 22) + 1, Ordering::Relaxed),
            |pulse| {
                pulse.process.store(std::process::id(), Ordering::Relaxed);
                introduce(pulse);
            },
        ];
        for falsify in falsify {
            let sleeper = Sleeper::start();
            falsify(sleeper.pulse());
            let mut watch = sleeper.watch();
            sleeper.kill();
            assert_eq!(sleeper.absence(&mut watch, SILENCE), None);
            let silent = Some(FailureCause::Silent(Duration::ZERO));
            assert_eq!(sleeper.absence(&mut watch, Duration::ZERO), silent);
        }
    }

    #[test]
    fn a_process_introduces_itself_so_that_others_know_it_again() {
        let sleeper = Sleeper::start();
        let pulse = sleeper.pulse();
        pulse.process_start.store(0, Ordering::Relaxed);
        assert!(!is_of_rank(std::process::id(), pulse));
        introduce(pulse);
        assert!(is_of_rank(std::process::id(), pulse));
    }
}
