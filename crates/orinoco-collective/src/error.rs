use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::call::Call;

/// Fault of a collective operation.
#[derive(Debug, Error)]
pub enum CollectiveError {
    /// Ranks called different operations, or with different sizes. No rank gets a result, and the communicator has failed.
    #[error(
        "rank {rank} called {theirs}, this rank called {ours}; all ranks must make the same calls in the same order"
    )]
    Mismatch {
        /// The other rank.
        rank: usize,
        /// Its call.
        theirs: Call,
        /// This rank's call.
        ours: Call,
    },
    /// A rank failed during an operation, or before it. The communicator has failed with it.
    #[error("epoch {epoch} failed during {call}: rank {rank} {cause}")]
    EpochFailed {
        /// Membership that has ended.
        epoch: u32,
        /// The rank that failed.
        rank: usize,
        /// Reason of its failure.
        cause: FailureCause,
        /// The operation in which it was noticed.
        call: Call,
    },
    /// An input or output has the wrong length.
    #[error("{what} of {call} has {len} elements, expected {expected}")]
    Length {
        /// Input or output.
        what: &'static str,
        /// Its length.
        len: usize,
        /// The length it must have.
        expected: usize,
        /// The call.
        call: Call,
    },
}

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
    /// Its process has ended.
    Ended,
    /// Its memory cannot be read, although it could be when the group was joined.
    Unreadable,
    /// A cause that this version does not know.
    Unknown(u32),
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
            Self::Unknown(cause) => write!(f, "failed (cause {cause})"),
        }
    }
}

/// Fault of joining a group.
#[derive(Debug, Error)]
pub enum JoinError {
    /// The numbers make no sense.
    #[error("rank {rank} of {ranks}: a group has 1 to {max} ranks, numbered from 0")]
    Ranks {
        /// This rank.
        rank: usize,
        /// Number of ranks.
        ranks: usize,
        /// Most ranks.
        max: usize,
    },
    /// The file of the group cannot be used.
    #[error("{action} {path}")]
    File {
        /// Attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file is not one of such a group.
    #[error(
        "{path} was made by another version, or for another number of ranks: {found}; remove it and start all ranks again"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Content that differs.
        found: String,
    },
    /// Another process has this rank.
    #[error("rank {rank} of {path} has joined already (process {process})")]
    Taken {
        /// The rank.
        rank: usize,
        /// The file.
        path: PathBuf,
        /// Its process.
        process: u32,
    },
    /// A rank failed just after all had joined.
    #[error("all ranks joined, but then one failed")]
    Failed(#[from] CollectiveError),
    /// Some ranks did not join.
    #[error("ranks {missing:?} did not join {path} within {} ms", waited.as_millis())]
    Missing {
        /// Ranks that did not join.
        missing: Vec<usize>,
        /// The file.
        path: PathBuf,
        /// Time waited.
        waited: Duration,
    },
}
