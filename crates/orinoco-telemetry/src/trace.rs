use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use parking_lot::Mutex;

use crate::Record;

/// Maximum number of records in the trace of a run. Eight cameras with 30 frames per second emit about 3,000 records per
/// second, so the trace holds the last 5 s in 0.9 MiB: enough to see the cause of a fault, and little on a board with 2
/// GiB.
pub const TRACE_RECORDS_MAX: usize = 16 * 1024;

/// Ring of the latest records of a run. A new record overwrites the oldest one, which is counted as lost; emitting never
/// waits.
pub(crate) struct TraceRing {
    records: ArrayQueue<Record>,
    lost: AtomicU64,
    /// Records that were taken out of the ring. Only readers lock it.
    backlogs: Mutex<Backlogs>,
}

/// Records of the trace of a run.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The records. Those of [`Telemetry::trace`](crate::Telemetry::trace) are in the order of [`Record::at`], those of a
    /// [`TraceFeed`] in the order in which they were emitted.
    pub records: Vec<Record>,
    /// Number of records before these that newer ones have replaced: since the start of the run, or since the feed was last
    /// read.
    pub lost: u64,
}

/// Feed of the trace to a reader on another thread, which an exporter uses. Post-mortems have the same records.
pub struct TraceFeed(Arc<TraceRing>);

/// Records that were taken out of a ring.
#[derive(Default)]
struct Backlogs {
    /// Latest records of the run, which every post-mortem copies.
    latest: Backlog,
    /// Records for the feed; `None` while nobody reads it.
    feed: Option<Backlog>,
}

/// Latest records, and the number of those before them that it does not hold.
#[derive(Default)]
struct Backlog {
    records: VecDeque<Record>,
    lost: u64,
}

impl Backlog {
    /// Removes the oldest records until there are at most `records_max`, and counts them.
    fn trim(&mut self, records_max: usize) {
        let too_many = self.records.len().saturating_sub(records_max);
        self.records.drain(..too_many);
        self.lost += too_many as u64;
    }

    fn take(&mut self) -> Trace {
        let Self { records, lost } = std::mem::take(self);
        Trace { records: records.into(), lost }
    }
}

impl TraceRing {
    pub(crate) fn new(records_max: usize) -> Self {
        let records = ArrayQueue::new(records_max);
        Self { records, lost: AtomicU64::new(0), backlogs: Mutex::default() }
    }

    pub(crate) fn push(&self, record: Record) {
        if self.records.force_push(record).is_some() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Copies the latest records, for a post-mortem. The next one has them, too, as far as no newer ones have come.
    pub(crate) fn latest(&self) -> Trace {
        let mut backlogs = self.backlogs.lock();
        self.drain(&mut backlogs);
        let Backlog { records, lost } = &backlogs.latest;
        let mut trace = Trace { records: records.iter().copied().collect(), lost: *lost };
        drop(backlogs);
        // Threads emit at the same time, and a span is emitted after the records within it.
        trace.records.sort_by_key(Record::at);
        trace
    }

    /// Starts a feed of the records from now on; `None` if there is one.
    pub(crate) fn subscribe(self: &Arc<Self>) -> Option<TraceFeed> {
        let mut backlogs = self.backlogs.lock();
        if backlogs.feed.is_some() {
            return None;
        }
        self.drain(&mut backlogs);
        backlogs.feed = Some(Backlog::default());
        Some(TraceFeed(Arc::clone(self)))
    }

    /// Moves the records of the ring to the backlogs.
    fn drain(&self, backlogs: &mut Backlogs) {
        let Backlogs { latest, feed } = backlogs;
        let taken: Vec<Record> = std::iter::from_fn(|| self.records.pop()).take(self.records.len()).collect();
        let lost = self.lost.swap(0, Ordering::Relaxed);
        latest.lost += lost;
        latest.records.extend(&taken);
        latest.trim(self.records.capacity());
        if let Some(feed) = feed {
            if lost > 0 {
                // What was lost lies before the records taken now. The feed has no gap within one reading.
                feed.trim(0);
                feed.lost += lost;
            }
            feed.records.extend(&taken);
            feed.trim(self.records.capacity());
        }
    }
}

impl TraceFeed {
    /// Takes out the records that have come since the last reading. Those that were lost lie before all that it returns.
    pub fn read(&mut self) -> Trace {
        let mut backlogs = self.0.backlogs.lock();
        self.0.drain(&mut backlogs);
        backlogs.feed.as_mut().map(Backlog::take).unwrap_or_default()
    }
}

impl Drop for TraceFeed {
    fn drop(&mut self) {
        self.0.backlogs.lock().feed = None;
    }
}

impl fmt::Debug for TraceFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceFeed({:?})", self.0)
    }
}

