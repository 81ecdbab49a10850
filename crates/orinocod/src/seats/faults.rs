//! Faults of seats, in the words of the board that asks them.

use orinoco_core::{Diagnosis, codes};

use super::inbox::BATCHES_MAX;

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
