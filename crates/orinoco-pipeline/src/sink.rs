//! What becomes of a frame and its findings.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use orinoco_core::{Clock, Diagnosis, Findings, Nanos, StreamId};
use orinoco_telemetry::{DropCause, Event, EventSink, Stage, Stats};

use crate::{DropPolicy, Frame};

/// Frames that may wait for a stream's sinks; each holds a decoder's buffer, so few.
const OUTCOMES_MAX: usize = 4;

/// A frame and what each of its stream's models found in it, in the stream's order of models.
#[derive(Debug)]
pub struct Outcome {
    /// The frame.
    pub frame: Frame,
    /// Findings by model: index into the board's models.
    pub findings: Vec<(usize, Findings)>,
    /// When the last plan finished.
    pub finished: Nanos,
}

/// Takes outcomes: a file, a screen, a wire. Runs on its stream's sink thread.
pub trait Sink: Send {
    /// Takes one outcome.
    fn write(&mut self, outcome: &Outcome) -> Result<(), Diagnosis>;

    /// Completes the output; returns the file it wrote, if any. Called once, after the last `write`.
    fn finish(&mut self) -> Result<Option<PathBuf>, Diagnosis>;
}

/// The lane's end of a stream's sinks.
#[derive(Debug)]
pub struct Outlet {
    sender: SyncSender<Outcome>,
    policy: DropPolicy,
}

impl Outlet {
    /// Hands an outcome over. A stream that may drop frames never waits here, so that slow sinks cannot hold a lane.
    pub fn push(&self, outcome: Outcome, stats: &Stats) {
        let stream = outcome.frame.desc.stream;
        let sent = match self.policy {
            DropPolicy::Block => self.sender.send(outcome).map_err(|_| ()),
            DropPolicy::DropOldest | DropPolicy::DropNewest => {
                self.sender.try_send(outcome).map_err(|error| match error {
                    TrySendError::Full(_) | TrySendError::Disconnected(_) => (),
                })
            }
        };
        if sent.is_err() {
            stats.stream(stream).drop_frame(DropCause::SinkBehind);
        }
    }
}

/// Runs one stream's sinks on the calling thread.
pub struct SinkThread {
    stream: StreamId,
    sinks: Vec<Box<dyn Sink>>,
    outcomes: Receiver<Outcome>,
    latency_max: Option<Duration>,
    clock: Arc<dyn Clock>,
    events: Arc<dyn EventSink>,
    stats: Stats,
}

impl SinkThread {
    /// The sinks of `stream` and the outlet that feeds them.
    pub fn new(
        stream: StreamId,
        sinks: Vec<Box<dyn Sink>>,
        policy: DropPolicy,
        latency_max: Option<Duration>,
        clock: Arc<dyn Clock>,
        events: Arc<dyn EventSink>,
        stats: Stats,
    ) -> (Self, Outlet) {
        let (sender, outcomes) = sync_channel(OUTCOMES_MAX);
        let thread = Self { stream, sinks, outcomes, latency_max, clock, events, stats };
        (thread, Outlet { sender, policy })
    }

    /// Writes until the outlet is dropped, then completes every sink. Returns the files written and the faults.
    pub fn run(mut self) -> (Vec<PathBuf>, Vec<Diagnosis>) {
        let mut faults = Vec::new();
        while let Ok(outcome) = self.outcomes.recv() {
            self.write(&outcome, &mut faults);
            self.count(&outcome);
        }
        let mut files = Vec::new();
        for mut sink in self.sinks {
            match sink.finish() {
                Ok(file) => files.extend(file),
                Err(fault) => faults.push(fault),
            }
        }
        (files, faults)
    }

    fn write(&mut self, outcome: &Outcome, faults: &mut Vec<Diagnosis>) {
        self.sinks.retain_mut(|sink| match sink.write(outcome) {
            Ok(()) => true,
            Err(why) => {
                self.events.emit(Event::SinkFailed { stream: self.stream, why: why.clone() });
                faults.push(why);
                false
            }
        });
    }

    fn count(&self, outcome: &Outcome) {
        let now = self.clock.now();
        let total = now.since(outcome.frame.arrived);
        let mut stats = self.stats.stream(self.stream);
        stats.frames_out += 1;
        stats.first_in.get_or_insert(outcome.frame.arrived);
        stats.last_out = Some(now);
        stats.detections +=
            outcome.findings.iter().map(|(_, found)| found.detections.len() as u64).sum::<u64>();
        stats.record(Stage::Sink, now.since(outcome.finished));
        stats.record(Stage::Total, total);
        if self.latency_max.is_some_and(|max| total > max) {
            stats.late += 1;
        }
    }
}
