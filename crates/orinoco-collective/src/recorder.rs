//! Flight recorder of a group: its last operations, and how long this rank waited for each other rank.
//!
//! In shared memory, the times of operations are those of this rank's last sign of life, so that an operation that waits for nobody
//! does not read the clock: it costs a few stores.

mod report;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use report::{FlightRecord, OperationRecord, OperationState, RankWaits, Statistics};

use crate::CollectiveError;
use crate::call::Call;

/// Operations that are kept.
const OPERATIONS_MAX: usize = 64;

/// Recorder of one rank.
pub(crate) struct Recorder {
    rank: usize,
    /// Operations that were begun.
    operations: u64,
    /// The last ones: operation `n`, from 1 on, at `n % OPERATIONS_MAX`.
    ring: Box<[Entry; OPERATIONS_MAX]>,
    failure: Option<String>,
    has_waited: AtomicBool,
    /// Waits are noted from inside operations, which share the recorder.
    waits: Mutex<Waits>,
}

#[derive(Clone, Copy)]
struct Entry {
    call: Call,
    began_ms: u64,
    ended_ms: u64,
    state: State,
    waited: Duration,
    /// Rank waited for longest, if any was waited for.
    longest: Option<(usize, Duration)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    UnderWay,
    Done,
    Failed,
}

/// Waits by rank.
struct Waits {
    all: Vec<RankWaits>,
    /// Those of the operation under way.
    of_operation: Vec<Duration>,
}

impl Recorder {
    pub(crate) fn new(rank: usize, ranks: usize) -> Self {
        let entry = Entry {
            call: Call::from_code(0),
            began_ms: 0,
            ended_ms: 0,
            state: State::Done,
            waited: Duration::ZERO,
            longest: None,
        };
        let waits =
            Waits { all: vec![RankWaits::default(); ranks], of_operation: vec![Duration::ZERO; ranks] };
        Self {
            rank,
            operations: 0,
            ring: Box::new([entry; OPERATIONS_MAX]),
            failure: None,
            has_waited: AtomicBool::new(false),
            waits: Mutex::new(waits),
        }
    }

    /// An operation begins. After a failure none is recorded: those before it stay.
    #[inline]
    pub(crate) fn begin(&mut self, call: Call, now_ms: u64) {
        if self.failure.is_some() {
            return;
        }
        if *self.has_waited.get_mut() {
            // Waits of a measurement belong to no operation.
            self.take_waits();
        }
        self.operations += 1;
        let entry = &mut self.ring[self.operations as usize % OPERATIONS_MAX];
        (entry.call, entry.began_ms, entry.state) = (call, now_ms, State::UnderWay);
        (entry.waited, entry.longest) = (Duration::ZERO, None);
    }

    /// The operation that was begun last has ended.
    #[inline]
    pub(crate) fn end(&mut self, result: &Result<(), CollectiveError>, now_ms: u64) {
        match result {
            Ok(()) => {
                let entry = &mut self.ring[self.operations as usize % OPERATIONS_MAX];
                (entry.ended_ms, entry.state) = (now_ms, State::Done);
                if *self.has_waited.get_mut() {
                    self.note_waits();
                }
            }
            Err(error) => self.fail(error, now_ms),
        }
    }

    /// This rank has waited for another one.
    #[cold]
    pub(crate) fn waited(&self, rank: usize, time: Duration) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.note(rank, time);
        self.has_waited.store(true, Ordering::Relaxed);
    }

    #[cold]
    fn fail(&mut self, error: &CollectiveError, now_ms: u64) {
        if self.failure.is_some() {
            return;
        }
        self.failure = Some(error.to_string());
        let entry = &mut self.ring[self.operations as usize % OPERATIONS_MAX];
        (entry.ended_ms, entry.state) = (now_ms, State::Failed);
        self.note_waits();
    }

    #[cold]
    fn note_waits(&mut self) {
        let (waited, longest) = self.take_waits();
        let entry = &mut self.ring[self.operations as usize % OPERATIONS_MAX];
        (entry.waited, entry.longest) = (waited, longest);
    }

    /// Time waited since the waits were last taken, and the rank waited for longest.
    #[cold]
    fn take_waits(&mut self) -> (Duration, Option<(usize, Duration)>) {
        *self.has_waited.get_mut() = false;
        let waits = self.waits.get_mut().unwrap_or_else(PoisonError::into_inner);
        let waited = waits.of_operation.iter().sum();
        let of_ranks = waits.of_operation.iter().copied().enumerate();
        let longest = of_ranks.filter(|(_, time)| !time.is_zero()).max_by_key(|(_, time)| *time);
        waits.of_operation.fill(Duration::ZERO);
        (waited, longest)
    }

    /// The last operations, oldest first.
    pub(crate) fn record(&self) -> FlightRecord {
        let first = self.operations.saturating_sub(OPERATIONS_MAX as u64) + 1;
        let operations = (first..=self.operations).map(|number| {
            let entry = self.ring[number as usize % OPERATIONS_MAX];
            let ended = Duration::from_millis(entry.ended_ms);
            OperationRecord {
                number,
                call: entry.call,
                began: Duration::from_millis(entry.began_ms),
                state: match entry.state {
                    State::UnderWay => OperationState::UnderWay,
                    State::Done => OperationState::Done { ended },
                    State::Failed => OperationState::Failed { ended },
                },
                waited: entry.waited,
                longest: entry.longest,
            }
        });
        FlightRecord {
            rank: self.rank,
            operations: operations.collect(),
            statistics: self.statistics(),
            failure: self.failure.clone(),
        }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        Statistics { operations: self.operations, waits: waits.all.clone() }
    }
}

