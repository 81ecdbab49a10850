//! Threads of a run. Each reports its own end, so that no other thread has to check for it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};

use orinoco_core::{Diagnosis, codes};

/// Starts a thread. When it ends, `ended` gets its result, or the fault of its panic. What `ended` returns is what joining
/// the thread returns.
pub(crate) fn spawn<T: 'static, E: Send + 'static>(
    name: String,
    run: impl FnOnce() -> T + Send + 'static,
    ended: impl FnOnce(Result<T, Diagnosis>) -> E + Send + 'static,
) -> Result<JoinHandle<E>, Diagnosis> {
    let of_thread = name.clone();
    let guarded = move || {
        // State that a panic leaves half done is dropped with the closure, and never seen.
        let end = catch_unwind(AssertUnwindSafe(run));
        ended(end.map_err(|_| ThreadError::Panicked.diagnosis(&of_thread)))
    };
    let handle = thread::Builder::new().name(name.clone()).spawn(guarded);
    handle.map_err(|why| ThreadError::Start(why).diagnosis(&name))
}

/// Failure of a thread of a run (`E0304`).
#[derive(Debug)]
pub(crate) enum ThreadError {
    /// The system started no more threads.
    Start(io::Error),
    /// The thread panicked.
    Panicked,
    /// The thread did not end in time.
    Hung,
    /// The thread still prepared a change when the run had to end.
    StillPreparing,
}

impl ThreadError {
    /// Returns the fault of the thread `name` that a user sees.
    pub(crate) fn diagnosis(&self, name: &str) -> Diagnosis {
        let (cause, next) = match self {
            Self::Start(why) => (why.to_string(), "raise the limit on threads (ulimit -u)"),
            Self::Panicked => {
                ("it panicked, which is a bug in Orinoco".to_owned(), "report this with the message above")
            }
            Self::Hung => (
                "it did not end when its stop was requested".to_owned(),
                "check that its device answers and that its output is read",
            ),
            Self::StillPreparing => (
                "it was still loading models when the run had to end".to_owned(),
                "check the models of the new board file with `orinoco models check`",
            ),
        };
        Diagnosis::new(&codes::ENGINE_RUN, format!("thread {name}"), cause, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn an_end_is_reported_also_of_a_panic() {
        let (tell, told) = channel();
        let report = tell.clone();
        let fine = spawn("fine".to_owned(), || 5, move |end| report.send(end).expect("heard"));
        assert_eq!(told.recv().expect("told").expect("it ended"), 5);
        fine.expect("there are threads").join().expect("it has ended");
        let panics = spawn(
            "test".to_owned(),
            || panic!("this test wants it"),
            move |end| {
                tell.send(end).expect("heard");
            },
        );
        assert_eq!(told.recv().expect("told").expect_err("it panicked").subject, "thread test");
        panics.expect("there are threads").join().expect("the panic was caught");
    }
}
