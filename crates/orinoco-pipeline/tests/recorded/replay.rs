//! The repetition of a recorded run: its cores alone, on one thread, at the times that it recorded.

use std::collections::{BTreeMap, BTreeSet};

use orinoco_core::{ModelId, Nanos, StreamId};
use orinoco_pipeline::{
    AfterFailure, Frame, FrameResult, LaneCore, MuxCore, Next, NextBatch, Offer, PlanFacts, ResultOffer,
    SinkCore, SinkNext, SinkResult, StreamModels, StreamQueue,
};
use orinoco_telemetry::{
    DropCause, LaneRecord, LaneStep, Queue, QueueRecord, QueueStep, Record, SourceState,
};

use crate::real::frame;
use crate::{Decisions, FrameKey};

/// Repeats a run of `queues`: what came from outside is taken from its `records`, and what the cores decided is decided again.
/// Fails where a queue or the lane does something else than was recorded.
pub(crate) fn replay(queues: &[(StreamQueue, usize)], records: &[Record]) -> Result<Decisions, String> {
    let failures: BTreeSet<u64> = records.iter().filter_map(failed_at).collect();
    let mut board = Board::new(queues);
    for record in records {
        let done = match record {
            Record::Queue(record) => match (record.queue, record.step) {
                (Queue::Ring, _) => board.offer(record),
                (Queue::Sinks, QueueStep::Taken) => board.write(record),
                (Queue::Sinks, _) => board.forward(record),
            },
            Record::Lane(LaneRecord { step: LaneStep::Took, at, .. }) => board.take(*at),
            Record::Lane(LaneRecord { step: LaneStep::Finished, at, .. }) => {
                board.finish(*at, !failures.contains(&at.0))
            }
            Record::State(record) => {
                if record.state == SourceState::Ended {
                    board.mux.end(record.stream);
                }
                Ok(())
            }
            Record::Drop(record) if record.cause == DropCause::LostAtSource => {
                board.decisions.drop((record.stream, record.seq), record.cause, record.frames);
                Ok(())
            }
            _ => Ok(()),
        };
        done.map_err(|why| format!("{record:?}: {why}"))?;
    }
    Ok(board.decisions)
}

/// Time at which an engine failed, if a record is about that: the rest of the batch's story follows from it.
fn failed_at(record: &Record) -> Option<u64> {
    match record {
        Record::Drop(record) if record.cause == DropCause::ExecutionFailed => Some(record.at.0),
        _ => None,
    }
}

struct Board {
    mux: MuxCore,
    lane: LaneCore,
    sinks: Vec<SinkCore>,
    /// Frames of the batch that is executed.
    batch: Vec<Frame>,
    /// The model that executes it: each group has its own.
    model: ModelId,
    /// Results that the lane has not handed over yet.
    results: BTreeMap<FrameKey, FrameResult>,
    decisions: Decisions,
}

impl Board {
    fn new(queues: &[(StreamQueue, usize)]) -> Self {
        let (mut mux, mut lane) = (MuxCore::default(), LaneCore::default());
        for (index, &(queue, batch_max)) in queues.iter().enumerate() {
            let (stream, model) = (StreamId::from_index(index), ModelId::from_index(queue.group));
            let brought = if lane.has_model(model) {
                &[][..]
            } else {
                &[PlanFacts { model, generation: 0, batch_max, reads_video_memory: false, interval: 1 }]
            };
            let models = StreamModels { models: vec![model], of_frames: vec![model], in_video_memory: false };
            lane.check_join(&models, brought).expect("its plan is there");
            mux.add(stream, queue, lane.batch_max(&models, brought)).expect("it is open");
            lane.join(stream, models, brought);
        }
        let sinks = queues.iter().map(|(queue, _)| SinkCore::new(queue.policy, Nanos(0))).collect();
        let (results, decisions, model) = (BTreeMap::new(), Decisions::default(), ModelId(0));
        Self { mux, lane, sinks, batch: Vec::new(), model, results, decisions }
    }

