//! Frames put together from the records of the data plane.

use std::collections::{BTreeMap, VecDeque};

use orinoco_core::{ComputeUnit, Nanos, StreamId, TimeSpan};
use orinoco_telemetry::{
    ArrivalRecord, BatchRecord, DropCause, DropRecord, FrameRecord, Record, ResultRecord, Stage, Trace,
};

use crate::ids::{FrameIds, RunId, Sampling};

/// Maximum number of frames that are being put together. 64 streams with 16 frames each in work are more than a board has; beyond
/// that the oldest is dropped.
const PENDING_MAX: usize = 1024;
/// Maximum number of batches among which a frame's is looked for. A lane emits the shares of frames right after their batch, so
/// between them there are only batches of the other lanes, of which a board has 16 at most, with three stages each.
const BATCHES_MAX: usize = 128;

/// Frame that has gone through the pipeline or was dropped, with its stages.
#[derive(Clone, Debug)]
pub(crate) struct TracedFrame {
    pub(crate) stream: StreamId,
    pub(crate) seq: u64,
    pub(crate) ids: FrameIds,
    /// Time at which it reached its slot.
    pub(crate) arrived: Nanos,
    /// From the driver's time stamp to the slot, where it is known.
    pub(crate) capture: Option<TimeSpan>,
    /// In the decoder, where there is one.
    pub(crate) decode: Option<TimeSpan>,
    /// From the slot to the lane.
    pub(crate) queue: Option<TimeSpan>,
    /// Stages of its models, in the order in which they were executed.
    pub(crate) steps: Vec<ModelStep>,
    /// Waiting for the sinks, and writing.
    pub(crate) sink: Option<TimeSpan>,
    pub(crate) end: FrameEnd,
    pub(crate) ended: Nanos,
}

/// Stage of a model for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelStep {
    pub(crate) stage: Stage,
    /// Time of the whole batch; where that is not known, the frame's share of it.
    pub(crate) span: TimeSpan,
    /// Batch that the frame was part of.
    pub(crate) batch: Option<BatchRecord>,
    /// Number of images of this frame in the batch: 1, or its objects.
    pub(crate) images: u32,
}

/// End of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameEnd {
    /// It has gone through every model and sink.
    Finished {
        detections: u64,
        late_in: Option<Stage>,
    },
    Dropped(DropCause),
}

/// Frames that are being put together, those that are sampled.
pub(crate) struct Frames {
    run: RunId,
    sampling: Sampling,
    pending: BTreeMap<(StreamId, u64), TracedFrame>,
    /// Latest batches, by the lanes' threads.
    batches: VecDeque<BatchRecord>,
    /// Number of frames that were not put together, because records were lost or too many frames were in work.
    incomplete: u64,
}

impl Frames {
    /// Creates an empty set for a run.
    pub(crate) fn new(run: RunId, sampling: Sampling) -> Self {
        let (pending, batches) = (BTreeMap::new(), VecDeque::with_capacity(BATCHES_MAX));
        Self { run, sampling, pending, batches, incomplete: 0 }
    }

    /// Adds the records that came, and returns the frames that ended with them. After a loss, frames that were in work are left
    /// out: some of their records may be among the lost ones.
    pub(crate) fn add(&mut self, trace: &Trace) -> Vec<TracedFrame> {
        if trace.lost > 0 {
            self.incomplete += self.pending.len() as u64;
            self.pending.clear();
            self.batches.clear();
        }
        let mut ended = Vec::new();
        for record in &trace.records {
            match record {
                Record::Arrival(record) => self.arrive(record),
                Record::Batch(record) if record.unit == ComputeUnit::Cpu => self.keep_batch(*record),
                Record::Frame(record) => self.pass_stage(record),
                Record::Result(record) => ended.extend(self.finish(record)),
                Record::Drop(record) => ended.extend(self.drop_frames(record)),
                _ => {}
            }
        }
        ended
    }

    /// Takes the number of frames that were not put together since the last call.
    pub(crate) fn take_incomplete(&mut self) -> u64 {
        std::mem::take(&mut self.incomplete)
    }

