//! Imports Triton Inference Server's `config.pbtxt` from its place in a model repository: `<name>/config.pbtxt` next to
//! `<name>/<version>/model.onnx`.
//!
//! Fields: triton-inference-server/common, protobuf/model_config.proto. Triton has no settings for images, so
//! preprocessing is guessed from the graph.

use std::path::{Path, PathBuf};

use orinoco_core::{Diagnosis, ElementType, Layout, codes};

use super::pbtxt::{self, Message, Value};
use super::settings::{Import, ImportedSettings, SkippedSetting, read_labels};
use crate::{ExtraInput, ExtraInputValue};

/// Reads the content of the file.
pub(super) fn read(path: &Path, text: &str, onnx: Option<&Path>) -> Result<Import, Diagnosis> {
    import(path, text, onnx).map_err(|why| why.diagnosis(path))
}

fn import(path: &Path, text: &str, onnx: Option<&Path>) -> Result<Import, TritonError> {
    let config = pbtxt::parse(text).map_err(TritonError::Syntax)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let onnx = match onnx {
        Some(given) => given.to_owned(),
        None => find_onnx(dir, &config)?,
    };
    let mut said =
        ImportedSettings { name: config.scalar("name").map(str::to_owned), ..ImportedSettings::default() };
    said.states = config.messages("sequence_batching").flat_map(states).collect();
    read_input(&config, &mut said)?;
    for output in config.messages("output") {
        if let Some(file) = output.scalar("label_filename") {
            said.labels = Some(read_labels(&dir.join(file)).map_err(TritonError::Labels)?);
        }
    }
    Ok(Import { onnx, left_out: left_out(&config), said })
}

/// Reason why the file cannot be imported.
#[derive(Debug)]
enum TritonError {
    /// A line is not as protobuf's text format wants it, for this reason.
    Syntax(String),
    /// The model is for this backend, and not ONNX.
    Backend(String),
    /// No version folder contains a file of this name.
    NoVersion(String),
    /// The input has this data type, which is none of an image or audio.
    DataType(String),
    /// A file with labels cannot be read.
    Labels(Diagnosis),
}

impl TritonError {
    /// Returns the fault of the file at `path` that a user sees.
    fn diagnosis(self, path: &Path) -> Diagnosis {
        let fault = |cause: String, next: &str| Diagnosis::new(&codes::IMPORT, path.display(), cause, next);
        match self {
            Self::Syntax(why) => fault(why, "correct that line"),
            Self::Backend(backend) => fault(
                format!("its model is for `{backend}`, which is not ONNX"),
                "name the ONNX file that the model was exported to with --onnx",
            ),
            Self::NoVersion(name) => fault(
                format!("no version folder (1/, 2/, ...) next to it contains {name}"),
                "put the model at 1/model.onnx, or name it with --onnx",
            ),
            Self::DataType(other) => {
                let subject = format!("{}: data_type of input", path.display());
                let cause = format!("{other} cannot be an image or audio");
                let next = "use a model of f32, f16, u8, i8, i32 or i64";
                Diagnosis::new(&codes::IMPORT, subject, cause, next)
            }
            Self::Labels(why) => why,
        }
    }
}

fn find_onnx(dir: &Path, config: &Message) -> Result<PathBuf, TritonError> {
    let runs_on = config.scalar("backend").or(config.scalar("platform")).unwrap_or("onnxruntime");
    if !runs_on.starts_with("onnxruntime") {
        return Err(TritonError::Backend(runs_on.to_owned()));
    }
    let name = config.scalar("default_model_filename").unwrap_or("model.onnx");
    let versions = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u64>().ok()?, entry.path().join(name))))
        .filter(|(_, file)| file.exists())
        .max_by_key(|(version, _)| *version);
    newest.map(|(_, file)| file).ok_or_else(|| TritonError::NoVersion(name.to_owned()))
}