impl Default for TraceRing {
    fn default() -> Self {
        Self::new(TRACE_RECORDS_MAX)
    }
}

impl fmt::Debug for TraceRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceRing({} of {} records)", self.records.len(), self.records.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ArrivalRecord;
    use orinoco_core::{Nanos, StreamId};

    fn record(seq: u64) -> Record {
        Record::Arrival(ArrivalRecord { stream: StreamId(0), seq, at: Nanos(seq) })
    }

    #[test]
    fn the_oldest_records_are_lost_and_counted() {
        let ring = TraceRing::new(3);
        [1, 0, 4, 3, 2].into_iter().for_each(|seq| ring.push(record(seq)));
        let Trace { records, lost } = ring.latest();
        assert_eq!((records, lost), (vec![record(2), record(3), record(4)], 2));
    }

    #[test]
    fn each_post_mortem_has_the_latest_records_however_often_one_is_made() {
        let ring = TraceRing::new(4);
        (0..5).for_each(|seq| ring.push(record(seq)));
        for _ in 0..3 {
            assert_eq!(numbers(ring.latest()), (vec![1, 2, 3, 4], 1));
        }
        (5..7).for_each(|seq| ring.push(record(seq)));
        assert_eq!(numbers(ring.latest()), (vec![3, 4, 5, 6], 3));
        (7..20).for_each(|seq| ring.push(record(seq)));
        assert_eq!(numbers(ring.latest()), (vec![16, 17, 18, 19], 16));
    }

    fn numbers(trace: Trace) -> (Vec<u64>, u64) {
        (trace.records.iter().map(|record| record.at().0).collect(), trace.lost)
    }

    #[test]
    fn the_feed_and_the_post_mortem_have_the_same_records() {
        let ring = Arc::new(TraceRing::new(4));
        let push = |numbers: std::ops::Range<u64>| numbers.for_each(|seq| ring.push(record(seq)));
        push(0..2);
        let mut feed = ring.subscribe().expect("nobody reads it");
        assert!(ring.subscribe().is_none());
        push(2..4);
        assert_eq!(numbers(feed.read()), (vec![2, 3], 0), "those from the subscription on");
        push(4..6);
        assert_eq!(numbers(ring.latest()), (vec![2, 3, 4, 5], 2), "the latest four");
        push(6..7);
        assert_eq!(numbers(feed.read()), (vec![4, 5, 6], 0), "also those that the post-mortem has");
        assert_eq!(numbers(ring.latest()), (vec![3, 4, 5, 6], 3));
        drop(feed);
        push(7..9);
        let mut feed = ring.subscribe().expect("its reader has gone");
        assert_eq!(numbers(feed.read()), (vec![], 0));
        assert_eq!(numbers(ring.latest()), (vec![5, 6, 7, 8], 5));
    }

    #[test]
    fn what_the_feed_lost_lies_before_what_it_reads() {
        let ring = Arc::new(TraceRing::new(4));
        let mut feed = ring.subscribe().expect("nobody reads it");
        (0..2).for_each(|seq| ring.push(record(seq)));
        ring.latest();
        // Of eight, the ring overwrites four; the two that the feed has are older than these.
        (2..10).for_each(|seq| ring.push(record(seq)));
        assert_eq!(numbers(feed.read()), (vec![6, 7, 8, 9], 6));
        // A reader that is away for long has no more than the ring.
        for _ in 0..5 {
            (0..3).for_each(|seq| ring.push(record(seq)));
            ring.latest();
        }
        let Trace { records, lost } = feed.read();
        assert_eq!((records.len(), lost), (4, 11));
    }

    #[test]
    fn a_record_is_small() {
        assert!(size_of::<Record>() <= 48, "{} bytes", size_of::<Record>());
    }
}
