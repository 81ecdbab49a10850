use std::fmt;
use std::time::Duration;

/// Longest time in a cause's code.
const MILLIS_MAX: u32 = (1 << 28) - 1;

/// Reason for which a rank failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureCause {
    /// Its process gave no sign of life for this long.
    Silent(Duration),
    /// It left.
    Left,
    /// It gives signs of life, but did not make the call before this rank's deadline.
    Late(Duration),
    /// It made another call than a rank that waited for it.
    Mismatch,
    /// Its process has ended, and the rank had not left before: a connection was closed, or the kernel reports it.
    Ended,
    /// Its memory cannot be read, although it could be when the group was joined.
    Unreadable,
    /// It sent a message that was damaged on its way.
    Damaged,
    /// It sent a message that does not belong where it came.
    Unexpected,
    /// It is alive, but a connection with it broke.
    Disconnected,
    /// A cause that this version does not know.
    Unknown(u32),
}

impl FailureCause {
    /// Whether the rank is gone, or cannot be reached. With the other causes it is alive.
    pub(crate) fn is_absence(self) -> bool {
        matches!(self, Self::Silent(_) | Self::Ended | Self::Left | Self::Disconnected)
    }

    /// Returns the words that tell a user how to go on.
    pub(crate) fn next_step(self) -> &'static str {
        match self {
            Self::Silent(_) => "check that its process is not suspended, and that its machine can be reached",
            Self::Left => "let all ranks make the same calls before one leaves",
            Self::Late(_) => "see what it does instead, or set a longer deadline",
            Self::Mismatch => "the error of the rank that noticed it names both calls",
            Self::Ended => "its own output says why",
            Self::Unreadable => "start all ranks again as the same user, or without single copy",
            Self::Damaged => "check the network adapters and cables between the two",
            Self::Unexpected => {
                "check that both pass the same counts, and that nothing else writes to their connection"
            }
            Self::Disconnected => "check the network between the two",
            Self::Unknown(_) => "install the same version of Orinoco on all machines",
        }
    }

    /// The cause as a number: its kind in the highest four bits, milliseconds in the others.
    pub(crate) fn to_code(self) -> u32 {
        let millis = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX).min(MILLIS_MAX);
        match self {
            Self::Silent(time) => 1 << 28 | millis(time),
            Self::Left => 2 << 28,
            Self::Late(time) => 3 << 28 | millis(time),
            Self::Mismatch => 4 << 28,
            Self::Ended => 5 << 28,
            Self::Unreadable => 6 << 28,
            Self::Damaged => 7 << 28,
            Self::Unexpected => 8 << 28,
            Self::Disconnected => 9 << 28,
            Self::Unknown(code) => code,
        }
    }

    /// The cause with this number, which may come from anywhere.
    pub(crate) fn from_code(code: u32) -> Self {
        let time = Duration::from_millis(u64::from(code & MILLIS_MAX));
        match code >> 28 {
            1 => Self::Silent(time),
            2 => Self::Left,
            3 => Self::Late(time),
            4 => Self::Mismatch,
            5 => Self::Ended,
            6 => Self::Unreadable,
            7 => Self::Damaged,
            8 => Self::Unexpected,
            9 => Self::Disconnected,
            _ => Self::Unknown(code),
        }
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(time) => write!(f, "gave no sign of life for {} ms", time.as_millis()),
            Self::Left => write!(f, "left"),
            Self::Late(time) => {
                write!(f, "is alive, but did not make the call within {} ms", time.as_millis())
            }
            Self::Mismatch => write!(f, "made another call"),
            Self::Ended => f.write_str("has ended"),
            Self::Unreadable => f.write_str("has a vector that cannot be read"),
            Self::Damaged => f.write_str("sent a message that was damaged on its way"),
            Self::Unexpected => f.write_str("sent a message that does not belong where it came"),
            Self::Disconnected => f.write_str("is alive, but a connection with it broke"),
            Self::Unknown(cause) => write!(f, "failed (cause {cause})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_survive_their_code() {
        let time = Duration::from_millis(500);
        for known in [
            FailureCause::Silent(time),
            FailureCause::Left,
            FailureCause::Late(time),
            FailureCause::Mismatch,
            FailureCause::Ended,
            FailureCause::Unreadable,
            FailureCause::Damaged,
            FailureCause::Unexpected,
            FailureCause::Disconnected,
        ] {
            assert_eq!(FailureCause::from_code(known.to_code()), known);
        }
        assert_eq!(FailureCause::from_code(7), FailureCause::Unknown(7));
    }
}
