//! Status codes, and the message of the last failure on each thread.

use std::cell::RefCell;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use orinoco_collective::{CollectiveError, JoinError, KeyError};

/// Status of a call.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrinocoStatus {
    /// It succeeded.
    OrinocoOk = 0,
    /// An argument is not valid; nothing was sent.
    OrinocoInvalidArgument = 1,
    /// The group could not be joined.
    OrinocoJoinFailed = 2,
    /// The ranks made different calls. The group has failed.
    OrinocoMismatch = 3,
    /// A rank failed, and the group with it.
    OrinocoEpochFailed = 4,
    /// A fault of this library; please report it.
    OrinocoInternalError = 5,
}

/// Failure of a call.
pub(crate) struct Fault {
    status: OrinocoStatus,
    message: String,
    /// The rank that failed.
    rank: Option<usize>,
}

/// The last failure on a thread.
struct Last {
    message: CString,
    rank: i32,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last { message: CString::default(), rank: -1 });
}

/// Runs a call, notes its failure, and returns its status.
pub(crate) fn status(call: impl FnOnce() -> Result<(), Fault>) -> OrinocoStatus {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    let fault = match outcome {
        Ok(Ok(())) => return OrinocoStatus::OrinocoOk,
        Ok(Err(fault)) => fault,
        Err(_) => Fault {
            status: OrinocoStatus::OrinocoInternalError,
            message:
                "this library has a fault: the message before on the standard error stream names the place"
                    .to_owned(),
            rank: None,
        },
    };
    let status = fault.status;
    note(fault);
    status
}

fn note(fault: Fault) {
    let rank = fault.rank.and_then(|rank| i32::try_from(rank).ok()).unwrap_or(-1);
    let message = CString::new(fault.message.replace('\0', " ")).unwrap_or_default();
    LAST.with_borrow_mut(|last| *last = Last { message, rank });
}

/// Address of the last message. It is valid until the next failure on this thread.
pub(crate) fn last_message() -> *const std::ffi::c_char {
    LAST.with_borrow(|last| last.message.as_ptr())
}

pub(crate) fn last_rank() -> i32 {
    LAST.with_borrow(|last| last.rank)
}

impl Fault {
    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self { status: OrinocoStatus::OrinocoInvalidArgument, message: message.into(), rank: None }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self { status: OrinocoStatus::OrinocoInternalError, message: message.into(), rank: None }
    }
}

impl From<CollectiveError> for Fault {
    fn from(error: CollectiveError) -> Self {
        let (status, rank) = match &error {
            CollectiveError::Mismatch { rank, .. } => (OrinocoStatus::OrinocoMismatch, Some(*rank)),
            CollectiveError::EpochFailed { rank, .. } => (OrinocoStatus::OrinocoEpochFailed, Some(*rank)),
            CollectiveError::Isolated { .. } => (OrinocoStatus::OrinocoEpochFailed, None),
            CollectiveError::Length { .. } => (OrinocoStatus::OrinocoInvalidArgument, None),
        };
        Self { status, message: error.to_string(), rank }
    }
}

impl From<JoinError> for Fault {
    fn from(error: JoinError) -> Self {
        if let JoinError::Split(why) = error {
            return why.into();
        }
        Self { status: OrinocoStatus::OrinocoJoinFailed, message: chain(&error), rank: None }
    }
}

impl From<KeyError> for Fault {
    fn from(error: KeyError) -> Self {
        Self { status: OrinocoStatus::OrinocoJoinFailed, message: chain(&error), rank: None }
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
