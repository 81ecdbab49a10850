use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;

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
}

/// Records taken out of the trace of a run.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Records in the order of [`Record::at`].
    pub records: Vec<Record>,
    /// Number of records that were overwritten since the trace was last taken.
    pub lost: u64,
}

impl TraceRing {
    pub(crate) fn new(records_max: usize) -> Self {
        Self { records: ArrayQueue::new(records_max), lost: AtomicU64::new(0) }
    }

    pub(crate) fn push(&self, record: Record) {
        if self.records.force_push(record).is_some() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes out the records that are there now. Records that arrive meanwhile stay.
    pub(crate) fn take(&self) -> Trace {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let count = self.records.len();
        let mut records: Vec<Record> = std::iter::from_fn(|| self.records.pop()).take(count).collect();
        // Threads emit at the same time, and a span is emitted after the records within it.
        records.sort_by_key(Record::at);
        Trace { records, lost }
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
        let Trace { records, lost } = ring.take();
        assert_eq!((records, lost), (vec![record(2), record(3), record(4)], 2));
        let Trace { records, lost } = ring.take();
        assert_eq!((records.len(), lost), (0, 0));
    }

    #[test]
    fn a_record_is_small() {
        assert!(size_of::<Record>() <= 48, "{} bytes", size_of::<Record>());
    }
}
