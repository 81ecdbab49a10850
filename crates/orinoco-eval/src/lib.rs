//! Accuracy of models and trackers: labelled datasets, and the usual metrics over results on them.
//!
//! It knows no model and no engine, and neither prints nor exits. Read first: [`Dataset`] (images with labels),
//! [`coco::evaluate`] (average precision as COCO defines it), [`mot::evaluate`] (tracking accuracy) and [`Confusion`].

pub mod classification;
pub mod coco;
mod confusion;
mod dataset;
pub mod detection;
pub mod mot;
pub mod plot;
pub mod references;
pub mod segmentation;

pub use confusion::Confusion;
pub use dataset::{Dataset, DatasetKind, FolderError, Item, LabelledBox, Labels, list_images};
