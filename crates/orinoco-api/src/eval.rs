//! Report of `orinoco eval`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Schema name of [`EvalReport`].
pub const EVAL_SCHEMA: &str = "orinoco.eval/1";

/// Accuracy of a model or a tracker on a dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalReport {
    /// Name and version of this contract.
    #[schemars(extend("const" = EVAL_SCHEMA))]
    pub schema: String,
    /// Path of the dataset.
    pub dataset: String,
    /// Number of evaluated images.
    pub images: usize,
    /// Figures of the model or tracker.
    #[serde(flatten)]
    pub result: EvalResult,
    /// Figures of the model or results that it was compared with; absent without `--against`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub against: Option<EvalResult>,
    /// Images in which the two differ, those with most differences first; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub differences: Vec<ImageDifference>,
    /// Plots, images and results that were written; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub files: Vec<String>,
}

/// Figures of one model on one engine, or of results that another program wrote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalResult {
    /// Name of the model; absent where results were read from a file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// Name and version of the engine; absent where results were read from a file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub engine: Option<String>,
    /// Path from which results were read; absent where a model ran.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub results: Option<String>,
    /// Figures of single images.
    #[serde(flatten)]
    pub figures: EvalFigures,
    /// Tracking figures; absent for single images, and where no sequence is labelled.
    #[serde(flatten)]
    pub tracking: Option<TrackingFigures>,
    /// Figures for each class; empty for tracking.
    pub classes: Vec<ClassFigures>,
    /// Figures for each sequence; absent for single images.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub sequences: Vec<SequenceFigures>,
}

/// Figures of single images, each a share from 0 to 1. A figure is absent where it does not apply, or where nothing is
/// labelled for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalFigures {
    /// Average precision: the mean over IoU thresholds from 0.5 to 0.95, as COCO defines it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ap: Option<f64>,
    /// Average precision at an IoU of 0.5.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ap50: Option<f64>,
    /// Average precision at an IoU of 0.75.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ap75: Option<f64>,
    /// `ap` of small objects: an area below 32 × 32 pixels.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ap_small: Option<f64>,
    /// `ap` of medium objects: an area from 32 × 32 to 96 × 96 pixels.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ap_medium: Option<f64>,
    /// `ap` of large objects: an area above 96 × 96 pixels.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ap_large: Option<f64>,
    /// Average recall with at most 100 detections in an image.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ar100: Option<f64>,
    /// Recall: the share of labelled objects that were found, at the score of `--at` and an IoU of 0.5.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recall: Option<f64>,
    /// Precision: the share of detections that match a labelled object, at the same score and IoU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub precision: Option<f64>,
    /// Share of images whose best class is the labelled one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub top1: Option<f64>,
    /// Share of images with the labelled class among the five best.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub top5: Option<f64>,
    /// Mean over classes of intersection over union, counted in pixels.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub miou: Option<f64>,
    /// Share of labelled pixels with the correct class.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pixel_accuracy: Option<f64>,
}

/// Figures of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassFigures {
    /// Name of the class.
    pub label: String,
    /// Number of labelled objects, images or pixels of the class.
    pub labelled: u64,
    /// Average precision, share of images with the correct class, or intersection over union, 0 to 1; absent where
    /// there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub score: Option<f64>,
    /// Average precision at an IoU of 0.5; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ap50: Option<f64>,
}

/// Tracking figures as MOTChallenge defines them. Shares are from 0 to 1, but `mota` may be negative.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrackingFigures {
    /// Higher order tracking accuracy.
    pub hota: f64,
    /// Detection accuracy, a component of HOTA.
    pub deta: f64,
    /// Association accuracy, a component of HOTA.
    pub assa: f64,
    /// Localisation accuracy, a component of HOTA.
    pub loca: f64,
    /// Multiple object tracking accuracy; absent where nothing is labelled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mota: Option<f64>,
    /// Multiple object tracking precision: the mean IoU of matches; absent where nothing matches.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub motp: Option<f64>,
    /// F1 score of identities; absent where nothing is labelled and nothing was found.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idf1: Option<f64>,
    /// Precision of identities; absent where nothing was found.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idp: Option<f64>,
    /// Recall of identities; absent where nothing is labelled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idr: Option<f64>,
    /// Number of identity switches: a labelled object got another track id.
    pub switches: u64,
    /// Number of fragmentations: a labelled object was lost and found again.
    pub fragmentations: u64,
    /// False positives: boxes that match no labelled object.
    #[serde(rename = "fp")]
    pub false_positives: u64,
    /// False negatives: labelled boxes that no box of the tracker matches.
    #[serde(rename = "fn")]
    pub misses: u64,
    /// Number of track ids that the tracker assigned.
    pub tracks_found: u64,
    /// Number of labelled tracks.
    pub tracks_labelled: u64,
}

/// Figures of one sequence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SequenceFigures {
    /// Name of the sequence.
    pub name: String,
    /// Number of evaluated images of the sequence.
    pub images: usize,
    /// Tracking figures; absent where the sequence is not labelled.
    #[serde(flatten)]
    pub tracking: Option<TrackingFigures>,
}

/// Image in which two runs differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageDifference {
    /// Path of the image.
    pub image: String,
    /// Results of the first run without a counterpart in the second; for a class map, thousandths of its cells.
    pub only_first: usize,
    /// Results of the second run without a counterpart in the first.
    pub only_second: usize,
}
