//! Power and thermal governor of a run: a thread that asks the control law once a second, and has the helper take its steps.
//!
//! Read `actuators.rs` (settings as the law sees them), `readings.rs` (inputs of the law), and `driver.rs` (one tick). Clocks and
//! power modes are set by `helper.rs`, intervals and variants of models by `model_levels.rs`.

mod actuators;
mod driver;
mod helper;
mod model_levels;
mod readings;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};

use orinoco_board::{GovernorSpec, Profile};
use orinoco_core::{Clock, Diagnosis, Signal};
use orinoco_governor::TICK;
use orinoco_telemetry::EventSink;

use crate::monitor::Monitor;
use crate::prepare::RunAction;
use crate::threads::ThreadError;
use driver::Driver;

/// Thread that governs a board while it runs.
pub(crate) struct GovernorThread {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    signal: Arc<dyn Signal>,
}

impl GovernorThread {
    /// Starts to govern the board that `monitor` shows. `profile` is that of its kind, if it is known.
    pub(crate) fn start(
        spec: GovernorSpec,
        profile: Option<&'static Profile>,
        clock: Arc<dyn Clock>,
        events: Arc<dyn EventSink>,
        monitor: Monitor,
        actions: Sender<RunAction>,
    ) -> Result<Self, Diagnosis> {
        let (stop, signal) = (Arc::new(AtomicBool::new(false)), clock.signal());
        let (stopping, waiting) = (Arc::clone(&stop), Arc::clone(&signal));
        let run = move || {
            let mut driver = Driver::new(spec, profile, monitor, events, actions);
            while !stopping.load(Ordering::Acquire) {
                driver.tick(clock.now());
                waiting.wait(Some(clock.now() + TICK));
            }
        };
        let thread = thread::Builder::new().name("governor".to_owned()).spawn(run);
        let thread = thread.map_err(|why| ThreadError::Start(why).diagnosis("governor"))?;
        Ok(Self { thread, stop, signal })
    }

    /// Ends the thread, whereupon the helper restores the settings.
    pub(crate) fn finish(self) {
        self.stop.store(true, Ordering::Release);
        self.signal.notify();
        // The helper restores after a panic, too: its client is gone.
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests;
