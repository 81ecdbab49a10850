//! How right a model is: labelled datasets, and the metrics of the field over what was found in them.
//!
//! It knows no model and no engine, and neither prints nor exits. Read first: [`Dataset`] (what is labelled),
//! [`coco::evaluate`] (average precision as COCO defines it), [`mot::evaluate`] (how objects are followed) and
//! [`Confusion`].

pub mod classification;
pub mod coco;
mod confusion;
mod dataset;
pub mod detection;
pub mod mot;
pub mod plot;
pub mod segmentation;

pub use confusion::Confusion;
pub use dataset::{Dataset, DatasetKind, Item, LabelledBox, Labels, pictures};
