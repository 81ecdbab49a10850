//! Board files: what runs on one board. Written as TOML, checked once, and from then on a [`Board`] cannot be wrong:
//! names have become indices, and every reference holds.

mod board;
mod read;

pub use board::{
    Board, BoardModel, BoardStream, Inference, ObjectsSpec, Shape, SinkKind, SinkSpec, TrackSpec,
    TrackerSpec, Written,
};
pub use read::load;
