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
use std::thread::JoinHandle;

use orinoco_api::{Fault, GovernorStatus};
use orinoco_board::{GovernorSpec, Profile};
use orinoco_core::{Clock, Diagnosis, Signal};
use orinoco_governor::TICK;
use orinoco_telemetry::{Event, EventSink};

use crate::monitor::Monitor;
use crate::prepare::RunAction;
use crate::threads::{ThreadError, spawn};
use driver::{Driver, unavailable};

/// Name of the thread.
const THREAD: &str = "governor";

/// Thread that governs a board while it runs. If it panics, the run continues without it. The helper restores the settings, as
/// at the end: its connection is closed.
pub(crate) struct GovernorThread {
    /// The thread, which returns its fault if it panicked; `None` once it was joined.
    thread: Option<JoinHandle<Option<Diagnosis>>>,
    stop: Arc<AtomicBool>,
    signal: Arc<dyn Signal>,
}

impl GovernorThread {
    /// Starts to govern the board that `monitor` shows. `profile` is that of its kind, if it is known. A panic of the thread is an
    /// event.
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
        let (shown, reported, initial) = (monitor.clone(), Arc::clone(&events), unavailable(&spec));
        let run = move || {
            let mut driver = Driver::new(spec, profile, monitor, events, actions);
            while !stopping.load(Ordering::Acquire) {
                driver.tick(clock.now());
                waiting.wait(Some(clock.now() + TICK));
            }
        };
        let ended = move |end: Result<(), Diagnosis>| {
            let why = end.err()?;
            let GovernorStatus { steps_up, steps_down, last_step, .. } =
                shown.governor().unwrap_or_else(|| initial.clone());
            let fault = Some(Fault::from(&why));
            shown.set_governor(GovernorStatus { steps_up, steps_down, last_step, fault, ..initial });
            reported.emit(Event::GovernorFault { why: why.clone() });
            Some(why)
        };
        let thread = spawn(THREAD.to_owned(), run, ended)?;
        Ok(Self { thread: Some(thread), stop, signal })
    }

    /// Ends the thread, whereupon the helper restores the settings. Returns the fault of the thread if it panicked.
    pub(crate) fn finish(mut self) -> Option<Diagnosis> {
        self.end()
    }

    fn end(&mut self) -> Option<Diagnosis> {
        self.stop.store(true, Ordering::Release);
        self.signal.notify();
        // The report of a panic may panic, too.
        self.thread.take()?.join().unwrap_or_else(|_| Some(ThreadError::Panicked.diagnosis(THREAD)))
    }
}

/// A run that could not be started leaves no changed settings behind.
impl Drop for GovernorThread {
    fn drop(&mut self) {
        drop(self.end());
    }
}

#[cfg(test)]
mod tests;
