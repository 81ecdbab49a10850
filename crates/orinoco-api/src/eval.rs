//! What `orinoco eval` prints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema name of [`EvalReport`].
pub const EVAL_SCHEMA: &str = "orinoco.eval/1";

/// How accurate a model or a tracker is on a dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalReport {
    /// Name and version of this contract.
    #[schemars(extend("const" = EVAL_SCHEMA))]
    pub schema: String,
    /// The dataset's path.
    pub dataset: String,
    /// Pictures that were evaluated.
    pub images: usize,
    /// The figures.
    #[serde(flatten)]
    pub result: EvalResult,
    /// The figures of what it was compared with; absent without `--against`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub against: Option<EvalResult>,
    /// Pictures in which the two differ, most first; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub differences: Vec<PictureDifference>,
    /// Files that were drawn or written; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub files: Vec<String>,
}

/// The figures of one model on one engine, or of results that another program wrote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalResult {
    /// The model's name; absent where results were read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// Name and version of the engine; absent where results were read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub engine: Option<String>,
    /// Where results were read; absent where a model ran.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub results: Option<String>,
    /// Figures of single pictures.
    #[serde(flatten)]
    pub figures: EvalFigures,
    /// Figures of tracking; absent for single pictures, and where no sequence is labelled.
    #[serde(flatten)]
    pub tracking: Option<TrackingFigures>,
    /// Figures by class; empty for tracking.
    pub classes: Vec<ClassFigures>,
    /// Figures by sequence; absent for single pictures.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub sequences: Vec<SequenceFigures>,
}

/// Figures of single pictures, each a share from 0 to 1. A figure is absent where it does not apply, or where nothing
/// is labelled for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalFigures {
    /// Average precision, the mean over IoU from 0.5 to 0.95, as COCO defines it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ap: Option<f64>,
    /// Average precision at an IoU of 0.5.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ap50: Option<f64>,
    /// Average precision at an IoU of 0.75.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ap75: Option<f64>,
    /// `ap` of objects below 32 by 32 pixels.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ap_small: Option<f64>,
    /// `ap` of objects from 32 by 32 to 96 by 96 pixels.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ap_medium: Option<f64>,
    /// `ap` of objects above 96 by 96 pixels.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ap_large: Option<f64>,
    /// Average recall with at most 100 detections in a picture.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ar100: Option<f64>,
    /// Share of labelled objects that were found, at the score of `--at` and an IoU of 0.5.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recall: Option<f64>,
    /// Share of detections that are labelled objects, at the same score and IoU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub precision: Option<f64>,
    /// Share of pictures whose best class is the labelled one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub top1: Option<f64>,
    /// Share of pictures of which one of the five best classes is the labelled one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub top5: Option<f64>,
    /// Mean over classes of intersection over union, by pixels.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub miou: Option<f64>,
    /// Share of labelled pixels whose class is right.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pixel_accuracy: Option<f64>,
}

/// Figures of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassFigures {
    /// The class's name.
    pub label: String,
    /// Labelled objects, pictures or pixels.
    pub labelled: u64,
    /// Average precision, share of right pictures, or intersection over union, 0 to 1; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub score: Option<f64>,
    /// Average precision at an IoU of 0.5; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ap50: Option<f64>,
}

/// Figures of tracking, as MOTChallenge defines them. Shares are from 0 to 1, but `mota` may be negative.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrackingFigures {
    /// Higher order tracking accuracy.
    pub hota: f64,
    /// Detection accuracy, a part of HOTA.
    pub deta: f64,
    /// Association accuracy, a part of HOTA.
    pub assa: f64,
    /// Localisation accuracy, a part of HOTA.
    pub loca: f64,
    /// Multiple object tracking accuracy; absent where nothing is labelled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mota: Option<f64>,
    /// Multiple object tracking precision: the mean IoU of matches; absent where nothing matches.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub motp: Option<f64>,
    /// F1 score of identities; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idf1: Option<f64>,
    /// Precision of identities; absent where nothing was found.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idp: Option<f64>,
    /// Recall of identities; absent where nothing is labelled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idr: Option<f64>,
    /// How many times a labelled object changed its id.
    pub switches: u64,
    /// How many times a labelled object was lost and found again.
    pub fragmentations: u64,
    /// False positives: boxes that match no labelled object.
    #[serde(rename = "fp")]
    pub false_positives: u64,
    /// Misses: labelled boxes that nothing matches.
    #[serde(rename = "fn")]
    pub misses: u64,
    /// Ids that were given.
    pub tracks_found: u64,
    /// Objects that are labelled.
    pub tracks_labelled: u64,
}

/// Figures of one sequence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SequenceFigures {
    /// The sequence's name.
    pub name: String,
    /// Pictures of it that were evaluated.
    pub images: usize,
    /// Figures of tracking; absent where it is not labelled.
    #[serde(flatten)]
    pub tracking: Option<TrackingFigures>,
}

/// One picture in which two runs differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PictureDifference {
    /// The picture's path.
    pub image: String,
    /// Results of the first without a counterpart in the second; for a class map, thousandths of its cells.
    pub only_first: usize,
    /// Results of the second without a counterpart in the first.
    pub only_second: usize,
}
