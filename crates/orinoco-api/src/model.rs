//! What `orinoco models` prints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Fault;

/// The schema name of [`ModelList`].
pub const MODELS_SCHEMA: &str = "orinoco.models/1";
/// The schema name of [`ModelDetails`].
pub const MODEL_SCHEMA: &str = "orinoco.model/1";
/// The schema name of [`CheckList`].
pub const CHECKS_SCHEMA: &str = "orinoco.checks/1";
/// The schema name of [`DescriptionReport`].
pub const DESCRIPTION_SCHEMA: &str = "orinoco.init/1";

/// The models of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelList {
    /// Name and version of this contract.
    #[schemars(extend("const" = MODELS_SCHEMA))]
    pub schema: String,
    /// Models by name.
    pub models: Vec<ListedModel>,
}

/// A folder of a repository. Where its description cannot be read, all but `name`, `folder` and `fault` is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedModel {
    /// The folder's name, which `--model` takes.
    pub name: String,
    /// The folder's path.
    pub folder: String,
    /// The kind of head that reads the outputs, such as `yolox`.
    pub head: Option<String>,
    /// Number of classes.
    pub classes: Option<usize>,
    /// Size of the ONNX file, in bytes.
    pub bytes: Option<u64>,
    /// Why the description cannot be used; null where it can.
    pub fault: Option<Fault>,
}

/// One model, as it is loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelDetails {
    /// Name and version of this contract.
    #[schemars(extend("const" = MODEL_SCHEMA))]
    pub schema: String,
    /// The model's name.
    pub name: String,
    /// What it is for; empty where the description does not say.
    pub description: String,
    /// Its licence; empty where the description does not say.
    pub license: String,
    /// Path of the ONNX file.
    pub file: String,
    /// Path of the `model.toml`; null where everything was inferred from the graph.
    pub described_by: Option<String>,
    /// Name and version of the engine that loaded it.
    pub engine: String,
    /// How a picture or a sound becomes the input tensor, in words.
    pub input: String,
    /// The kind of head that reads the outputs, such as `yolox`.
    pub head: String,
    /// Results at or below this score are dropped, 0 to 1.
    pub score_threshold: f32,
    /// Boxes that overlap a better one of their class by more than this are dropped, 0 to 1.
    pub iou_threshold: f32,
    /// Names of the classes, by their index.
    pub labels: Vec<String>,
    /// Inputs of the graph: name, element type and shape of each.
    pub graph_inputs: Vec<String>,
    /// Outputs of the graph, written as the inputs.
    pub graph_outputs: Vec<String>,
}

/// Models, each loaded on each engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckList {
    /// Name and version of this contract.
    #[schemars(extend("const" = CHECKS_SCHEMA))]
    pub schema: String,
    /// Every model on every engine.
    pub checks: Vec<EngineCheck>,
}

/// One model on one engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EngineCheck {
    /// The model's name.
    pub model: String,
    /// The engine's name.
    pub engine: String,
    /// Whether an inference on this machine passed.
    pub ok: bool,
    /// The engine's version; null where `ok` is false.
    pub version: Option<String>,
    /// Why it failed; null where `ok` is true.
    pub fault: Option<Fault>,
}

/// A first description of a model, guessed from its graph or taken over from another runtime's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DescriptionReport {
    /// Name and version of this contract.
    #[schemars(extend("const" = DESCRIPTION_SCHEMA))]
    pub schema: String,
    /// The description: the text of a `model.toml`.
    pub toml: String,
    /// Path of the file that it was written to; null where it was only printed.
    pub written: Option<String>,
    /// Keys whose values are guesses that may be wrong.
    pub unsure: Vec<KeyReason>,
    /// Settings of an imported description that this one cannot have, or that it contradicts.
    pub left_out: Vec<KeyReason>,
}

/// A key or setting with a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyReason {
    /// The key of the description, or the setting as the imported file writes it.
    pub key: String,
    /// Why it is a guess, or why it was left out.
    pub why: String,
}
