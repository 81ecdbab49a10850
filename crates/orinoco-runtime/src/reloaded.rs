//! What becomes of a reload, and who wants to know.

use std::fmt;

use orinoco_config::Faults;
use orinoco_core::{Diagnosis, codes};

/// What became of a reload.
#[derive(Clone, Debug, Default)]
pub struct Reloaded {
    /// Names of the streams that joined.
    pub joined: Vec<String>,
    /// Names of the streams that were asked to leave. One that has changed leaves and joins.
    pub left: Vec<String>,
    /// How many streams stayed.
    pub stayed: usize,
    /// Why streams could not join.
    pub faults: Vec<Diagnosis>,
}

type SendReply = Box<dyn FnOnce(Result<Reloaded, Faults>) + Send>;

/// Somebody who wants to know what becomes of a reload. Always gets an answer, also when the run ends before.
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

/// The fault of a reload that comes too late.
pub(crate) fn run_has_ended(board: &str) -> Diagnosis {
    let subject = format!("board {board}");
    Diagnosis::new(&codes::RELOAD, subject.trim_end(), "the run has ended", "start it again")
}