    fn arrive(&mut self, record: &ArrivalRecord) {
        let ids = self.run.frame(record.stream, record.seq);
        if !self.sampling.takes(&ids) {
            return;
        }
        let frame = TracedFrame {
            stream: record.stream,
            seq: record.seq,
            ids,
            arrived: record.at,
            capture: None,
            decode: None,
            queue: None,
            steps: Vec::new(),
            sink: None,
            // Set when it ends.
            end: FrameEnd::Dropped(DropCause::Shutdown),
            ended: record.at,
        };
        self.pending.insert((record.stream, record.seq), frame);
        if self.pending.len() > PENDING_MAX {
            let oldest = self.pending.iter().min_by_key(|(_, frame)| frame.arrived).map(|(key, _)| *key);
            self.incomplete += oldest.and_then(|key| self.pending.remove(&key)).map_or(0, |_| 1);
        }
    }

    fn keep_batch(&mut self, record: BatchRecord) {
        if self.batches.len() == BATCHES_MAX {
            self.batches.pop_front();
        }
        self.batches.push_back(record);
    }

    fn pass_stage(&mut self, record: &FrameRecord) {
        let Some(frame) = self.pending.get_mut(&(record.stream, record.seq)) else { return };
        match record.stage {
            Stage::Capture => frame.capture = Some(record.span),
            Stage::Decode => frame.decode = Some(record.span),
            Stage::Queue => frame.queue = Some(record.span),
            Stage::Sink => frame.sink = Some(record.span),
            Stage::Preprocess | Stage::Infer | Stage::Postprocess => {
                let batch = self.batches.iter().rev().find(|batch| is_share(record, batch)).copied();
                frame.add_step(record, batch);
            }
            Stage::Total | Stage::CaptureToResult => {}
        }
    }

    fn finish(&mut self, record: &ResultRecord) -> Option<TracedFrame> {
        let frame = self.pending.remove(&(record.stream, record.seq))?;
        let end = FrameEnd::Finished { detections: record.detections, late_in: record.late_in };
        Some(TracedFrame { end, ended: record.at, ..frame })
    }

    fn drop_frames(&mut self, record: &DropRecord) -> Vec<TracedFrame> {
        let (first, after) = (record.seq, record.seq.saturating_add(record.frames));
        let keys: Vec<_> =
            self.pending.range((record.stream, first)..(record.stream, after)).map(|(key, _)| *key).collect();
        let frames = keys.iter().filter_map(|key| self.pending.remove(key));
        let end = FrameEnd::Dropped(record.cause);
        frames.map(|frame| TracedFrame { end, ended: record.at, ..frame }).collect()
    }
}

impl TracedFrame {
    /// Adds a share of a batch. Several objects of the frame may be in one batch.
    fn add_step(&mut self, record: &FrameRecord, batch: Option<BatchRecord>) {
        let same = |step: &&mut ModelStep| batch.is_some() && step.batch == batch;
        if let Some(step) = self.steps.iter_mut().find(same) {
            step.images += 1;
            return;
        }
        let span = batch.map_or(record.span, |batch| batch.span);
        self.steps.push(ModelStep { stage: record.stage, span, batch, images: 1 });
    }
}

/// Whether a frame's time in a stage is one of the equal shares of a batch. Lanes work at the same time, but not in the same
/// nanoseconds.
fn is_share(record: &FrameRecord, batch: &BatchRecord) -> bool {
    if batch.stage != record.stage || batch.items == 0 {
        return false;
    }
    let each = batch.span.share(0, batch.items).duration();
    let offset = record.span.start().0.checked_sub(batch.span.start().0);
    let index = offset.and_then(|offset| match each.as_nanos() as u64 {
        0 => (offset == 0).then_some(0),
        each => (offset % each == 0).then_some(offset / each),
    });
    record.span.duration() == each && index.is_some_and(|index| index < u64::from(batch.items))
}

#[cfg(test)]
mod tests;
