//! Feed of work to a reader on another thread: batches with the streams of their images, and finished frames. The energy
//! meter reads it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;
use orinoco_core::StreamId;

use crate::energy::StreamItems;
use crate::{BatchRecord, ResultRecord};

/// Maximum number of entries that wait for the reader. Eight cameras with 30 frames per second emit about 1,000 entries per
/// second, so a reader may be away for some seconds. The queue takes 1.4 MiB.
pub const WORK_ENTRIES_MAX: usize = 8192;

/// Maximum number of streams that are told apart in a batch. A batch of more streams than that is larger than those that
/// boards are planned for.
pub const BATCH_STREAMS_MAX: usize = 16;

/// Work that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A model executed one stage of a batch, here or elsewhere.
    Batch {
        /// The record. A client's request is a batch of one image, whose only stage is `infer`.
        record: BatchRecord,
        /// Streams of the images; those of a request have none.
        streams: BatchStreams,
    },
    /// A frame has gone through every model and sink.
    Frame(ResultRecord),
}

/// Streams of a batch's images: one entry for each stream, with the number of its images. Images of streams after the first
/// [`BATCH_STREAMS_MAX`] are not in it: they belong to no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchStreams {
    streams: [StreamItems; BATCH_STREAMS_MAX],
    len: u8,
}

const _: () = assert!(BATCH_STREAMS_MAX <= u8::MAX as usize);

impl Default for BatchStreams {
    fn default() -> Self {
        Self { streams: [StreamItems { stream: StreamId(0), items: 0 }; BATCH_STREAMS_MAX], len: 0 }
    }
}

impl BatchStreams {
    /// Counts the images of each stream, from one stream for each image.
    pub(crate) fn count(images: impl IntoIterator<Item = StreamId>) -> Self {
        let mut counts = Self::default();
        images.into_iter().for_each(|stream| counts.add(stream));
        counts
    }

    fn add(&mut self, stream: StreamId) {
        let len = usize::from(self.len);
        if let Some(entry) = self.streams[..len].iter_mut().find(|entry| entry.stream == stream) {
            entry.items += 1;
        } else if let Some(entry) = self.streams.get_mut(len) {
            *entry = StreamItems { stream, items: 1 };
            self.len += 1;
        }
    }

    /// Returns the entries, in the order in which the streams come in the batch.
    pub fn as_slice(&self) -> &[StreamItems] {
        &self.streams[..usize::from(self.len)]
    }
}

/// Queue from those that emit to the reader of the feed. It exists once there was a reader.
#[derive(Default)]
pub(crate) struct WorkQueue {
    is_read: AtomicBool,
    entries: OnceLock<ArrayQueue<Work>>,
    lost: AtomicU64,
}

impl WorkQueue {
    /// Whether somebody reads the feed. Without a reader this is all that emitting costs.
    pub(crate) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }

    /// Adds an entry if there is space, and counts it as lost otherwise. It never waits.
    pub(crate) fn push(&self, work: Work) {
        // A reader that has just come may still make the queue.
        let Some(entries) = self.entries.get() else { return };
        if entries.push(work).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Starts a feed with an empty queue. Returns false if there is one.
    fn start(&self) -> bool {
        if self.is_read.swap(true, Ordering::Relaxed) {
            return false;
        }
        let entries = self.entries.get_or_init(|| ArrayQueue::new(WORK_ENTRIES_MAX));
        // Those of a reader before.
        for _ in 0..entries.len() {
            let _ = entries.pop();
        }
        self.lost.store(0, Ordering::Relaxed);
        true
    }

    fn take(&self, mut each: impl FnMut(Work)) -> u64 {
        let entries = self.entries.get().expect("the queue is made before its reader");
        // No more than are there now, so that those who emit cannot hold the reader.
        (0..entries.len()).map_while(|_| entries.pop()).for_each(&mut each);
        self.lost.swap(0, Ordering::Relaxed)
    }
}

impl fmt::Debug for WorkQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.entries.get().map_or(0, ArrayQueue::len);
        write!(f, "WorkQueue({waiting} of {WORK_ENTRIES_MAX} entries)")
    }
}

/// Reader's end of the feed of work. There is one at most; when it is dropped, nothing is queued any more.
///
/// Entries of one thread come in the order in which it emitted them. Each batch has one entry for each stage of each unit.
#[derive(Debug)]
pub struct WorkFeed {
    queue: Arc<WorkQueue>,
}

impl WorkFeed {
    /// Starts the feed; `None` if there is one.
    pub(crate) fn start(queue: &Arc<WorkQueue>) -> Option<Self> {
        queue.start().then(|| Self { queue: Arc::clone(queue) })
    }

    /// Takes out the entries that are there now, and returns the number of entries that were lost since the last call because
    /// the queue was full. The losses may lie between the entries taken, so a reader that needs all of them starts again at the
    /// present time: an energy meter with [`EnergyMeter::restart`](crate::energy::EnergyMeter::restart).
    pub fn take(&mut self, each: impl FnMut(Work)) -> u64 {
        self.queue.take(each)
    }
}

impl Drop for WorkFeed {
    fn drop(&mut self) {
        self.queue.is_read.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ModelCounter, Stage, Telemetry};
    use orinoco_core::{ComputeUnit, LaneId, ModelId, Nanos, TimeSpan};

    /// Returns the streams of a batch with images of `streams`, and the numbers of their images.
    fn count(streams: impl IntoIterator<Item = u32>) -> Vec<(u32, u32)> {
        let counts = BatchStreams::count(streams.into_iter().map(StreamId));
        counts.as_slice().iter().map(|entry| (entry.stream.0, entry.items)).collect()
    }

