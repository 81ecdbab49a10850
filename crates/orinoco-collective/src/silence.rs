use std::time::Duration;

use crate::JoinError;

/// Shortest time without a sign of life after which a rank may count as dead. Ranks give several signs in that time, and a scheduler keeps
/// a thread from its core for some milliseconds.
pub const SILENCE_MIN: Duration = Duration::from_millis(10);

/// Checks that a rank is not taken for dead between two of its signs of life.
pub(crate) fn check_silence(silence: Duration) -> Result<(), JoinError> {
    match silence >= SILENCE_MIN {
        true => Ok(()),
        false => Err(JoinError::Silence { silence, min: SILENCE_MIN }),
    }
}
