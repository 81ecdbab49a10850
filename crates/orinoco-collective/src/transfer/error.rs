use std::fmt;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use thiserror::Error;

use super::limits::{NAME_BYTES_MAX, REGIONS_MAX};
use crate::FailureCause;

/// Fault of a transfer, or of the registration of a region.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The threads of an agent cannot be started.
    #[error("starting the threads of a transfer agent")]
    Start(#[source] io::Error),
    /// The owner of a region refuses a request. It goes on to serve others.
    #[error("rank {rank} refuses the transfer with region `{region}`: {why}")]
    Refused {
        /// The owner.
        rank: usize,
        /// The region.
        region: String,
        /// Reason.
        why: RefusalReason,
    },
    /// A region of this rank cannot be accessed.
    #[error("this rank's region `{region}`: {why}")]
    OwnRegion {
        /// The region.
        region: String,
        /// Reason.
        why: RefusalReason,
    },
    /// The other rank has failed, or has left. Every later transfer with it fails, too.
    #[error("rank {rank} {cause}")]
    RankFailed {
        /// The other rank.
        rank: usize,
        /// Reason of its failure.
        cause: FailureCause,
    },
    /// The transfer was not complete before its deadline. A part of its bytes may be in place.
    #[error(
        "the transfer with rank {rank} was not complete after {} ms; {} of {} confirmed",
        waited.as_millis(), mebibytes(*confirmed), mebibytes(*bytes)
    )]
    Late {
        /// The other rank.
        rank: usize,
        /// Time waited.
        waited: Duration,
        /// Bytes that are confirmed to have arrived.
        confirmed: u64,
        /// Bytes of the transfer.
        bytes: u64,
    },
    /// There is no such rank, or it is this one.
    #[error("cannot transfer to or from rank {rank}: choose a rank from 0 to {} other than this one", *ranks - 1)]
    NoRank {
        /// The number.
        rank: usize,
        /// Number of ranks.
        ranks: usize,
    },
    /// A copy is not between this rank and another.
    #[error("copy from rank {from} to rank {to}: exactly one of them must be the calling rank, {rank}")]
    Elsewhere {
        /// This rank.
        rank: usize,
        /// The rank to copy from.
        from: usize,
        /// The rank to copy to.
        to: usize,
    },
    /// A name cannot be that of a region.
    #[error("`{name}` has {} bytes; the name of a region has 1 to {NAME_BYTES_MAX}", name.len())]
    Name {
        /// The name.
        name: String,
    },
    /// Another region of this rank has the name.
    #[error("this rank has a region `{name}` already; unregister it first")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// This rank has as many regions as it may.
    #[error("this rank has {REGIONS_MAX} regions, the most that it may; unregister some")]
    TooManyRegions,
    /// A file cannot be a region, or not one with this access.
    #[error("a file cannot be a region: {why}")]
    UnsuitableFile {
        /// Reason.
        why: &'static str,
    },
    /// The properties of a file cannot be read.
    #[error("reading the properties of a file")]
    File(#[source] io::Error),
}

/// Reason for which the owner of a region refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// It has no region with this name.
    UnknownRegion,
    /// The region was unregistered during the transfer.
    Unregistered,
    /// The range is not in the region.
    OutOfRange {
        /// Length of the region, in bytes.
        region_bytes: u64,
    },
    /// The region may not be read by others.
    NotReadable,
    /// The region may not be written by others.
    NotWritable,
    /// The owner has as many notifications as it keeps, and has not taken them.
    NotificationsFull,
    /// The system refuses to read or write the file of the region.
    Storage {
        /// The system's error number; 0 if the file is shorter than the region.
        errno: u32,
    },
    /// A reason that this version does not know.
    Unknown(u32),
}

impl RefusalReason {
    /// The reason as a number, and another number that belongs to it.
    pub(super) fn to_code(self) -> (u32, u64) {
        match self {
            Self::UnknownRegion => (1, 0),
            Self::Unregistered => (2, 0),
            Self::OutOfRange { region_bytes } => (3, region_bytes),
            Self::NotReadable => (4, 0),
            Self::NotWritable => (5, 0),
            Self::NotificationsFull => (6, 0),
            Self::Storage { errno } => (7, errno.into()),
            Self::Unknown(code) => (code, 0),
        }
    }

    /// The reason with these numbers, which may come from anywhere.
    pub(super) fn from_code(code: u32, detail: u64) -> Self {
        match code {
            1 => Self::UnknownRegion,
            2 => Self::Unregistered,
            3 => Self::OutOfRange { region_bytes: detail },
            4 => Self::NotReadable,
            5 => Self::NotWritable,
            6 => Self::NotificationsFull,
            7 => Self::Storage { errno: u32::try_from(detail).unwrap_or(u32::MAX) },
            code => Self::Unknown(code),
        }
    }

    /// The reason of an owner whose file or device has this error. One without a number of the system's is reported as `EIO`.
    pub(super) fn of_storage(error: &io::Error) -> Self {
        let errno = match (error.raw_os_error(), error.kind()) {
            (Some(errno), _) => errno.unsigned_abs(),
            (None, io::ErrorKind::UnexpectedEof) => 0,
            (None, _) => Errno::IO.raw_os_error().unsigned_abs(),
        };
        Self::Storage { errno }
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownRegion => f.write_str("it has no region with this name"),
            Self::Unregistered => f.write_str("the region was unregistered during the transfer"),
            Self::OutOfRange { region_bytes } => {
                write!(f, "the range is not within the region, which has {region_bytes} bytes")
            }
            Self::NotReadable => f.write_str("other ranks may not read the region"),
            Self::NotWritable => f.write_str("other ranks may not write to the region"),
            Self::NotificationsFull => {
                f.write_str("its notification queue is full; the owner must call `next_notification`")
            }
            Self::Storage { errno: 0 } => f.write_str("the file is shorter than the region"),
            Self::Storage { errno } => {
                let error = io::Error::from_raw_os_error(i32::try_from(*errno).unwrap_or(0));
                write!(f, "its file or device cannot be read or written: {error}")
            }
            Self::Unknown(code) => write!(f, "reason {code}, which this version does not know"),
        }
    }
}

/// A size as people read it.
fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Error of this rank's own region.
pub(super) fn own_fault(region: &str, why: RefusalReason) -> TransferError {
    TransferError::OwnRegion { region: region.to_owned(), why }
}
