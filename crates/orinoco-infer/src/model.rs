//! Models: where they are, what their `model.toml` says, and whether the graph agrees.

mod bind;
mod description;
mod guess;
mod input;
mod metadata;
mod output;
mod repository;
mod write;

pub use bind::Binding;
pub use description::Model;
pub use guess::Unsure;
pub use input::{AudioFeatures, AudioSpec, Feed, FeedValue, Mfcc, ModelInput, Quantization};
pub use repository::{Repository, sha256_hex};
