//! Models: where they are, what their `model.toml` says, and whether the graph agrees.

mod description;
mod repository;

pub use description::{Binding, Model};
pub use repository::{Repository, sha256_hex};
