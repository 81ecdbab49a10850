//! Models that another seat of the cluster executes for this board, and models that this board executes for others.

mod executor;
mod served;

use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{Choice, Clock, Nanos};
use orinoco_pipeline::{Frame, Suspension, SuspensionError};
use orinoco_telemetry::MissCause;
use orinoco_vision::HeadKind;
use sha2::{Digest, Sha256};

pub(crate) use self::executor::{SeatExecutor, SeatModel};
pub(crate) use self::served::ServedModel;
pub use self::served::{NotServed, ServedModels};

/// Other seats of the cluster, which infer images for this board.
pub trait Seats: Send + Sync {
    /// Returns whether a seat takes images now, or the cause for which it does not.
    fn readiness(&self, seat: &str) -> Result<(), MissCause>;

    /// Has a seat infer images. Returns at once; the answer comes by the batch's suspension, also when the seat has gone offline
    /// meanwhile.
    fn infer(&self, seat: &str, batch: SeatBatch);
}

/// Images for a model of another seat.
pub struct SeatBatch {
    /// Name of the model.
    pub model: Arc<str>,
    /// Identity of the model, which must be the same on both boards.
    pub identity: ModelIdentity,
    /// One or more images.
    pub images: Vec<Frame>,
    /// Time by which the answer is needed, on the clock of the run.
    pub deadline: Nanos,
    /// Clock of the run.
    pub clock: Arc<dyn Clock>,
    /// Place of the answer.
    pub answer: Suspension,
}

impl SeatBatch {
    /// Answers it with the reason why there are no results.
    pub fn fail(self, why: SuspensionError) {
        // A lane that waits no longer has counted the images.
        let _ = self.answer.resume(Err(why));
    }

    /// Returns the time that is left for the answer.
    pub fn rest(&self) -> Duration {
        self.deadline.since(self.clock.now())
    }
}

/// Hash of what the result of a model means: its head, and its labels. Models with the same one may have other weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelIdentity(pub [u8; 32]);

impl ModelIdentity {
    /// Hashes head and labels of a model.
    pub(crate) fn new(head: HeadKind, labels: &[String]) -> Self {
        let mut hash = Sha256::new();
        for text in std::iter::once(head.name()).chain(labels.iter().map(String::as_str)) {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        Self(hash.finalize().into())
    }
}

/// Seats of a board that is in no cluster: none.
pub(crate) struct NoSeats;

impl Seats for NoSeats {
    fn readiness(&self, _: &str) -> Result<(), MissCause> {
        Err(MissCause::Offline)
    }

    fn infer(&self, _: &str, batch: SeatBatch) {
        // Dropping the suspension answers it.
        drop(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_differ_by_head_and_labels() {
        let labels = |labels: &[&str]| labels.iter().map(|&label| label.to_owned()).collect::<Vec<_>>();
        let of = |head: usize, names: &[&str]| ModelIdentity::new(HeadKind::ALL[head], &labels(names));
        assert_eq!(of(0, &["cat", "dog"]), of(0, &["cat", "dog"]));
        assert_ne!(of(0, &["cat", "dog"]), of(1, &["cat", "dog"]));
        assert_ne!(of(0, &["cat", "dog"]), of(0, &["dog", "cat"]));
        assert_ne!(of(0, &["cat", "dog"]), of(0, &["catdog"]));
    }
}
