//! The files with which Linux describes a machine: `/proc`, `/sys`, `/etc` and `/run`. Every read of them goes through a
//! [`Sysroot`], so a board is a directory: the machine's own root, a synthetic one in a test, or one that somebody sent.
//!
//! Read first: [`Sysroot`] and [`ReadError`]. A file that is missing, forbidden or silent is an error that says which, and
//! never an empty text or a 0.

mod directory;
mod error;
mod sysroot;

pub use error::{FILE_BYTES_MAX, ReadError, ReadErrorKind};
pub use sysroot::Sysroot;
