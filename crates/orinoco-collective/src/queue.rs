#[cfg(all(test, shuttle))]
mod interleavings;

use std::sync::{Arc, PoisonError};
use std::{io, mem};

use self::sync::mpsc::{Receiver, Sender, channel};
use self::sync::thread::{self, JoinHandle};
use self::sync::{Condvar, Mutex, MutexGuard};
use crate::CollectiveError;

/// Threads, channels and locks: the standard library's, or shuttle's in a build with `--cfg shuttle` (`cargo xtask shuttle`).
mod sync {
    #[cfg(shuttle)]
    pub(super) use shuttle::{
        sync::{Condvar, Mutex, MutexGuard, mpsc},
        thread,
    };
    #[cfg(not(shuttle))]
    pub(super) use std::{
        sync::{Condvar, Mutex, MutexGuard, mpsc},
        thread,
    };
}

/// Runs the operations of a communicator on a thread of its own, one after the other, so that the caller can compute meanwhile.
///
/// All ranks must start the same operations in the same order, as they must call them on the communicator itself. An operation takes
/// its vectors along and returns them:
///
/// ```no_run
/// # use orinoco_collective::*;
/// # fn example(group: ShmGroup, gradients: Vec<f32>) -> Result<(), Box<dyn std::error::Error>> {
/// let queue = Queue::new(group)?;
/// let pending = queue.start(move |group| {
///     let mut sums = gradients;
///     group.all_reduce(ReduceOp::Sum, &mut sums)?;
///     Ok(sums)
/// });
/// // Something else is computed here.
/// let sums = pending.wait()?;
/// # Ok(())
/// # }
/// ```
///
/// Dropping the queue waits until all operations have ended.
pub struct Queue<C> {
    operations: Option<Sender<Operation<C>>>,
    thread: Option<JoinHandle<()>>,
}

type Operation<C> = Box<dyn FnOnce(&mut C) + Send>;

/// An operation that was started.
pub struct Pending<R> {
    outcome: Arc<Outcome<R>>,
}

struct Outcome<R> {
    state: Mutex<State<R>>,
    changed: Condvar,
}

enum State<R> {
    Running,
    Done(Result<R, CollectiveError>),
    /// The operation has panicked, or its result was taken.
    Gone,
}

/// Sets the outcome, also where the operation panics.
struct Finish<R>(Arc<Outcome<R>>);

impl<C: Send + 'static> Queue<C> {
    /// Creates the queue of a communicator.
    ///
    /// # Errors
    /// If the system refuses another thread.
    pub fn new(mut communicator: C) -> io::Result<Self> {
        let (sender, operations): (_, Receiver<Operation<C>>) = channel();
        let thread = thread::Builder::new().name("orinoco-queue".to_owned()).spawn(move || {
            for operation in operations {
                operation(&mut communicator);
            }
        })?;
        Ok(Self { operations: Some(sender), thread: Some(thread) })
    }

    /// Starts an operation after those that were started before.
    pub fn start<R: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut C) -> Result<R, CollectiveError> + Send + 'static,
    ) -> Pending<R> {
        let outcome = Arc::new(Outcome { state: Mutex::new(State::Running), changed: Condvar::new() });
        let finish = Finish(Arc::clone(&outcome));
        let run = Box::new(move |communicator: &mut C| {
            let result = operation(communicator);
            finish.0.set(State::Done(result));
        });
        if let Some(operations) = &self.operations {
            // If the thread has ended by a panic, the operation is dropped, which sets its outcome.
            let _ = operations.send(run);
        }
        Pending { outcome }
    }
}

impl<C> Drop for Queue<C> {
    fn drop(&mut self) {
        self.operations = None;
        if let Some(thread) = self.thread.take() {
            // A panic of an operation was reported to whoever waits for it.
            let _ = thread.join();
        }
    }
}

impl<R> Pending<R> {
    /// Waits until the operation has ended, and returns its result. The communicator's deadline bounds the wait.
    ///
    /// # Errors
    /// Those of the operation.
    ///
    /// # Panics
    /// If the operation has panicked.
    pub fn wait(self) -> Result<R, CollectiveError> {
        let mut state = self.outcome.lock();
        loop {
            match mem::replace(&mut *state, State::Gone) {
                State::Done(result) => return result,
                State::Gone => panic!("the operation has panicked"),
                State::Running => *state = State::Running,
            }
            state = self.outcome.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the operation has ended.
    pub fn is_done(&self) -> bool {
        !matches!(*self.outcome.lock(), State::Running)
    }
}

impl<R> Outcome<R> {
    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State<R>) {
        *self.lock() = state;
        self.changed.notify_all();
    }
}

impl<R> Drop for Finish<R> {
    fn drop(&mut self) {
        let is_running = matches!(*self.0.lock(), State::Running);
        if is_running {
            self.0.set(State::Gone);
        }
    }
}
