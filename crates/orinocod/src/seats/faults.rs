//! Faults of seats, in the words of the board that asks them, and what the journal says of them.

use orinoco_collective::{ClusterGroup, CollectiveError, FailureCause};
use orinoco_core::{Diagnosis, codes};
use orinoco_pipeline::SuspensionError;
use orinoco_telemetry::MissCause;

use super::inbox::BATCHES_MAX;
use crate::journal::{self, Level};

/// Advice for a seat that does not keep up.
pub(super) const SLOW_SEAT: &str =
    "raise `interval` or `batch` of the model, or give the seat a faster board";

/// Reason why a seat does not infer images of this board.
#[derive(Debug)]
pub(super) enum SeatError {
    /// Too many batches wait for the seat.
    Overloaded,
    /// The seat left the cluster before it answered.
    Offline,
    /// Earlier images took all the time that these had.
    Late,
    /// The images do not fit into one message.
    TooLarge,
    /// The answer cannot be read.
    Unreadable,
    /// The seat's own answer, in its words.
    Answered {
        /// Cause that the answer gives.
        miss: MissCause,
        /// Cause as a sentence.
        cause: String,
        /// Next step.
        next: String,
    },
}

impl SeatError {
    /// Returns the reason for the lane that waits for `seat`.
    pub(super) fn of_step(self, seat: &str) -> SuspensionError {
        SuspensionError::Remote { cause: self.miss(), why: self.diagnosis(seat) }
    }

    /// Returns the cause for which the images are counted as missed.
    pub(super) fn miss(&self) -> MissCause {
        match self {
            Self::Overloaded => MissCause::Overloaded,
            Self::Offline => MissCause::Offline,
            Self::Late => MissCause::Late,
            Self::TooLarge | Self::Unreadable => MissCause::Failed,
            Self::Answered { miss, .. } => *miss,
        }
    }

    /// Returns the fault of `seat` that a user sees.
    pub(super) fn diagnosis(&self, seat: &str) -> Diagnosis {
        let code = match self.miss() {
            MissCause::Overloaded => &codes::REQUEST_OVERLOAD,
            MissCause::Offline => &codes::SEAT_OFFLINE,
            MissCause::Late => &codes::REQUEST_EXPIRED,
            MissCause::Failed => &codes::SEAT_FAILED,
        };
        let fault = |cause: &str, next: &str| Diagnosis::new(code, format!("seat {seat}"), cause, next);
        match self {
            Self::Overloaded => fault(&format!("{BATCHES_MAX} batches wait for it already"), SLOW_SEAT),
            Self::Offline => fault(
                "it left the cluster before it answered",
                "see `orinoco status`, and the journal of that board",
            ),
            Self::Late => fault("earlier images took too long", SLOW_SEAT),
            Self::TooLarge => {
                fault("the images are too large to be sent together", "lower `batch` of the model")
            }
            Self::Unreadable => {
                fault("its answer cannot be read", "install the same version of orinocod on both boards")
            }
            Self::Answered { cause, next, .. } => fault(cause, next),
        }
    }
}

/// Writes the last calls of a group to the journal, if it failed because a rank was late or fell silent: they show for whom this board
/// waited, and how long.
pub(crate) fn log_if_timed_out(group: &ClusterGroup, why: &CollectiveError) {
    if let CollectiveError::EpochFailed { cause: FailureCause::Late(_) | FailureCause::Silent(_), .. } = why {
        group.recent().to_string().lines().for_each(|line| journal::log(Level::Info, line));
    }
}
