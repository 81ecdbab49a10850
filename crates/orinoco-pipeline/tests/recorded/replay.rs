//! The repetition of a recorded run: its cores alone, on one thread, at the times that it recorded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use orinoco_core::{ModelId, Nanos, StreamId};
use orinoco_pipeline::{
    AfterExecution, AfterFailure, Execution, ExecutionEnd, Frame, FrameResult, LaneBatches, LaneModels,
    MuxCore, Next, NextBatch, Offer, PlanFacts, ResultOffer, Settled, SinkCore, SinkNext, SinkResult,
    StreamModels, StreamQueue,
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
    models: LaneModels,
    /// Each group has a model of its own.
    batches: LaneBatches<PlanFacts, VecDeque<Frame>, Frame>,
    sinks: Vec<SinkCore>,
    /// Results that the lane has not handed over yet.
    results: BTreeMap<FrameKey, FrameResult>,
    decisions: Decisions,
}

impl Board {
    fn new(queues: &[(StreamQueue, usize)]) -> Self {
        let (mut mux, mut models) = (MuxCore::default(), LaneModels::default());
        let mut batches = LaneBatches::default();
        for (index, &(queue, batch_max)) in queues.iter().enumerate() {
            let (stream, model) = (StreamId::from_index(index), ModelId::from_index(queue.group));
            let plan = PlanFacts { model, generation: 0, batch_max, reads_video_memory: false, interval: 1 };
            let brought = if models.has_model(model) { &[][..] } else { &[plan] };
            let of_stream =
                StreamModels { models: vec![model], of_frames: vec![model], in_video_memory: false };
            models.check_join(&of_stream, brought).expect("its plan is there");
            mux.add(stream, queue, models.batch_max(&of_stream, brought)).expect("it is open");
            models.join(stream, of_stream, brought);
            brought.iter().for_each(|plan| batches.add_plan(*plan, *plan));
            batches.add_stream(stream, vec![model]);
        }
        let sinks = queues.iter().map(|(queue, _)| SinkCore::new(queue.policy, Nanos(0))).collect();
        let (results, decisions) = (BTreeMap::new(), Decisions::default());
        Self { mux, models, batches, sinks, results, decisions }
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
        let mut frames = Vec::new();
        loop {
            match self.mux.next(now, &mut frames) {
                NextBatch::Ready(Next::Joined) => {}
                NextBatch::Ready(Next::Left(stream)) => {
                    self.batches.remove_stream(stream, &mut self.models);
                }
                NextBatch::Ready(Next::Batch(_)) => break,
                next => return Err(format!("there is no batch, but {next:?}")),
            }
        }
        self.decisions.batches.push(frames.iter().map(key).collect());
        let stream_of = |frames: &VecDeque<Frame>, index: usize| Some(frames.get(index)?.desc.stream);
        self.batches.take(frames.into(), stream_of);
        Ok(())
    }

    /// The engine is done: it was asked as often as the lane wants, and fails the first time or not at all.
    fn finish(&mut self, finished: Nanos, succeeded: bool) -> Result<(), String> {
        let end = if succeeded { ExecutionEnd::Executed } else { ExecutionEnd::Failed };
        while let Some(Execution { .. }) = self.batches.next(|_, frames| frames.len()) {
            match self.batches.finished(end, finished) {
                AfterExecution::Next => {}
                AfterExecution::Failed(AfterFailure::Continue) => break,
                after => return Err(format!("{after:?}")),
            }
        }
        let mut results = Vec::new();
        loop {
            let mut dropped = None;
            let take = |frames: &mut VecDeque<Frame>| {
                let frame = frames.pop_front()?;
                dropped = (!succeeded).then(|| key(&frame));
                succeeded.then_some(frame)
            };
            let settled = self.batches.settle_next(take, |frame| results.push(frame));
            if let Some(dropped) = dropped {
                self.decisions.drop(dropped, DropCause::ExecutionFailed, 1);
            }
            match settled {
                Some((_, Settled::Unchanged)) => {}
                Some(other) => return Err(format!("nothing waits for an answer, but {other:?}")),
                None => break,
            }
        }
        self.batches.end_batch();
        for frame in results {
            self.results.insert(key(&frame), FrameResult { frame, found: Vec::new(), finished });
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
