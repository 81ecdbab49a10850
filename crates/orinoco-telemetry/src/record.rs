use std::time::Duration;

use orinoco_core::{ComputeUnit, LaneId, ModelId, Nanos, StreamId, TimeSpan};

use crate::SourceState;

/// Part of a frame's way through the pipeline, whose time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// From the driver's time stamp to the slot.
    Capture,
    /// From the compressed frame entering the decoder to the decoded frame leaving it.
    Decode,
    /// From the slot to the lane.
    Queue,
    /// Colour conversion, resize and normalisation.
    Preprocess,
    /// Inference in the engine.
    Infer,
    /// Head and non-maximum suppression.
    Postprocess,
    /// Waiting for all sinks, and writing.
    Sink,
    /// From the slot to the end of the sinks.
    Total,
    /// From the driver's time stamp to the end of the sinks: the stages `capture` and `total` together. Only frames whose
    /// source knows that time stamp have it.
    CaptureToResult,
}

impl Stage {
    /// All stages, in the order in which a frame passes them, and those that span others at the end.
    pub const ALL: [Stage; 9] = [
        Self::Capture,
        Self::Decode,
        Self::Queue,
        Self::Preprocess,
        Self::Infer,
        Self::Postprocess,
        Self::Sink,
        Self::Total,
        Self::CaptureToResult,
    ];

    /// Returns the name in summaries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Capture => "capture",
            Self::Decode => "decode",
            Self::Queue => "queue",
            Self::Preprocess => "preprocess",
            Self::Infer => "infer",
            Self::Postprocess => "postprocess",
            Self::Sink => "sink",
            Self::Total => "total",
            Self::CaptureToResult => "capture-to-result",
        }
    }
}

/// Cause of dropped frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DropCause {
    /// The source reports that it lost them: a camera that was not read in time.
    LostAtSource,
    /// Policy `drop-oldest`: a newer frame replaced it in the ring.
    DropOldest,
    /// Policy `drop-newest`: the ring was full when it arrived.
    DropNewest,
    /// The sinks were too slow.
    SinkBehind,
    /// Every sink of the stream had failed.
    SinkFailed,
    /// The engine failed on its batch.
    ExecutionFailed,
    /// The run, or the frame's lane, was ending.
    Shutdown,
}

impl DropCause {
    /// All causes.
    pub const ALL: [DropCause; 7] = [
        Self::LostAtSource,
        Self::DropOldest,
        Self::DropNewest,
        Self::SinkBehind,
        Self::SinkFailed,
        Self::ExecutionFailed,
        Self::Shutdown,
    ];

    /// Returns the name in summaries.
    pub fn name(self) -> &'static str {
        match self {
            Self::LostAtSource => "lost-at-source",
            Self::DropOldest => "drop-oldest",
            Self::DropNewest => "drop-newest",
            Self::SinkBehind => "sink-behind",
            Self::SinkFailed => "sink-failed",
            Self::ExecutionFailed => "replay-failed",
            Self::Shutdown => "shutdown",
        }
    }
}

/// Occurrence on the data plane, as numbers: plain data, so that emitting it allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// A source delivered a frame.
    Arrival(ArrivalRecord),
    /// A frame passed a stage.
    Frame(FrameRecord),
    /// A queue accepted, refused or gave out a frame.
    Queue(QueueRecord),
    /// A decoder used processor time.
    DecoderCpu(DecoderCpuRecord),
    /// Frames were dropped.
    Drop(DropRecord),
    /// A frame has gone through every model and sink.
    Result(ResultRecord),
    /// A source entered another state.
    State(StateRecord),
    /// A lane took or finished a batch.
    Lane(LaneRecord),
    /// A model executed one stage of a batch.
    Batch(BatchRecord),
    /// A lane executed a client's request.
    Request(RequestRecord),
    /// A counter of a model rose.
    Count(CountRecord),
}

impl Record {
    /// Returns the time by which records are ordered; for a span, its end.
    pub fn at(&self) -> Nanos {
        match self {
            Self::Arrival(record) => record.at,
            Self::Frame(record) => record.span.end(),
            Self::Queue(record) => record.at,
            Self::DecoderCpu(record) => record.at,
            Self::Drop(record) => record.at,
            Self::Result(record) => record.at,
            Self::State(record) => record.at,
            Self::Lane(record) => record.at,
            Self::Batch(record) => record.span.end(),
            Self::Request(record) => record.span.end(),
            Self::Count(record) => record.at,
        }
    }
}

/// A frame that a source delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivalRecord {
    /// Id of the stream.
    pub stream: StreamId,
    /// Number of the frame in its stream.
    pub seq: u64,
    /// Time at which it reached its slot.
    pub at: Nanos,
}

/// A frame's time in one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRecord {
    /// Id of the stream.
    pub stream: StreamId,
    /// Number of the frame in its stream.
    pub seq: u64,
    /// The stage.
    pub stage: Stage,
    /// Start and end. In the stages of a model, it is the frame's share of the batch.
    pub span: TimeSpan,
}

/// Queue that frames pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Queue {
    /// Ring of the stream, from its source to its lane.
    Ring,
    /// Results that wait for the stream's sinks.
    Sinks,
}

