//! Board files: the configuration of one board. A TOML file is checked once; after that a [`Board`] is always valid:
//! names have become indices, sources are parsed, and every reference exists. The crate opens no source and loads no
//! model. Read first: [`load`], [`Board`] and [`BoardError`] (the reason why there is none).
//!
//! [`readers`] reads the sensors of the machine on which a board file runs.

mod board;
mod capabilities;
mod error;
mod read;
pub mod readers;
mod sink;

pub use board::{
    Board, BoardModel, BoardStream, Inference, ObjectSelectionSpec, Shape, TrackSpec, TrackerSpec, Written,
};
pub use capabilities::Capabilities;
pub use error::{BoardError, SourceFault};
pub use read::load;
pub use sink::{Endings, SinkDescriptor, SinkKind, SinkSpec, StandardOutput};
