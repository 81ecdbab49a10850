//! The files with which Linux describes a machine: `/proc`, `/sys`, `/etc` and `/run`. Every read of them goes through a
//! [`Sysroot`], so a board is a directory: the machine's own root, a synthetic one in a test, or a [`Recording`] that somebody
//! sent, whose values change as they did on the board.
//!
//! Read first: [`Sysroot`], [`Attribute`] and [`ReadError`]. A file that is missing, forbidden or silent is an error that says
//! which, and never an empty text or a 0. The crate writes nothing to the file system, and reads no clock.

mod attribute;
mod directory;
mod error;
mod path;
mod recorder;
mod recording;
mod redact;
mod sysroot;

pub use attribute::Attribute;
pub use error::{FILE_BYTES_MAX, ReadError, ReadErrorKind};
pub use recorder::{Recorded, Recorder, Schedule, Selection, record};
pub use recording::{
    AddError, ArchiveError, ArchiveErrorKind, CHANGES_MAX, NODES_MAX, Packing, RECORDING_BYTES_MAX, Recording,
};
pub use redact::{PACKAGES, PACKAGES_BYTES_MAX};
pub use sysroot::{OpenError, Sysroot};
