//! Waiting for the readers of named pipes.

use std::time::Duration;

use orinoco_core::{Clock, Nanos};
use orinoco_pipeline::Stop;

use super::error::OutputError;

/// Time for which a start or a reload waits for the readers of all its named pipes.
const READER_WAIT_MAX: Duration = Duration::from_secs(10);
/// Time between two looks for a reader. The kernel tells nobody that one has come.
const READER_EVERY: Duration = Duration::from_millis(20);

/// Wait for the readers of named pipes, which may be started after the run. It ends early if a stop is requested.
pub(crate) struct ReaderWait<'a> {
    clock: &'a dyn Clock,
    stop: &'a Stop,
    until: Nanos,
}

impl<'a> ReaderWait<'a> {
    /// Creates a wait that begins now.
    pub(crate) fn new(clock: &'a dyn Clock, stop: &'a Stop) -> Self {
        Self { clock, stop, until: clock.now() + READER_WAIT_MAX }
    }

    /// Opens one output with `open`, again and again while it is a named pipe without a reader. Pipes that are open already stay so: their
    /// readers would see an end otherwise.
    ///
    /// # Errors
    /// Returns the last error of `open`.
    pub(super) fn open<T>(&self, mut open: impl FnMut() -> Result<T, OutputError>) -> Result<T, OutputError> {
        let signal = self.clock.signal();
        loop {
            match open() {
                Err(OutputError::NoReader { .. })
                    if self.clock.now() < self.until && !self.stop.requested() =>
                {
                    signal.wait(Some(self.clock.now() + READER_EVERY));
                }
                opened => return opened,
            }
        }
    }
}
