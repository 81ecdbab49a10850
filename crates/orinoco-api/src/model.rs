//! Reports of `orinoco models`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Fault;

/// Schema name of [`ModelList`].
pub const MODELS_SCHEMA: &str = "orinoco.models/1";
/// Schema name of [`ModelDetails`].
pub const MODEL_SCHEMA: &str = "orinoco.model/1";
/// Schema name of [`CheckList`].
pub const CHECKS_SCHEMA: &str = "orinoco.checks/1";
/// Schema name of [`DescriptionReport`].
pub const DESCRIPTION_SCHEMA: &str = "orinoco.init/1";
/// Schema name of [`PullReport`].
pub const PULL_SCHEMA: &str = "orinoco.pull/1";

/// Model that was copied from another board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PullReport {
    /// Name and version of this contract.
    #[schemars(extend("const" = PULL_SCHEMA))]
    pub schema: String,
    /// Name of the model.
    pub model: String,
    /// Version of the model; absent where the description names the ONNX file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<u32>,
    /// Seat from which it was copied.
    pub seat: String,
    /// Folder of the model in the repository.
    pub folder: String,
    /// Its files, sorted by path.
    pub files: Vec<PulledFile>,
}

/// File of a model that was copied from another board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PulledFile {
    /// Path in the folder of the model.
    pub path: String,
    /// Size of the file, in bytes.
    pub bytes: u64,
    /// `added`, `replaced` or `unchanged`. Unchanged files were not copied.
    pub state: String,
}

/// Models of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelList {
    /// Name and version of this contract.
    #[schemars(extend("const" = MODELS_SCHEMA))]
    pub schema: String,
    /// Models, ordered by name.
    pub models: Vec<ListedModel>,
}

/// Folder of a model repository. If its description cannot be read, all fields except `name`, `folder` and `fault` are
/// null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedModel {
    /// Name of the folder, which is the model's name for `--model`.
    pub name: String,
    /// Path of the folder.
    pub folder: String,
    /// Kind of head that decodes the outputs, such as `yolox`.
    pub head: Option<String>,
    /// Number of classes.
    pub classes: Option<usize>,
    /// Size of the ONNX file, in bytes.
    pub bytes: Option<u64>,
    /// Reason why the description cannot be used; null where it can.
    pub fault: Option<Fault>,
}

/// One model as it is loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelDetails {
    /// Name and version of this contract.
    #[schemars(extend("const" = MODEL_SCHEMA))]
    pub schema: String,
    /// Name of the model.
    pub name: String,
    /// Purpose of the model; empty where the description does not give it.
    pub description: String,
    /// Licence of the model; empty where the description does not give it.
    pub license: String,
    /// Path of the ONNX file.
    pub file: String,
    /// Path of the `model.toml`; null where everything was inferred from the graph.
    pub described_by: Option<String>,
    /// Name and version of the engine that loaded it.
    pub engine: String,
    /// Conversion of an image or a sound to the input tensor, in words.
    pub input: String,
    /// Kind of head that decodes the outputs, such as `yolox`.
    pub head: String,
    /// Score threshold, 0 to 1: results at or below it are dropped.
    pub score_threshold: f32,
    /// IoU threshold of non-maximum suppression, 0 to 1: a box that overlaps a better one of its class by more is
    /// dropped.
    pub iou_threshold: f32,
    /// Names of the classes, by class index.
    pub labels: Vec<String>,
    /// Inputs of the graph: name, element type and shape of each.
    pub graph_inputs: Vec<String>,
    /// Outputs of the graph, in the same form as the inputs.
    pub graph_outputs: Vec<String>,
}

/// Checks of models on engines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckList {
    /// Name and version of this contract.
    #[schemars(extend("const" = CHECKS_SCHEMA))]
    pub schema: String,
    /// One check for each model and engine.
    pub checks: Vec<EngineCheck>,
}

/// Check of one model on one engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EngineCheck {
    /// Name of the model.
    pub model: String,
    /// Name of the engine.
    pub engine: String,
    /// Whether an inference on this machine passed.
    pub ok: bool,
    /// Version of the engine; null where `ok` is false.
    pub version: Option<String>,
    /// Reason why the check failed; null where `ok` is true.
    pub fault: Option<Fault>,
}

/// First description of a model, guessed from its graph or imported from another runtime's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DescriptionReport {
    /// Name and version of this contract.
    #[schemars(extend("const" = DESCRIPTION_SCHEMA))]
    pub schema: String,
    /// Content of the `model.toml`.
    pub toml: String,
    /// Path of the written file; null where the description was only printed.
    pub written: Option<String>,
    /// Keys whose values are guesses that may be wrong.
    pub unsure: Vec<KeyReason>,
    /// Settings of the imported description that `model.toml` cannot have, or that contradict it.
    pub left_out: Vec<KeyReason>,
}

/// Key or setting with a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyReason {
    /// Key of `model.toml`, or the setting as the imported file writes it.
    pub key: String,
    /// Reason why the value is a guess, or why the setting was left out.
    pub why: String,
}
