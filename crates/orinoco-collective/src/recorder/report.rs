//! Records and statistics of a flight recorder.

use std::fmt;
use std::time::Duration;

use crate::call::Call;

/// The last operations of a group, at most 64, as one rank has seen them. Its [`Display`](fmt::Display) is a table for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlightRecord {
    /// This rank.
    pub rank: usize,
    /// The operations, oldest first.
    pub operations: Vec<OperationRecord>,
    /// Waits of all operations, also of those before.
    pub statistics: Statistics,
    /// Message of the first failure. Later operations are not recorded.
    pub failure: Option<String>,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationRecord {
    /// Number of the call on this rank, from 1 on.
    pub number: u64,
    /// The call.
    pub call: Call,
    /// Time at which it began, since the group was joined: the last heartbeat before, so up to a tenth of the setting `silence`
    /// earlier.
    pub began: Duration,
    /// Whether it has ended, and when.
    pub state: OperationState,
    /// Time for which it waited for other ranks (see [`RankWaits`]).
    pub waited: Duration,
    /// The rank for which it waited longest, and for how long.
    pub longest: Option<(usize, Duration)>,
}

/// State of an operation. Its end is as coarse as its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationState {
    /// It has not ended: it panicked.
    UnderWay,
    /// It returned its result.
    Done {
        /// Time since the group was joined.
        ended: Duration,
    },
    /// It returned an error.
    Failed {
        /// Time since the group was joined.
        ended: Duration,
    },
}

/// Operations of a group, and waits of one rank for each other one: the rank with the most is the straggler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statistics {
    /// Operations that this rank has called, up to the first failure.
    pub operations: u64,
    /// Waits for each rank, in order. This rank's own are empty.
    pub waits: Vec<RankWaits>,
}

/// Waits for one rank.
///
/// Over shared memory only waits of more than about 20 us count, and from then on; where ranks share cores, the first 32 turns of the
/// scheduler are timed by heartbeats. When several ranks are awaited at once, the time counts for the first of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RankWaits {
    /// Number of waits.
    pub count: u64,
    /// Time of all together.
    pub waited: Duration,
    /// The longest.
    pub longest: Duration,
}

impl fmt::Display for FlightRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(last) = self.operations.last() else {
            return writeln!(f, "Rank {} has called no operation.", self.rank);
        };
        let (shown, all) = (self.operations.len(), self.statistics.operations);
        let rank = self.rank;
        writeln!(
            f,
            "Last operations of rank {rank} ({shown} of {all}). Times are coarse, since the group was joined."
        )?;
        writeln!(f, "NUMBER     BEGAN      ENDED    WAITED  {:<18}  OPERATION", "LONGEST FOR")?;
        for operation in &self.operations {
            let OperationRecord { number, call, began, state, waited, longest } = operation;
            let ended = match state {
                OperationState::UnderWay => "under way".to_owned(),
                OperationState::Done { ended } => seconds(*ended),
                OperationState::Failed { .. } => "failed".to_owned(),
            };
            let waited = if waited.is_zero() { "-".to_owned() } else { millis(*waited) };
            let longest =
                longest.map_or("-".to_owned(), |(rank, waited)| format!("rank {rank} ({})", millis(waited)));
            let began = seconds(*began);
            writeln!(f, "{number:>6}  {began:>8}  {ended:>9}  {waited:>8}  {longest:<18}  {call}")?;
        }
        if let (Some(failure), OperationState::Failed { ended }) = (&self.failure, last.state) {
            writeln!(f, "Operation {} failed at {}: {failure}.", last.number, seconds(ended))?;
            match last.longest {
                Some((rank, longest)) => {
                    let (waited, longest) = (millis(last.waited), millis(longest));
                    writeln!(f, "During it, this rank waited {waited}, of which {longest} for rank {rank}.")?;
                }
                None => writeln!(f, "During it, this rank waited for nobody.")?,
            }
        }
        writeln!(f, "\nWaits of rank {rank} for each rank:")?;
        self.statistics.fmt(f)
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>6}  {:>8}  {:>12}  {:>10}", "RANK", "WAITS", "TOTAL", "LONGEST")?;
        for (rank, waits) in self.waits.iter().enumerate() {
            let [count, total, longest] = match waits.count {
                0 => ["-".to_owned(), "-".to_owned(), "-".to_owned()],
                count => [count.to_string(), millis(waits.waited), millis(waits.longest)],
            };
            writeln!(f, "{rank:>6}  {count:>8}  {total:>12}  {longest:>10}")?;
        }
        Ok(())
    }
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}
