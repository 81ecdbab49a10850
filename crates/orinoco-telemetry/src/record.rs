use std::time::Duration;

use orinoco_core::{ComputeUnit, LaneId, ModelId, Nanos, StreamId, TimeSpan};

use crate::SourceState;

/// A part of a frame's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// From the driver's time stamp to the slot.
    Capture,
    /// From the compressed picture entering the decoder to the raw one leaving it.
    Decode,
    /// From the slot to the lane.
    Queue,
    /// Colour, resize, normalise.
    Preprocess,
    /// The engine.
    Infer,
    /// Head and suppression.
    Postprocess,
    /// Waiting for and writing all sinks.
    Sink,
    /// From the slot to the end of the sinks.
    Total,
}

impl Stage {
    /// All stages, in the order of the frame's way.
    pub const ALL: [Stage; 8] = [
        Self::Capture,
        Self::Decode,
        Self::Queue,
        Self::Preprocess,
        Self::Infer,
        Self::Postprocess,
        Self::Sink,
        Self::Total,
    ];

    /// The name in summaries.
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
        }
    }
}

/// A cause of dropped frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DropCause {
    /// The source reports that it lost them: a camera that nobody read in time.
    LostAtSource,
    /// Policy `drop-oldest`: a newer frame took its place in the ring.
    DropOldest,
    /// Policy `drop-newest`: the ring was full when it came.
    DropNewest,
    /// The sinks were behind.
    SinkBehind,
    /// Every sink of the stream had failed.
    SinkFailed,
    /// The engine failed on its batch.
    ExecutionFailed,
    /// The run was ending.
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

    /// The name in summaries.
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

/// Something that happened on the data plane, as numbers: plain data, so that emitting it allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// A source delivered a frame.
    Arrival(ArrivalRecord),
    /// A frame passed a stage.
    Frame(FrameRecord),
    /// A queue took, refused or handed out a frame.
    Queue(QueueRecord),
    /// A decoder used processor time.
    DecoderCpu(DecoderCpuRecord),
    /// Frames were dropped.
    Drop(DropRecord),
    /// A frame has gone through everything.
    Result(ResultRecord),
    /// A source entered another state.
    State(StateRecord),
    /// A lane took a batch, or is done with it.
    Lane(LaneRecord),
    /// A model executed one stage of a batch.
    Batch(BatchRecord),
    /// Something to be counted happened to a model.
    Count(CountRecord),
}

impl Record {
    /// The time by which records are ordered: for a span its end.
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
            Self::Count(record) => record.at,
        }
    }
}

/// A frame that a source delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivalRecord {
    /// The stream.
    pub stream: StreamId,
    /// The frame's number in it.
    pub seq: u64,
    /// Time at which it reached its slot.
    pub at: Nanos,
}

/// A frame's time in one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRecord {
    /// The stream.
    pub stream: StreamId,
    /// The frame's number in it.
    pub seq: u64,
    /// The stage.
    pub stage: Stage,
    /// Its start and end. In the stages of a model it is the frame's share of the batch.
    pub span: TimeSpan,
}

/// A queue on a frame's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Queue {
    /// The stream's ring, from its source to its lane.
    Ring,
    /// The results that wait for the stream's sinks.
    Sinks,
}

/// An event in a [`Queue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QueueStep {
    /// There was no room: the thread that offers the frame waits for some. Once for each frame.
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

/// A frame in a queue. With these a run's queues can be repeated step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRecord {
    /// The stream.
    pub stream: StreamId,
    /// The frame's number in it.
    pub seq: u64,
    /// The queue.
    pub queue: Queue,
    /// The event.
    pub step: QueueStep,
    /// Its time, as the queue was given it.
    pub at: Nanos,
}

/// Processor time of a stream's decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderCpuRecord {
    /// The stream.
    pub stream: StreamId,
    /// Number of the frame with which it became known.
    pub seq: u64,
    /// Processor time since the record before.
    pub took: Duration,
    /// Time at which the frame reached its slot.
    pub at: Nanos,
}

/// Frames that were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropRecord {
    /// The stream.
    pub stream: StreamId,
    /// Number of the first of them in the stream.
    pub seq: u64,
    /// The cause.
    pub cause: DropCause,
    /// Number of frames.
    pub frames: u64,
    /// The time.
    pub at: Nanos,
}

/// A frame that has gone through every model and sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultRecord {
    /// The stream.
    pub stream: StreamId,
    /// The frame's number in it.
    pub seq: u64,
    /// Number of objects that all models found, as the sinks were told them.
    pub detections: u64,
    /// Whether it took longer than the stream allows.
    pub is_late: bool,
    /// Time at which its last sink was done.
    pub at: Nanos,
}

/// A source's change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateRecord {
    /// The stream.
    pub stream: StreamId,
    /// The new state.
    pub state: SourceState,
    /// The time.
    pub at: Nanos,
}

/// A step in a lane's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LaneStep {
    /// It took a batch.
    Took,
    /// It is done with the batch: all of its models ran, or one failed.
    Finished,
    /// It put its batch aside, until an answer from elsewhere comes.
    Suspended,
    /// It goes on with a batch that was suspended.
    Resumed,
}

/// A lane's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneRecord {
    /// The lane.
    pub lane: LaneId,
    /// The step.
    pub step: LaneStep,
    /// Number of frames in the batch.
    pub frames: u32,
    /// The time.
    pub at: Nanos,
}

/// One stage of a model's execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRecord {
    /// The lane.
    pub lane: LaneId,
    /// The model.
    pub model: ModelId,
    /// The stage: preprocess, infer or postprocess.
    pub stage: Stage,
    /// The unit that worked. Every stage has a record of the lane's thread ([`ComputeUnit::Cpu`]), and one of each other unit
    /// that says for how long it worked meanwhile.
    pub unit: ComputeUnit,
    /// Its start and end.
    pub span: TimeSpan,
    /// Number of frames, or of objects in them.
    pub items: u32,
    /// Whether the model computed elsewhere, and the lane's thread worked on other batches meanwhile.
    pub was_suspended: bool,
}

/// Something to be counted that happens to models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ModelCounter {
    /// Captured sequences of launches that a GPU's driver refused, and that were launched call by call.
    GraphFallbacks,
    /// Values in the outputs that were no finite number.
    NotFinite,
}

/// A count of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountRecord {
    /// The model.
    pub model: ModelId,
    /// The counter.
    pub counter: ModelCounter,
    /// Number by which it rises.
    pub count: u64,
    /// The time.
    pub at: Nanos,
}
