//! Models: the model repository, `model.toml` files, checks against the graph, and imports of descriptions written for
//! other runtimes. The crate knows no engine: its callers pass in the inputs and outputs of a graph.
//!
//! Read first: [`Model`], [`Repository`], [`Binding`].

mod bind;
mod check;
mod description;
mod files;
mod guess;
mod import;
mod input;
mod metadata;
mod onnx;
mod output;
mod portable;
mod precision;
mod protobuf;
mod repository;
mod write;

pub use bind::Binding;
pub use check::{ModelFileError, check_file, unreadable};
pub use description::{Model, UncertainKey};
pub use import::{Import, SkippedSetting};
pub use input::{AudioFeatures, AudioSpec, ExtraInput, ExtraInputValue, Mfcc, ModelInput, Quantization};
pub use onnx::doubtful_upsample;
pub use portable::{PortableFile, PortableModel, is_portable, version_of};
pub use precision::Precision;
pub use repository::{Repository, sha256_of, sha256_of_file};
