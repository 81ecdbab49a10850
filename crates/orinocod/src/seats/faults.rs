//! Faults of seats, in the words of the board that asks them, and what the journal says of them.

use orinoco_collective::{ClusterGroup, CollectiveError, FailureCause};
use orinoco_core::{Diagnosis, codes};

use super::inbox::BATCHES_MAX;
use crate::journal::{self, Level};

/// Advice for a seat that does not keep up.
pub(super) const SLOW_SEAT: &str =
    "raise `interval` or `batch` of the model, or give the seat a faster board";

/// Too many batches wait for a seat.
pub(super) fn overloaded(seat: &str) -> Diagnosis {
    let cause = format!("{BATCHES_MAX} batches wait for it already");
    Diagnosis::new(&codes::REQUEST_OVERLOAD, format!("seat {seat}"), cause, SLOW_SEAT)
}

/// A seat left before it answered.
pub(super) fn offline(seat: &str) -> Diagnosis {
    let cause = "it left the cluster before it answered";
    let next = "see `orinoco status`, and the journal of that board";
    Diagnosis::new(&codes::SEAT_OFFLINE, format!("seat {seat}"), cause, next)
}

/// Writes the last calls of a group to the journal, if it failed because a rank was late: they show for whom this board waited, and how
/// long.
pub(super) fn log_if_late(group: &ClusterGroup, why: &CollectiveError) {
    if let CollectiveError::EpochFailed { cause: FailureCause::Late(_), .. } = why {
        group.recent().to_string().lines().for_each(|line| journal::log(Level::Info, line));
    }
}
