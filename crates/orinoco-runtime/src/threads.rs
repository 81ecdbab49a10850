//! Threads of a run. Each reports its own end, so that no other thread has to check for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};

use orinoco_core::{Diagnosis, WithSubject, codes};

/// Starts a thread. When it ends, `ended` gets its result, or the fault of its panic.
pub(crate) fn spawn<T: 'static>(
    name: String,
    run: impl FnOnce() -> T + Send + 'static,
    ended: impl FnOnce(Result<T, Diagnosis>) + Send + 'static,
) -> Result<JoinHandle<()>, Diagnosis> {
    let of_thread = name.clone();
    let guarded = move || {
        // State that a panic leaves half done is dropped with the closure, and never seen.
        let end = catch_unwind(AssertUnwindSafe(run));
        ended(end.map_err(|_| panicked(&of_thread)));
    };
    let handle = thread::Builder::new().name(name.clone()).spawn(guarded);
    let next = "raise the limit on threads (ulimit -u)";
    handle.about(&codes::ENGINE_RUN, format!("thread {name}"), next)
}

/// Makes the fault of a thread that panicked.
fn panicked(name: &str) -> Diagnosis {
    fault(name, "it panicked, which is a bug in Orinoco", "report this with the message above")
}

/// Makes the fault of a thread that did not end in time.
pub(crate) fn hung(name: &str) -> Diagnosis {
    let next = "check that its device answers and that its output is read";
    fault(name, "it did not end when its stop was requested", next)
}

fn fault(name: &str, cause: &str, next: &str) -> Diagnosis {
    Diagnosis::new(&codes::ENGINE_RUN, format!("thread {name}"), cause, next)
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
