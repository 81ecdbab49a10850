use std::collections::VecDeque;
use std::fmt;

use orinoco_core::Nanos;

/// Maximum number of lines in a trace: the steps just before a failure, and few enough to read.
const LINES_MAX: usize = 60;

/// Latest steps of a run, as text. Off unless a failed run is repeated: writing the text of a step costs more than the
/// step.
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
