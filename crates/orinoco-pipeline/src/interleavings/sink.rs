//! A lane that hands outcomes over, and sinks that are slow, fail, or are gone.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use orinoco_core::{Clock, Diagnosis, DropPolicy, Nanos, StreamId};
use orinoco_telemetry::StreamTelemetry;

use super::check;
use super::frames::{Held, Quiet, clock, dropped, fault, telemetry};
use crate::sync::{join, spawn};
use crate::{FrameResult, ResultSender, Sink, SinkThread, Stop};

const STREAM: StreamId = StreamId(0);
/// More than may wait for the sinks.
const OUTCOMES: u64 = 7;

/// Writes after a while, and fails after some.
pub(super) struct Script {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) write: Duration,
    pub(super) writes_max: u64,
    pub(super) written: Arc<AtomicU64>,
}

impl Sink for Script {
    fn write(&mut self, _: &FrameResult) -> Result<(), Diagnosis> {
        if self.write > Duration::ZERO {
            let until = self.clock.now() + self.write;
            self.clock.signal().wait(Some(until));
        }
        if self.written.fetch_add(1, Ordering::Relaxed) >= self.writes_max { Err(fault()) } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<Option<PathBuf>, Diagnosis> {
        Ok(None)
    }
}

/// Sinks of a script, and the end that feeds them.
pub(super) fn sinks(
    telemetry: &StreamTelemetry,
    policy: DropPolicy,
    write: Duration,
    writes_max: u64,
) -> (SinkThread, ResultSender, Arc<AtomicU64>) {
    let (clock, written) = (clock(), Arc::<AtomicU64>::default());
    let script = Script { clock: clock.clone(), write, writes_max, written: Arc::clone(&written) };
    let sinks: Vec<Box<dyn Sink>> = vec![Box::new(script)];
    let (thread, result_sender) =
        SinkThread::new(telemetry.clone(), sinks, policy, None, clock, Arc::new(Quiet));
    (thread, result_sender, written)
}

fn push_all(mut result_sender: ResultSender, held: &Held, stop: &Stop) {
    for seq in 0..OUTCOMES {
        let frame_result =
            FrameResult { frame: held.frame(STREAM, seq), found: Vec::new(), finished: Nanos(0) };
        result_sender.push(frame_result, stop);
    }
}

/// A lane against sinks; the stop is requested at any moment if `stops`. Returns how many outcomes were written.
fn run(policy: DropPolicy, write: Duration, writes_max: u64, stops: bool) -> u64 {
    let (stream, held, stop) = (telemetry(1).stream(STREAM), Held::default(), Stop::default());
    let (thread, result_sender, written) = sinks(&stream, policy, write, writes_max);
    let lane = spawn({
        let (held, stop) = (held.clone(), stop.clone());
        move || push_all(result_sender, &held, &stop)
    });
    let thread = spawn(move || thread.run());
    let request = stops.then(|| spawn(move || stop.request()));
    join(lane);
    let outputs = join(thread);
    request.into_iter().for_each(join);
    let written = written.load(Ordering::Relaxed);
    assert_eq!(outputs.faults.len(), usize::from(written > writes_max));
    let out = stream.read(|fold| fold.frames_out);
    let dropped = dropped(&stream);
    assert_eq!(out + dropped, OUTCOMES, "{out} out, {dropped} dropped");
    assert_eq!(out, written.min(writes_max));
    assert_eq!(held.count(), 0);
    out
}

#[test]
fn a_lane_waits_for_the_sinks_of_a_stream_that_drops_nothing() {
    check(|| assert_eq!(run(DropPolicy::Block, Duration::ZERO, u64::MAX, false), OUTCOMES));
}

#[test]
fn a_stream_that_may_drop_never_waits_for_its_sinks() {
    check(|| assert!(run(DropPolicy::DropOldest, Duration::from_millis(30), u64::MAX, false) > 0));
}

#[test]
fn slow_sinks_hold_up_the_end_for_a_bounded_time() {
    check(|| _ = run(DropPolicy::Block, Duration::from_secs(9), u64::MAX, true));
}

#[test]
fn sinks_that_fail_hold_up_nobody() {
    check(|| _ = run(DropPolicy::Block, Duration::ZERO, 2, false));
}

#[test]
fn a_lane_does_not_wait_for_sinks_that_are_gone() {
    check(|| {
        let (stream, held, stop) = (telemetry(1).stream(STREAM), Held::default(), Stop::default());
        let (thread, result_sender, _) = sinks(&stream, DropPolicy::Block, Duration::ZERO, u64::MAX);
        let lane = spawn({
            let held = held.clone();
            move || push_all(result_sender, &held, &stop)
        });
        let gone = spawn(move || drop(thread));
        join(lane);
        join(gone);
        assert_eq!(held.count(), 0);
    });
}
