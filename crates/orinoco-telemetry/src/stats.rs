use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orinoco_core::{ModelId, Nanos, StreamId};

use crate::{Histogram, SourceState};

/// A part of a frame's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Stage {
    /// From the driver's time stamp to the slot.
    Capture,
    /// From the compressed picture entering the decoder to the raw one leaving it.
    Decode,
    /// Waiting in the ring for a lane.
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

/// Why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum DropCause {
    /// The source says that it lost them: a camera that nobody read in time.
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
    ReplayFailed,
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
        Self::ReplayFailed,
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
            Self::ReplayFailed => "replay-failed",
            Self::Shutdown => "shutdown",
        }
    }
}

/// Counters and percentiles of one stream.
#[derive(Clone, Debug, Default)]
pub struct StreamStats {
    /// The stream's name on this board.
    pub name: Arc<str>,
    /// Frames that the source delivered, and those that it says it lost.
    pub frames_in: u64,
    /// Frames that went through every model and sink.
    pub frames_out: u64,
    /// Frames that took longer than the stream's `latency_ms_max`.
    pub late: u64,
    /// Objects found by all models.
    pub detections: u64,
    /// Times the source was to be opened again: after a loss, or after an attempt that failed.
    pub reconnects: u64,
    /// From losing the source to its next frame, for each time that it came back.
    pub recovery: Histogram,
    /// When the first frame that went through everything had reached its slot.
    pub first_in: Option<Nanos>,
    /// When its latest frame had gone through its sinks.
    pub last_out: Option<Nanos>,
    /// What makes its frames, where that was chosen: a decoder's name.
    pub maker: Option<String>,
    /// Where the source is.
    pub state: Option<SourceState>,
    dropped: [u64; DropCause::ALL.len()],
    stages: [Histogram; Stage::ALL.len()],
}

impl StreamStats {
    fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Frames out a second, from the arrival of the first of them to the latest one's end; 0 before there is one.
    pub fn fps(&self) -> f64 {
        let (Some(first), Some(last)) = (self.first_in, self.last_out) else { return 0.0 };
        self.frames_out as f64 / last.since(first).as_secs_f64().max(1e-9)
    }

    /// Counts one dropped frame.
    pub fn drop_frame(&mut self, cause: DropCause) {
        self.drop_frames(cause, 1);
    }

    /// Counts dropped frames.
    pub fn drop_frames(&mut self, cause: DropCause, frames: u64) {
        self.dropped[cause as usize] += frames;
    }

    /// Frames dropped for `cause`.
    pub fn dropped(&self, cause: DropCause) -> u64 {
        self.dropped[cause as usize]
    }

    /// Adds one duration to a stage.
    pub fn record(&mut self, stage: Stage, duration: Duration) {
        self.stages[stage as usize].record(duration);
    }

    /// A stage's durations.
    pub fn stage(&self, stage: Stage) -> &Histogram {
        &self.stages[stage as usize]
    }
}

/// Counters and percentiles of one model, over all streams and lanes.
#[derive(Clone, Debug, Default)]
pub struct ModelStats {
    /// Frames, and objects in them, that it looked at.
    pub pictures: u64,
    /// Replays, of one batch of pictures each.
    pub replays: u64,
    /// Time of one replay for colour, resize and normalisation.
    pub preprocess: Histogram,
    /// Time of one replay in the engine.
    pub infer: Histogram,
    /// Time of one replay in head and suppression.
    pub postprocess: Histogram,
    /// Captured sequences of launches that a GPU's driver refused, and that were launched call by call.
    pub graph_fallbacks: u64,
    /// Candidates, keypoints, classes, cells, embeddings or raw elements that were no finite number.
    pub not_finite: u64,
}

/// The statistics of every stream and model, shared by the threads that fill them.
#[derive(Clone, Debug, Default)]
pub struct Stats(Arc<Lists>);

#[derive(Debug, Default)]
struct Lists {
    streams: boxcar::Vec<Mutex<StreamStats>>,
    models: boxcar::Vec<Mutex<ModelStats>>,
}

impl Stats {
    /// Empty statistics for `streams` streams, whose names are their numbers.
    pub fn new(streams: usize) -> Self {
        let streams = (0..streams).map(|index| Mutex::new(StreamStats::new(&index.to_string()))).collect();
        Self(Arc::new(Lists { streams, models: boxcar::Vec::new() }))
    }

    /// Empty statistics for one stream more, and its id.
    pub fn add_stream(&self, name: &str) -> StreamId {
        StreamId::from_index(self.0.streams.push(Mutex::new(StreamStats::new(name))))
    }

    /// Empty statistics for one model more, and its id.
    pub fn add_model(&self) -> ModelId {
        ModelId::from_index(self.0.models.push(Mutex::default()))
    }

    /// One stream's statistics. Held only for the few instructions of an update.
    pub fn stream(&self, stream: StreamId) -> MutexGuard<'_, StreamStats> {
        lock(&self.0.streams[stream.index()])
    }

    /// One model's statistics. Held only for the few instructions of an update.
    pub fn model(&self, model: ModelId) -> MutexGuard<'_, ModelStats> {
        lock(&self.0.models[model.index()])
    }

    /// How many streams there are.
    pub fn streams(&self) -> usize {
        self.0.streams.count()
    }

    /// How many models there are.
    pub fn models(&self) -> usize {
        self.0.models.count()
    }
}

fn lock<T>(stats: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock means a thread panicked between two counter updates: the counters are still worth showing.
    stats.lock().unwrap_or_else(PoisonError::into_inner)
}
