//! Threads of a run.

#![expect(clippy::disallowed_methods, reason = "FIXME: real time, see clippy.toml")]

use std::thread::{self, JoinHandle};
use std::time::Duration;

use orinoco_core::{Clock, Diagnosis, Nanos, WithSubject, codes};

/// How often somebody who waits for a thread looks whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A thread, or what it left behind: the stack of one that has ended is held until it is joined.
pub(crate) struct Thread<T> {
    name: String,
    handle: Option<JoinHandle<T>>,
    end: Option<Result<T, Diagnosis>>,
}

impl<T: Send + 'static> Thread<T> {
    /// Starts it.
    pub(crate) fn start(name: String, run: impl FnOnce() -> T + Send + 'static) -> Result<Self, Diagnosis> {
        let handle = thread::Builder::new().name(name.clone()).spawn(run);
        let next = "raise the limit on threads (ulimit -u)";
        let handle = handle.about(&codes::ENGINE_RUN, format!("thread {name}"), next)?;
        Ok(Self { name, handle: Some(handle), end: None })
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// What it left, once, when it has just ended.
    pub(crate) fn just_ended(&mut self) -> Option<&Result<T, Diagnosis>> {
        let handle = self.handle.take_if(|handle| handle.is_finished())?;
        let end = handle.join().map_err(|_| {
            self.fault("it panicked, which is a bug in Orinoco", "report this with the message above")
        });
        Some(self.end.insert(end))
    }

    /// Waits for its end, but not longer than until `deadline`; returns whether it has ended.
    pub(crate) fn ends_by(&self, clock: &dyn Clock, deadline: Nanos) -> bool {
        while !self.is_over() && clock.now() < deadline {
            thread::sleep(LOOK_EVERY);
        }
        self.is_over()
    }

    /// Waits for its end, but not longer than until `deadline`: then it is left behind.
    pub(crate) fn join(mut self, clock: &dyn Clock, deadline: Nanos) -> Result<T, Diagnosis> {
        self.ends_by(clock, deadline);
        self.just_ended();
        let next = "see whether its device answers, or whether somebody reads its output";
        let fault = self.fault("it does not end, although it was asked to", next);
        self.end.unwrap_or(Err(fault))
    }

    fn fault(&self, cause: &str, next: &str) -> Diagnosis {
        Diagnosis::new(&codes::ENGINE_RUN, format!("thread {}", self.name), cause, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_pipeline::MonotonicClock;
    use std::sync::mpsc::channel;

    fn thread<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Thread<T> {
        Thread::start("test".to_owned(), run).expect("there are threads")
    }

    #[test]
    fn what_hangs_is_left_behind() {
        let clock = MonotonicClock::default();
        let (hold, held) = channel::<()>();
        let hung = thread(move || held.recv());
        let fault = hung.join(&clock, clock.now() + Duration::from_millis(20)).expect_err("it hangs");
        assert_eq!(fault.subject, "thread test");
        drop(hold);
    }

    #[test]
    fn an_end_is_told_once_and_kept() {
        let clock = MonotonicClock::default();
        let later = |clock: &MonotonicClock| clock.now() + Duration::from_secs(60);
        let mut fine = thread(|| 5);
        while !fine.is_over() {
            thread::yield_now();
        }
        assert!(fine.just_ended().is_some_and(|end| end.is_ok()));
        assert!(fine.just_ended().is_none());
        assert_eq!(fine.join(&clock, later(&clock)).expect("it ended"), 5);
        let panicked = thread(|| -> () { panic!("this test wants it") });
        assert!(panicked.join(&clock, later(&clock)).is_err());
    }
}
