//! Models: where they are, what their `model.toml` says, whether the graph agrees, and descriptions written for other
//! runtimes. It knows no engine: the inputs and outputs of a graph are given to it.
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
mod protobuf;
mod repository;
mod write;

pub use bind::Binding;
pub use check::{check_file, unreadable};
pub use description::{Model, UncertainKey};
pub use import::{Import, SkippedSetting};
pub use input::{AudioFeatures, AudioSpec, ExtraInput, ExtraInputValue, Mfcc, ModelInput, Quantization};
pub use repository::{Repository, sha256_of};