/// An event in a [`Queue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QueueStep {
    /// There was no space, so that the thread that offers the frame waits. Emitted once for each frame.
    Waited,
    /// The frame was accepted.
    Accepted,
    /// The frame was accepted in place of the oldest one.
    ReplacedOldest,
    /// The frame was refused.
    Refused,
    /// The frame was taken out.
    Taken,
}

/// Event of a frame in a queue. From these records the queues of a run can be reproduced step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRecord {
    /// Id of the stream.
    pub stream: StreamId,
    /// Number of the frame in its stream.
    pub seq: u64,
    /// The queue.
    pub queue: Queue,
    /// The event.
    pub step: QueueStep,
    /// Time of the event, as it was passed to the queue.
    pub at: Nanos,
}

/// Processor time of a stream's decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderCpuRecord {
    /// Id of the stream.
    pub stream: StreamId,
    /// Number of the frame with which the time became known.
    pub seq: u64,
    /// Processor time since the record before.
    pub took: Duration,
    /// Time at which the frame reached its slot.
    pub at: Nanos,
}

/// Frames that were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropRecord {
    /// Id of the stream.
    pub stream: StreamId,
    /// Number of the first dropped frame in its stream.
    pub seq: u64,
    /// Cause of the drop.
    pub cause: DropCause,
    /// Number of dropped frames.
    pub frames: u64,
    /// Time of the drop.
    pub at: Nanos,
}

/// A frame that has gone through every model and sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultRecord {
    /// Id of the stream.
    pub stream: StreamId,
    /// Number of the frame in its stream.
    pub seq: u64,
    /// Number of objects that all models found, as the sinks got them.
    pub detections: u64,
    /// Stage that took the largest part of the frame's time, if it took longer than the stream's `latency_ms_max`; `None` if
    /// the frame was in time.
    pub late_in: Option<Stage>,
    /// Time at which the frame's last sink had written it.
    pub at: Nanos,
}

/// Change of a source's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateRecord {
    /// Id of the stream.
    pub stream: StreamId,
    /// The new state.
    pub state: SourceState,
    /// Time of the change.
    pub at: Nanos,
}

/// Step in a lane's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LaneStep {
    /// The lane took a batch.
    Took,
    /// The lane has finished the batch: all of its models were executed, or one failed.
    Finished,
    /// It put its batch aside, until an answer from elsewhere comes.
    Suspended,
    /// It goes on with a batch that was suspended.
    Resumed,
    /// It took a client's request. Its [`RequestRecord`] tells that it has finished it.
    TookRequest,
}

/// Work of a lane besides executing batches and requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneWork {
    /// A tracker has the results of a frame.
    Track,
    /// Streams join or leave, or plans are exchanged; plans that are not used any more are dropped.
    Change,
}

impl LaneWork {
    /// Returns the name, as the status has it in place of a stage.
    pub fn name(self) -> &'static str {
        match self {
            Self::Track => "track",
            Self::Change => "change",
        }
    }
}

/// Progress of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneRecord {
    /// Id of the lane.
    pub lane: LaneId,
    /// The step.
    pub step: LaneStep,
    /// Number of frames in the batch.
    pub frames: u32,
    /// Time of the step.
    pub at: Nanos,
}

/// One stage of a model's execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRecord {
    /// Id of the lane.
    pub lane: LaneId,
    /// Id of the model.
    pub model: ModelId,
    /// The stage: preprocess, infer or postprocess.
    pub stage: Stage,
    /// Unit that worked. Every stage has one record of the lane's thread ([`ComputeUnit::Cpu`]), and one of each other unit
    /// that worked meanwhile, with its own span.
    pub unit: ComputeUnit,
    /// Start and end of the unit's work.
    pub span: TimeSpan,
    /// Number of images in the batch: frames, or objects in frames.
    pub items: u32,
    /// Whether the model computed elsewhere, and the lane's thread worked on other batches meanwhile.
    pub was_suspended: bool,
}

/// A client's request that a model executed on its lane. Its answer may come later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// Id of the lane.
    pub lane: LaneId,
    /// Id of the model.
    pub model: ModelId,
    /// Time for which the request kept the lane's thread busy.
    pub span: TimeSpan,
}

/// Occurrence of a model that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ModelCounter {
    /// Captured CUDA graphs that the driver refused; their work was launched call by call instead.
    GraphFallbacks,
    /// Values in the outputs that are not finite.
    NotFinite,
    /// Images that another seat should have inferred, and did not: a model of this board did it, or nobody.
    Missed(MissCause),
}

/// Cause for which another seat of the cluster did not infer images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MissCause {
    /// The seat is not in the epoch of this board, or left it before it answered.
    Offline,
    /// Too many batches wait for the seat.
    Overloaded,
    /// Its answer did not come in time, or it was not asked because other models of the same frames had taken the time.
    Late,
    /// It refused the images, or its model failed.
    Failed,
}

impl MissCause {
    /// All causes.
    pub const ALL: [Self; 4] = [Self::Offline, Self::Overloaded, Self::Late, Self::Failed];

    /// Returns its name in summaries and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Offline => "offline",
            Self::Overloaded => "overloaded",
            Self::Late => "late",
            Self::Failed => "failed",
        }
    }
}

/// Increase of a model's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountRecord {
    /// Id of the model.
    pub model: ModelId,
    /// The counter.
    pub counter: ModelCounter,
    /// Number by which the counter rises.
    pub count: u64,
    /// Time of the increase.
    pub at: Nanos,
}
