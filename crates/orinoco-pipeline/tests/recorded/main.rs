//! A recorded run against its repetition: real threads (sources in bursts, a lane whose engine takes time and fails, sinks
//! that fall behind) run with all drop policies; then the arrivals and durations in their trace go through the same cores in
//! virtual time, on one thread. Batches, refusals and drops must be the same, frame by frame.

#![allow(clippy::print_stdout, reason = "tests say what they ran")]

mod real;
mod replay;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use orinoco_core::{DropPolicy, StreamId};
use orinoco_pipeline::StreamQueue;
use orinoco_telemetry::{DropCause, Queue, QueueStep, Record, Stage};

/// A frame by its stream and number.
type FrameKey = (StreamId, u64);

/// Decisions of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Decisions {
    /// Frames of each batch, in order.
    batches: Vec<Vec<FrameKey>>,
    /// Dropped frames with their causes; for losses at the source the first of them.
    drops: BTreeSet<(FrameKey, &'static str)>,
    /// Frames dropped by cause.
    dropped: BTreeMap<&'static str, u64>,
}

impl Decisions {
    fn drop(&mut self, frame: FrameKey, cause: DropCause, frames: u64) {
        assert!(self.drops.insert((frame, cause.name())), "{frame:?} is dropped twice");
        *self.dropped.entry(cause.name()).or_default() += frames;
    }

    /// Those of the real run, as its records say.
    fn of_trace(records: &[Record]) -> Self {
        let mut decisions = Self::default();
        for record in records {
            match record {
                Record::Lane(record) if record.step == orinoco_telemetry::LaneStep::Took => {
                    decisions.batches.push(Vec::new());
                }
                Record::Frame(record) if record.stage == Stage::Queue => {
                    let batch = decisions.batches.last_mut().expect("a batch is taken before its frames");
                    batch.push((record.stream, record.seq));
                }
                Record::Drop(record) => {
                    decisions.drop((record.stream, record.seq), record.cause, record.frames);
                }
                _ => {}
            }
        }
        decisions
    }
}

/// The rings of the run, each with the maximum batch size of its model: two groups, and every drop policy.
fn queues() -> Vec<(StreamQueue, usize)> {
    let queue = |group, batch_max, frames_max, policy, wait_ms| {
        let batch_wait = Duration::from_millis(wait_ms);
        (StreamQueue { group, frames_max, policy, batch_wait }, batch_max)
    };
    vec![
        queue(0, 3, 4, DropPolicy::DropOldest, 3),
        queue(0, 3, 2, DropPolicy::DropNewest, 3),
        queue(0, 3, 3, DropPolicy::Block, 3),
        queue(1, 2, 1, DropPolicy::DropOldest, 0),
        queue(1, 2, 5, DropPolicy::Block, 0),
    ]
}

#[test]
fn a_recorded_run_is_repeated_by_its_cores() {
    let queues = queues();
    let records = real::run(&queues, 7);
    let recorded = Decisions::of_trace(&records);
    let frames: usize = recorded.batches.iter().map(Vec::len).sum();
    println!("{} records, {} batches of {frames} frames", records.len(), recorded.batches.len());
    println!("dropped: {:?}", recorded.dropped);
    // Only what happened can be repeated.
    let causes = [
        DropCause::LostAtSource,
        DropCause::DropOldest,
        DropCause::DropNewest,
        DropCause::SinkBehind,
        DropCause::ExecutionFailed,
    ];
    for cause in causes {
        assert!(recorded.dropped.contains_key(cause.name()), "no frame was dropped as {}", cause.name());
    }
    assert!(recorded.batches.iter().any(|batch| batch.len() > 1), "frames share batches");
    for queue in [Queue::Ring, Queue::Sinks] {
        let waited = |record: &&Record| matches!(record, Record::Queue(record) if record.queue == queue && record.step == QueueStep::Waited);
        assert!(records.iter().any(|record| waited(&record)), "nobody waited for room: {queue:?}");
    }

    let replayed = replay::replay(&queues, &records).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(replayed, recorded);

    // It is the rings that decide, and not the recording.
    let mut larger = queues;
    larger.iter_mut().for_each(|(queue, _)| queue.frames_max += 1);
    assert_ne!(replay::replay(&larger, &records).ok(), Some(recorded));
}
