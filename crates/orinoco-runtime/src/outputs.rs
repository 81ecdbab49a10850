//! Outputs of streams, opened so that nothing is destroyed.
//!
//! An output is opened without changing its file. Its identity is then known, however its path is written, and is compared
//! with every file that the run reads and with the other outputs. Only when all outputs are accepted is the first one
//! emptied.

mod endings;
mod error;
mod file;
mod open;
mod reader_wait;
mod taken;

pub use self::error::OutputError;
pub use self::file::OutputFile;
pub use self::open::{ExistingOutputs, check_sinks};
pub(crate) use self::open::{OpenSink, open_sinks};
pub(crate) use self::reader_wait::ReaderWait;
pub use self::taken::{TakenFiles, open_own_file};

#[cfg(test)]
mod tests;
