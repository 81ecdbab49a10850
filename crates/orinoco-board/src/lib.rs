//! Board files: what runs on one board. Written as TOML, checked once, and from then on a [`Board`] cannot be wrong:
//! names have become indices, sources are parsed, and every reference holds. It looks at no source and loads no model.
//! Read first: [`load`], [`Board`] and [`BoardError`] (why there is none).

mod board;
mod error;
mod read;

pub use board::{
    Board, BoardModel, BoardStream, Inference, ObjectSelectionSpec, Shape, SinkKind, SinkSpec, TrackSpec,
    TrackerSpec, Written,
};
pub use error::{BoardError, SourceFault};
pub use read::load;