impl Waits {
    fn note(&mut self, rank: usize, time: Duration) {
        let waits = &mut self.all[rank];
        waits.count += 1;
        waits.waited += time;
        waits.longest = waits.longest.max(time);
        self.of_operation[rank] += time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FailureCause;
    use crate::call::Operation;

    const MS: Duration = Duration::from_millis(1);

    fn call(root: usize) -> Call {
        Call::new(Operation::Broadcast, Some(crate::DataType::F32), None, root, 1000)
    }

    #[test]
    fn the_last_operations_are_kept_in_order() {
        let mut recorder = Recorder::new(1, 3);
        assert!(recorder.record().operations.is_empty());
        for number in 1..=200 {
            recorder.begin(call(number as usize), number * 10);
            if number == 150 {
                recorder.waited(0, 3 * MS);
                recorder.waited(2, 2 * MS);
                recorder.waited(2, 2 * MS);
            }
            recorder.end(&Ok(()), number * 10 + 5);
        }
        recorder.begin(call(201), 3000);
        let record = recorder.record();
        assert_eq!(record.operations.len(), OPERATIONS_MAX);
        assert_eq!((record.operations[0].number, record.operations[63].number), (138, 201));
        assert_eq!(record.operations[63].state, OperationState::UnderWay);
        let waited = record.operations[150 - 138];
        let expected = OperationRecord {
            number: 150,
            call: call(150),
            began: 1500 * MS,
            state: OperationState::Done { ended: 1505 * MS },
            waited: 7 * MS,
            longest: Some((2, 4 * MS)),
        };
        assert_eq!(waited, expected);
        assert_eq!(record.operations[151 - 138].waited, Duration::ZERO);
        assert_eq!(record.statistics.operations, 201);
        assert_eq!(record.statistics.waits[2], RankWaits { count: 2, waited: 4 * MS, longest: 2 * MS });
    }

    #[test]
    fn the_table_says_who_was_waited_for_and_how_long() {
        let mut recorder = Recorder::new(1, 3);
        recorder.waited(2, 900 * MS);
        recorder.begin(call(0), 12_350);
        recorder.waited(0, Duration::from_micros(210));
        recorder.end(&Ok(()), 12_350);
        recorder.begin(Call::new(Operation::Barrier, None, None, 0, 0), 12_400);
        recorder.end(&Ok(()), 12_400);
        recorder.begin(call(2), 12_400);
        recorder.waited(0, 40 * MS);
        recorder.waited(2, 502 * MS);
        let cause = FailureCause::Silent(500 * MS);
        let error = |call| Err(CollectiveError::EpochFailed { epoch: 0, rank: 2, cause, call });
        recorder.end(&error(call(2)), 12_950);
        // Later operations fail because of it, and are not recorded.
        recorder.begin(call(7), 13_000);
        recorder.end(&error(call(7)), 13_000);
        let expected = "\
Last operations of rank 1 (3 of 3). Times are coarse, since the group was joined.
NUMBER     BEGAN      ENDED    WAITED  LONGEST FOR         OPERATION
     1  12.350 s   12.350 s    0.2 ms  rank 0 (0.2 ms)     broadcast of 1000 f32, root 0
     2  12.400 s   12.400 s         -  -                   barrier
     3  12.400 s     failed  542.0 ms  rank 2 (502.0 ms)   broadcast of 1000 f32, root 2
Operation 3 failed at 12.950 s: epoch 0 failed during broadcast of 1000 f32, root 2: rank 2 gave no sign of life for 500 ms; check that its process is not suspended, and that its machine can be reached.
During it, this rank waited 542.0 ms, of which 502.0 ms for rank 2.

Waits of rank 1 for each rank:
  RANK     WAITS         TOTAL     LONGEST
     0         2       40.2 ms     40.0 ms
     1         -             -           -
     2         2     1402.0 ms    900.0 ms
";
        assert_eq!(recorder.record().to_string(), expected);
        let empty = Recorder::new(0, 2).record().to_string();
        assert_eq!(empty, "Rank 0 has called no operation.\n");
    }
}
