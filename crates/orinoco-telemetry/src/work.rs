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
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for each batch")]
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
