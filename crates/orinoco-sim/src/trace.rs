use std::collections::VecDeque;
use std::fmt;

use orinoco_core::Nanos;

/// Number of lines that a trace keeps: the steps just before a failure, in a message that can still be read.
const LINES_MAX: usize = 60;

/// The latest steps of a run, in words. Off unless a run has failed: the words of all steps cost more than the steps.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    on: bool,
    lines: VecDeque<String>,
}

impl Trace {
    pub(crate) fn on() -> Self {
        Self { on: true, lines: VecDeque::with_capacity(LINES_MAX) }
    }

    pub(crate) fn push(&mut self, now: Nanos, words: impl FnOnce() -> String) {
        if !self.on {
            return;
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        let millis = now.0 as f64 / 1e6;
        self.lines.push_back(format!("{millis:>12.3} ms  {}", words()));
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
