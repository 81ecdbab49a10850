//! Time for shuttle, which has none: its condition variables never time out.
//!
//! Virtual time is a thread of the model. When every other thread waits, it moves the time on to the first one that is
//! waited for, and wakes who waits for it. By chance it does so earlier: threads may be that slow.

use std::sync::{Arc, LockResult, PoisonError};
use std::time::Duration;

use shuttle::rand::Rng;
use shuttle::sync as real;
use shuttle::sync::MutexGuard;
use shuttle::thread;

/// Number of looks in one of which time passes, although somebody could still run.
const LOOKS_PER_ACCIDENT: u32 = 16;
/// Longest such time, in nanoseconds: a test that waits for a day sees a notification before.
const ACCIDENT_NANOS_MAX: u64 = 60_000_000_000;

shuttle::lazy_static! {
    static ref TIME: VirtualTime = VirtualTime::default();
}

/// Time of one execution.
#[derive(Default)]
struct VirtualTime {
    state: real::Mutex<State>,
    /// Wakes the thread that lets time pass.
    changed: real::Condvar,
}

#[derive(Default)]
struct State {
    nanos: u64,
    /// Threads that have begun, have not ended, and are not at the end of another one.
    threads: usize,
    waits: Vec<Wait>,
    next: u64,
}

/// A thread at a condition variable.
struct Wait {
    id: u64,
    /// Time at which its wait ends in any case.
    until: Option<u64>,
    condvar: Arc<real::Condvar>,
    /// It was notified, and goes on when its turn comes.
    is_notified: bool,
}

impl VirtualTime {
    /// A lane that panics reads the time while it unwinds. All threads of a test are one of the system's, so whatever another
    /// one unlocks meanwhile counts as poisoned.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_wait(&self, until: Option<u64>, condvar: &Arc<real::Condvar>) -> u64 {
        let mut state = self.lock();
        state.next += 1;
        let id = state.next;
        state.waits.push(Wait { id, until, condvar: Arc::clone(condvar), is_notified: false });
        drop(state);
        self.changed.notify_one();
        id
    }

    fn begin_thread(&self) {
        self.lock().threads += 1;
    }

    fn end_thread(&self) {
        self.lock().threads -= 1;
        self.changed.notify_one();
    }

    fn end_wait(&self, id: u64) {
        self.lock().waits.retain(|wait| wait.id != id);
    }

    fn notified(&self, condvar: &Arc<real::Condvar>) {
        let mut state = self.lock();
        let of_it = state.waits.iter_mut().filter(|wait| Arc::ptr_eq(&wait.condvar, condvar));
        of_it.for_each(|wait| wait.is_notified = true);
    }

    /// Lets time pass until every thread has ended. Where nobody waits for a time it waits as well, so that shuttle sees
    /// threads that wait for one another.
    fn pass(&self) {
        let mut state = self.lock();
        loop {
            let dues = state.waits.iter().filter_map(|wait| wait.until);
            match dues.min() {
                _ if state.threads == 0 => return,
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(due) => {
                    let all_wait =
                        state.waits.iter().filter(|wait| !wait.is_notified).count() >= state.threads;
                    let is_near = due.saturating_sub(state.nanos) <= ACCIDENT_NANOS_MAX;
                    let passes =
                        all_wait || is_near && shuttle::rand::thread_rng().gen_ratio(1, LOOKS_PER_ACCIDENT);
                    let mut woken = Vec::new();
                    if passes {
                        state.nanos = state.nanos.max(due);
                        let due =
                            state.waits.iter().filter(|wait| wait.until.is_some_and(|until| until <= due));
                        woken.extend(due.map(|wait| Arc::clone(&wait.condvar)));
                    }
                    drop(state);
                    // A thread may be just about to wait, and is woken in the next round.
                    woken.iter().for_each(|condvar| condvar.notify_all());
                    thread::yield_now();
                    state = self.lock();
                }
            }
        }
    }
}

/// [`std::time::Instant`] in virtual time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instant(u64);

impl Instant {
    pub(crate) fn now() -> Self {
        Self(TIME.lock().nanos)
    }

    pub(crate) fn elapsed(self) -> Duration {
        Duration::from_nanos(Self::now().0 - self.0)
    }
}

/// [`std::sync::Condvar`], at which waits end in virtual time.
#[derive(Default)]
pub(crate) struct Condvar(Arc<real::Condvar>);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Notifies the one thread that waits here: the shells have no condition variable with several.
    pub(crate) fn notify_one(&self) {
        TIME.notified(&self.0);
        self.0.notify_one();
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let id = TIME.begin_wait(None, &self.0);
        let guard = self.0.wait(guard);
        TIME.end_wait(id);
        guard
    }

    /// Waits as [`std::sync::Condvar::wait_timeout`]; the flag is false also after a time-out, and nobody asks for it.
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        wait: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, real::WaitTimeoutResult)> {
        let until = TIME.lock().nanos + u64::try_from(wait.as_nanos()).expect("tests wait for hours at most");
        let id = TIME.begin_wait(Some(until), &self.0);
        let guard = self.0.wait_timeout(guard, wait);
        TIME.end_wait(id);
        guard
    }
}

/// Runs one execution of a test, with time that passes, and waits for its threads.
pub(crate) fn run(test: impl FnOnce()) {
    TIME.begin_thread();
    let time = thread::spawn(|| TIME.pass());
    test();
    TIME.end_thread();
    time.join().expect("it does not panic");
}

/// Starts a thread of a test. Every thread that waits is started here, so that it is known whether all of them wait.
pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    TIME.begin_thread();
    thread::spawn(move || {
        let result = work();
        TIME.end_thread();
        result
    })
}

/// Waits for a thread's end.
pub(crate) fn join<T>(thread: thread::JoinHandle<T>) -> T {
    TIME.end_thread();
    let result = thread.join().expect("it does not panic");
    TIME.begin_thread();
    result
}
