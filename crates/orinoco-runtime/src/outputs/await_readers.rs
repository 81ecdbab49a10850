//! Waiting for the readers of named pipes.

use std::time::Duration;

use orinoco_core::Clock;

use super::error::OutputError;

/// Time for which a start or a reload waits for the reader of a named pipe.
const READER_WAIT_MAX: Duration = Duration::from_secs(10);
/// Time between two looks for that reader.
const READER_EVERY: Duration = Duration::from_millis(20);

/// Opens outputs with `open`, again and again for at most [`READER_WAIT_MAX`] while a named pipe has no reader, which may be started after
/// the run. `check_stop` fails if the waiting is to end.
///
/// # Errors
/// Returns the error of `open` or of `check_stop`.
pub(crate) fn await_readers<T, E: From<OutputError>>(
    clock: &dyn Clock,
    check_stop: impl Fn() -> Result<(), E>,
    mut open: impl FnMut() -> Result<T, OutputError>,
) -> Result<T, E> {
    let (until, signal) = (clock.now() + READER_WAIT_MAX, clock.signal());
    loop {
        match open() {
            Err(OutputError::NoReader { .. }) if clock.now() < until => {}
            opened => return Ok(opened?),
        }
        check_stop()?;
        // The kernel tells nobody that a reader has come.
        signal.wait(Some(clock.now() + READER_EVERY));
    }
}