fn read_input(config: &Message, said: &mut ImportedSettings) -> Result<(), TritonError> {
    let carried = |name: &str| said.states.iter().any(|state| state.input == name);
    let inputs: Vec<&Message> =
        config.messages("input").filter(|input| !input.scalar("name").is_some_and(carried)).collect();
    // If there are several, the graph shows which input is the image.
    let [input] = inputs[..] else { return Ok(()) };
    said.input_name = input.scalar("name").map(str::to_owned);
    said.element = match input.scalar("data_type") {
        Some("TYPE_FP32") => Some(ElementType::F32),
        Some("TYPE_FP16") => Some(ElementType::F16),
        Some("TYPE_UINT8") => Some(ElementType::U8),
        Some("TYPE_INT8") => Some(ElementType::I8),
        Some("TYPE_INT32") => Some(ElementType::I32),
        Some("TYPE_INT64") => Some(ElementType::I64),
        None => None,
        Some(other) => return Err(TritonError::DataType(other.to_owned())),
    };
    said.layout = match input.scalar("format") {
        Some("FORMAT_NCHW") => Some(Layout::Nchw),
        Some("FORMAT_NHWC") => Some(Layout::Nhwc),
        _ => None,
    };
    let dims: Vec<Option<u32>> =
        input.scalars("dims").map(|size| size.parse().ok().filter(|n| *n > 0)).collect();
    // Triton's `dims` have no batch axis, except where max_batch_size is 0.
    let sides = match (&dims[dims.len().saturating_sub(3)..], said.layout) {
        ([_, height, width], Some(Layout::Nchw)) | ([height, width, _], Some(Layout::Nhwc)) => {
            [*height, *width]
        }
        ([Some(1 | 3), height, width], None) | ([height, width, Some(1 | 3)], None) => [*height, *width],
        _ => [None, None],
    };
    [said.height, said.width] = sides;
    Ok(())
}

/// Returns the outputs that Triton feeds back into inputs (implicit state).
fn states(batching: &Message) -> Vec<ExtraInput> {
    let extra_input = |state: &Message| {
        let shape = state.scalars("dims").filter_map(|size| size.parse().ok()).collect();
        let value = ExtraInputValue::State(state.scalar("output_name")?.to_owned());
        Some(ExtraInput { input: state.scalar("input_name")?.to_owned(), shape, value })
    };
    batching.messages("state").filter_map(extra_input).collect()
}

fn left_out(config: &Message) -> Vec<SkippedSetting> {
    let mut left_out = Vec::new();
    for (name, value) in &config.fields {
        let why = match name.as_str() {
            "name" | "platform" | "backend" | "default_model_filename" | "input" | "output" => continue,
            "max_batch_size" => "set batch in the board file's [[model]]",
            "dynamic_batching" => {
                "set batch in the board file's [[model]], and batch_wait_ms in its [[stream]]"
            }
            "instance_group" => "set lanes, engines and threads in the board file",
            "version_policy" => "the highest version is used",
            "optimization" => "each engine chooses its own optimisations",
            "sequence_batching" => match value {
                Value::Message(batching) => {
                    left_out.extend(left_of_sequences(batching));
                    continue;
                }
                Value::Scalar(_) => "it has no counterpart",
            },
            _ => "it has no counterpart",
        };
        left_out.push(SkippedSetting { key: shown(name, value), why: why.to_owned() });
    }
    for output in config.messages("output").chain(config.messages("input")) {
        for (name, value) in
            output.fields.iter().filter(|(name, _)| ["reshape", "is_shape_tensor"].contains(&name.as_str()))
        {
            let why = "the shapes of the ONNX graph are used".to_owned();
            left_out.push(SkippedSetting { key: shown(name, value), why });
        }
    }
    left_out
}

fn left_of_sequences(batching: &Message) -> impl Iterator<Item = SkippedSetting> {
    let left = batching.fields.iter().filter(|(name, _)| name != "state");
    left.map(|(name, value)| SkippedSetting {
        key: format!("sequence_batching.{}", shown(name, value)),
        why: "each stream is one sequence".to_owned(),
    })
}

fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::Scalar(text) => format!("{name}: {text}"),
        Value::Message(_) => format!("{name} {{…}}"),
    }
}
