//! Result of a reload, and the request that waits for it.

use std::fmt;

use orinoco_config::Faults;
use orinoco_core::{Diagnosis, codes};

/// Result of a reload.
#[derive(Clone, Debug, Default)]
pub struct Reloaded {
    /// Names of the streams that joined.
    pub joined: Vec<String>,
    /// Names of the streams that were asked to leave. A stream that has changed leaves and joins.
    pub left: Vec<String>,
    /// Number of streams that stayed.
    pub stayed: usize,
    /// Names of the models that were replaced while streams used them.
    pub replaced: Vec<String>,
    /// Faults of streams that could not join.
    pub faults: Vec<Diagnosis>,
}

type SendReply = Box<dyn FnOnce(Result<Reloaded, Faults>) + Send>;

/// Request that waits for the result of a reload. It always gets an answer, even if the run ends before.
pub(crate) struct Reply(Option<SendReply>);

impl Reply {
    pub(crate) fn new(hear: impl FnOnce(Result<Reloaded, Faults>) + Send + 'static) -> Self {
        Self(Some(Box::new(hear)))
    }

    pub(crate) fn send(mut self, answer: Result<Reloaded, Faults>) {
        self.answer(answer);
    }

    fn answer(&mut self, answer: Result<Reloaded, Faults>) {
        if let Some(hear) = self.0.take() {
            hear(answer);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.answer(Err(run_has_ended("").into()));
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

/// Makes the fault of a reload that comes after the end of the run.
pub(crate) fn run_has_ended(board: &str) -> Diagnosis {
    let subject = format!("board {board}");
    Diagnosis::new(&codes::RELOAD, subject.trim_end(), "the run has ended", "start it again")
}
