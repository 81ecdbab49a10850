//! Ctrl-C and SIGTERM.

use std::thread;

use orinoco_core::{Diagnosis, Exit, WithSubject, codes};
use orinoco_pipeline::Stop;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// From now on a first Ctrl-C or SIGTERM asks for a clean end, and a second one ends at once.
pub(crate) fn stop_on_signals(stop: Stop) -> Result<(), Diagnosis> {
    let next = "run it where signals can be handled";
    let mut signals = Signals::new([SIGINT, SIGTERM]).about(&codes::ENGINE_RUN, "signal handler", next)?;
    thread::spawn(move || {
        for _ in &mut signals {
            if stop.requested() {
                #[expect(clippy::exit, reason = "the user asked twice: do not wait for anything")]
                std::process::exit(Exit::Interrupted as i32);
            }
            stop.request();
        }
    });
    Ok(())
}