    #[test]
    fn images_of_a_stream_are_counted_together() {
        assert_eq!(count([]), []);
        assert_eq!(count([7, 3, 7, 7, 0]), [(7, 3), (3, 1), (0, 1)]);
        let streams = 0..BATCH_STREAMS_MAX as u32;
        let all: Vec<_> = streams.clone().map(|stream| (stream, 1)).collect();
        assert_eq!(count(streams.clone()), all);
        // Those of a seventeenth stream belong to none; a known stream still has all of its images.
        let seen = count(streams.chain([99, 0, 99]));
        assert_eq!((seen[0], &seen[1..]), ((0, 2), &all[1..]));
    }

    fn span(start: u64, end: u64) -> TimeSpan {
        TimeSpan::new(Nanos(start), Nanos(end))
    }

    fn take(feed: &mut WorkFeed) -> (Vec<Work>, u64) {
        let mut works = Vec::new();
        let lost = feed.take(|work| works.push(work));
        (works, lost)
    }

    #[test]
    fn batches_requests_and_frames_are_fed_and_nothing_else() {
        let telemetry = Telemetry::new(2);
        let (lane, model) = (telemetry.lane(LaneId(4)), telemetry.add_model());
        let (model, stream) = (telemetry.model(model), telemetry.stream(StreamId(1)));
        let images = || [1, 0, 1].into_iter().map(StreamId);
        let emit = || {
            lane.took(3, Nanos(1));
            let stages = [(Stage::Preprocess, span(1, 2)), (Stage::Infer, span(2, 5))];
            model.batch(&lane, ComputeUnit::Cpu, images(), &stages);
            model.batch(&lane, ComputeUnit::Gpu, images(), &[(Stage::Infer, span(3, 4))]);
            model.late_batch(&lane, images(), &[(Stage::Infer, span(5, 9))]);
            model.request(&lane, span(9, 11));
            model.count(ModelCounter::NotFinite, 1, Nanos(11));
            stream.emitter().stage(0, Stage::Total, span(0, 12));
            stream.emitter().result(6, 2, None, Nanos(12));
        };
        emit();
        let mut feed = telemetry.subscribe_work().expect("it is the first");
        assert_eq!(take(&mut feed), (Vec::new(), 0), "nothing from before");
        emit();
        let batch = |stage, unit, span, was_suspended| {
            let (lane, model) = (LaneId(4), ModelId(0));
            let record = BatchRecord { lane, model, stage, unit, span, items: 3, was_suspended };
            Work::Batch { record, streams: BatchStreams::count(images()) }
        };
        let request = BatchRecord {
            lane: LaneId(4),
            model: ModelId(0),
            stage: Stage::Infer,
            unit: ComputeUnit::Cpu,
            span: span(9, 11),
            items: 1,
            was_suspended: false,
        };
        let (cpu, gpu) = (ComputeUnit::Cpu, ComputeUnit::Gpu);
        let frame = ResultRecord { stream: StreamId(1), seq: 6, detections: 2, late_in: None, at: Nanos(12) };
        let expected = vec![
            batch(Stage::Preprocess, cpu, span(1, 2), false),
            batch(Stage::Infer, cpu, span(2, 5), false),
            batch(Stage::Infer, gpu, span(3, 4), false),
            batch(Stage::Infer, cpu, span(5, 9), true),
            Work::Batch { record: request, streams: BatchStreams::default() },
            Work::Frame(frame),
        ];
        assert_eq!(take(&mut feed), (expected, 0));
        assert_eq!(take(&mut feed), (Vec::new(), 0));
    }

    #[test]
    fn what_a_full_queue_refuses_is_counted() {
        let telemetry = Telemetry::new(1);
        let stream = telemetry.stream(StreamId(0));
        let mut feed = telemetry.subscribe_work().expect("it is the first");
        let mut seq = 0;
        let mut emit = |frames: usize| {
            (0..frames).for_each(|_| {
                stream.emitter().result(seq, 0, None, Nanos(seq));
                seq += 1;
            });
        };
        let seqs = |feed: &mut WorkFeed| {
            let (works, lost) = take(feed);
            let seq = |work: &Work| match work {
                Work::Frame(record) => record.seq,
                Work::Batch { .. } => panic!("no batch was emitted"),
            };
            (works.first().map(seq), works.last().map(seq), works.len(), lost)
        };
        let max = WORK_ENTRIES_MAX as u64;
        emit(WORK_ENTRIES_MAX);
        assert_eq!(seqs(&mut feed), (Some(0), Some(max - 1), WORK_ENTRIES_MAX, 0));
        emit(WORK_ENTRIES_MAX + 5);
        assert_eq!(seqs(&mut feed), (Some(max), Some(2 * max - 1), WORK_ENTRIES_MAX, 5));
        emit(1);
        assert_eq!(seqs(&mut feed), (Some(2 * max + 5), Some(2 * max + 5), 1, 0), "losses are reported once");
    }

    #[test]
    fn there_is_one_reader_at_a_time_and_it_gets_nothing_of_the_one_before() {
        let telemetry = Telemetry::new(1);
        let stream = telemetry.stream(StreamId(0));
        let emit = |frames: usize| {
            (0..frames).for_each(|_| stream.emitter().result(0, 0, None, Nanos(0)));
        };
        let first = telemetry.subscribe_work().expect("it is the first");
        assert!(telemetry.clone().subscribe_work().is_none());
        emit(WORK_ENTRIES_MAX + 1);
        drop(first);
        emit(1);
        let mut second = telemetry.subscribe_work().expect("the first has gone");
        assert_eq!(take(&mut second), (Vec::new(), 0));
        emit(2);
        assert_eq!(take(&mut second).0.len(), 2);
    }
}
