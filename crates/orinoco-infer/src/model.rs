//! Models: where they are, what their `model.toml` says, and whether the graph agrees.

mod bind;
mod description;
pub(crate) mod files;
mod guess;
mod input;
mod metadata;
pub(crate) mod onnx;
mod output;
mod repository;
mod write;

pub use bind::Binding;
pub use description::Model;
pub use guess::Unsure;
pub(crate) use input::SIDE_MAX;
pub use input::{AudioFeatures, AudioSpec, Feed, FeedValue, Mfcc, ModelInput, Quantization};
pub(crate) use output::{CLASSES_MAX, DETECTIONS_MAX, LABELS};
pub use repository::{Repository, sha256_of};
