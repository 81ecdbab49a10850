//! Preprocessing of images, decoding of a model's outputs, drawing of results, object tracking and counting. Plain CPU
//! code without I/O; the twin of the CUDA kernels, and the reference they are tested against.
//!
//! Read first: [`InputSpec`] and [`Preprocessor`], then [`Head`] and the list of heads in [`heads`], then [`Tracker`].

mod antialias;
mod gallery;
pub mod heads;
mod input;
mod nms;
mod overlay;
mod preprocess;
pub mod track;
mod yuv;
pub mod zones;

pub use gallery::Gallery;
pub use heads::{BoxForm, BoxUnit, Guess, Head, HeadKind, HeadSpec, Output};
pub use input::{Align, Fit, InputSpec, Mapping, Rounding};
pub use nms::{Across, CANDIDATES_MAX, suppress};
pub use overlay::{Canvas, draw, draw_card, draw_within};
pub use preprocess::Preprocessor;
pub use track::{Tracker, TrackerConfig};
