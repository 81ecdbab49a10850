//! Where outputs go, so that nothing is destroyed by it.
//!
//! An output is opened without being touched. Then it is known which file it is, however its path is written, and that is
//! compared with every file that the run reads and with the other outputs. Only when all of them are accepted is the
//! first one emptied.

mod endings;
mod file;
mod open;
mod taken;

pub(crate) use self::file::NEXT;
pub use self::file::OutputFile;
pub use self::open::ExistingOutputs;
pub(crate) use self::open::{OpenSink, open_sinks};
pub use self::taken::{TakenFiles, open_own_file};

#[cfg(test)]
mod tests;