    /// A source offers a frame to its ring.
    fn offer(&mut self, record: &QueueRecord) -> Result<(), String> {
        let mut offered = frame(record.at);
        (offered.desc.stream, offered.desc.seq) = (record.stream, record.seq);
        let (step, dropped) = match self.mux.offer(record.stream, offered, record.at) {
            Offer::Accepted => (QueueStep::Accepted, None),
            Offer::Replaced(oldest) => (QueueStep::ReplacedOldest, Some((oldest, DropCause::DropOldest))),
            Offer::Refused(newest) => (QueueStep::Refused, Some((newest, DropCause::DropNewest))),
            Offer::Full(_) => (QueueStep::Waited, None),
            Offer::Closed(_) => return Err("the lane has ended".to_owned()),
        };
        if let Some((frame, cause)) = dropped {
            self.decisions.drop(key(&frame), cause, 1);
        }
        same(step, record.step)
    }

    /// The lane takes a batch.
    fn take(&mut self, now: Nanos) -> Result<(), String> {
        loop {
            match self.mux.next(now, &mut self.batch) {
                NextBatch::Ready(Next::Joined) => {}
                NextBatch::Ready(Next::Left(stream)) => self.lane.leave(stream),
                NextBatch::Ready(Next::Batch(group)) => {
                    self.model = ModelId::from_index(group);
                    break;
                }
                next => return Err(format!("there is no batch, but {next:?}")),
            }
        }
        self.decisions.batches.push(self.batch.iter().map(key).collect());
        Ok(())
    }

    /// The engine is done.
    fn finish(&mut self, finished: Nanos, succeeded: bool) -> Result<(), String> {
        for frame in self.batch.drain(..) {
            let key = key(&frame);
            if succeeded {
                self.results.insert(key, FrameResult { frame, found: Vec::new(), finished });
            } else {
                self.decisions.drop(key, DropCause::ExecutionFailed, 1);
            }
        }
        if succeeded {
            self.lane.executed(self.model);
        } else if self.lane.failed(self.model) == AfterFailure::End {
            return Err("the lane ends".to_owned());
        }
        Ok(())
    }

    /// The lane offers a result to the sinks.
    fn forward(&mut self, record: &QueueRecord) -> Result<(), String> {
        let key = (record.stream, record.seq);
        let frame_result = self.results.remove(&key).ok_or("there is no such result")?;
        let step = match self.sinks[record.stream.index()].offer(frame_result, false, record.at) {
            ResultOffer::Accepted => QueueStep::Accepted,
            ResultOffer::Refused(_, cause) => {
                self.decisions.drop(key, cause, 1);
                QueueStep::Refused
            }
            ResultOffer::Full(frame_result, _) => {
                self.results.insert(key, frame_result);
                QueueStep::Waited
            }
        };
        same(step, record.step)
    }

    /// The sinks take a result.
    fn write(&mut self, record: &QueueRecord) -> Result<(), String> {
        let sinks = &mut self.sinks[record.stream.index()];
        loop {
            match sinks.next(record.at) {
                SinkNext::Write(frame_result) => {
                    sinks.finished(SinkResult::Wrote, record.at);
                    return same(key(&frame_result.frame), (record.stream, record.seq));
                }
                SinkNext::CheckOffline => sinks.finished(SinkResult::NotOffline, record.at),
                SinkNext::Flush => {}
                next => return Err(format!("nothing waits for the sinks, which do {next:?}")),
            }
        }
    }
}

fn key(frame: &Frame) -> FrameKey {
    (frame.desc.stream, frame.desc.seq)
}

fn same<T: PartialEq + std::fmt::Debug>(replayed: T, recorded: T) -> Result<(), String> {
    if replayed == recorded { Ok(()) } else { Err(format!("{replayed:?} in the repetition")) }
}
