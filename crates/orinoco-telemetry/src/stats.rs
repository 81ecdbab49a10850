use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use orinoco_core::{ModelId, Nanos, StreamId};
use parking_lot::{ArcMutexGuard, Mutex, RawMutex, RwLock};

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

/// Statistics that are being updated.
pub type StatsGuard<T> = ArcMutexGuard<RawMutex, T>;

/// The statistics of every stream and model, shared by the threads that fill them.
#[derive(Clone, Debug, Default)]
pub struct Stats(Arc<Lists>);

#[derive(Debug, Default)]
struct Lists {
    streams: Registry<StreamStats>,
    models: Registry<ModelStats>,
}

/// Statistics by id. An id is never given again, also when its statistics have been taken out.
#[derive(Debug)]
struct Registry<T> {
    entries: RwLock<BTreeMap<u32, Arc<Mutex<T>>>>,
    next: AtomicU32,
    /// Counts for ids that are not here any more: a thread that ends late must find something to count in.
    late: OnceLock<Arc<Mutex<T>>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { entries: RwLock::default(), next: AtomicU32::new(0), late: OnceLock::new() }
    }
}

impl<T: Default> Registry<T> {
    fn next_id(&self) -> u32 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        assert!(id < u32::MAX, "a run starts fewer than 2^32 streams and models");
        id
    }

    fn insert(&self, id: u32, stats: T) {
        self.entries.write().insert(id, Arc::new(Mutex::new(stats)));
    }

    fn lock(&self, id: u32) -> StatsGuard<T> {
        let entry = self.entries.read().get(&id).map(Arc::clone);
        entry.unwrap_or_else(|| Arc::clone(self.late.get_or_init(Arc::default))).lock_arc()
    }

    fn remove(&self, id: u32) -> Option<T> {
        let entry = self.entries.write().remove(&id)?;
        let mut stats = entry.lock();
        Some(std::mem::take(&mut *stats))
    }
}

impl Stats {
    /// Empty statistics for `streams` streams, whose names are their numbers.
    pub fn new(streams: usize) -> Self {
        let stats = Self::default();
        for index in 0..streams {
            stats.add_stream(&index.to_string());
        }
        stats
    }

    /// Empty statistics for one stream more, and its id.
    pub fn add_stream(&self, name: &str) -> StreamId {
        let id = self.0.streams.next_id();
        self.0.streams.insert(id, StreamStats::new(name));
        StreamId(id)
    }

    /// Empty statistics for one model more, and its id.
    pub fn add_model(&self) -> ModelId {
        let id = self.next_model();
        self.insert_model(id);
        id
    }

    /// The id of one model more, of which there are no statistics until [`Stats::insert_model`].
    pub fn next_model(&self) -> ModelId {
        ModelId(self.0.models.next_id())
    }

    /// Begins empty statistics for a model.
    pub fn insert_model(&self, model: ModelId) {
        self.0.models.insert(model.0, ModelStats::default());
    }

    /// One stream's statistics. Held only for the few instructions of an update. What is counted for a stream that was
    /// removed is lost.
    pub fn stream(&self, stream: StreamId) -> StatsGuard<StreamStats> {
        self.0.streams.lock(stream.0)
    }

    /// One model's statistics, likewise.
    pub fn model(&self, model: ModelId) -> StatsGuard<ModelStats> {
        self.0.models.lock(model.0)
    }

    /// Removes a stream whose threads have ended, and returns its statistics; `None` where there are none.
    pub fn remove_stream(&self, stream: StreamId) -> Option<StreamStats> {
        self.0.streams.remove(stream.0)
    }

    /// Removes a model that nothing uses any more, and returns its statistics; `None` where there are none.
    pub fn remove_model(&self, model: ModelId) -> Option<ModelStats> {
        self.0.models.remove(model.0)
    }

    /// How many streams there are.
    pub fn streams(&self) -> usize {
        self.0.streams.entries.read().len()
    }

    /// How many models there are.
    pub fn models(&self) -> usize {
        self.0.models.entries.read().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_removed_is_counted_nowhere_and_its_id_is_not_given_again() {
        let stats = Stats::default();
        let (a, b) = (stats.add_stream("a"), stats.add_stream("b"));
        stats.stream(a).frames_in = 3;
        let removed = stats.remove_stream(a).expect("it is there");
        assert_eq!((&*removed.name, removed.frames_in, stats.streams()), ("a", 3, 1));
        stats.stream(a).frames_in += 1;
        assert_eq!(stats.stream(b).frames_in, 0);
        assert!(stats.remove_stream(a).is_none());
        assert_eq!(stats.add_stream("c"), StreamId(2));
        let model = stats.next_model();
        assert_eq!(stats.models(), 0);
        stats.insert_model(model);
        stats.model(model).pictures = 5;
        assert_eq!(stats.remove_model(model).expect("it is there").pictures, 5);
    }
}
