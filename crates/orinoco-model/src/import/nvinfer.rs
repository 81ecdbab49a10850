//! Configuration files of DeepStream's Gst-nvinfer: the key file and the YAML of the same keys.
//!
//! Keys, values and defaults: DeepStream SDK 8.0, Gst-nvinfer, "Gst-nvinfer File Configuration Specifications".

use std::path::{Path, PathBuf};
use std::str::FromStr;

use ini::Ini;
use orinoco_core::{ColorOrder, Diagnosis, Layout, Resize, WithSubject, codes};
use orinoco_vision::heads::HeadResultKind;
use orinoco_vision::{Align, Fit, Rounding};
use saphyr::{LoadableYamlNode, Yaml};

use super::settings::{Import, ImportedSettings, SkippedSetting, read_labels};

/// Default score threshold: `DEFAULT_PRE_CLUSTER_THRESHOLD` of gstnvinfer_property_parser.h.
const SCORE_USUAL: f32 = 0.2;
/// Default IoU threshold: `DEFAULT_NMS_IOU_THRESHOLD` of the same file.
const IOU_USUAL: f32 = 0.3;
/// Maximum nesting of YAML; nvinfer's files have two levels.
const DEPTH_MAX: usize = 8;

/// Reason for settings of a secondary model.
const SECONDARY: &str = "set on = { model = ..., classes = [...] } in the board file's [[model]]";
const PROPERTY: &str = "property";
const CLASSES: &str = "class-attrs-all";

/// Next step for a file that is not a key file, or not YAML.
const NEXT_SYNTAX: &str = "correct that line, or name an nvinfer file (.txt, .yml) or Triton's config.pbtxt";

/// Setting as written in the file.
#[derive(Debug, PartialEq)]
pub(super) struct Entry {
    group: String,
    key: String,
    value: String,
}

/// Reads the settings of a key file.
pub(super) fn from_keyfile(path: &Path, text: &str) -> Result<Vec<Entry>, Diagnosis> {
    let file = Ini::load_from_str_noescape(text).about(&codes::IMPORT, path.display(), NEXT_SYNTAX)?;
    let entries = file.iter().flat_map(|(group, keys)| {
        keys.iter().map(move |(key, value)| Entry {
            group: group.unwrap_or_default().to_owned(),
            key: key.trim().to_owned(),
            value: value.trim().to_owned(),
        })
    });
    Ok(entries.collect())
}

/// Reads the settings of a YAML file: a mapping of groups to mappings of keys to scalars.
pub(super) fn from_yaml(path: &Path, text: &str) -> Result<Vec<Entry>, Diagnosis> {
    parse_yaml(text).about(&codes::IMPORT, path.display(), NEXT_SYNTAX)
}

/// Returns the settings of a YAML file, or the reason why it is not one of nvinfer.
fn parse_yaml(text: &str) -> Result<Vec<Entry>, String> {
    // The YAML parser recurses for every level.
    let opened = text.chars().filter(|c| "[{".contains(*c)).count();
    if opened > DEPTH_MAX {
        return Err("it nests lists or mappings, which nvinfer's files do not".to_owned());
    }
    let documents = Yaml::load_from_str(text).map_err(|error| error.to_string())?;
    let groups = documents.first().and_then(Yaml::as_mapping);
    let groups = groups.ok_or("it is not a mapping of groups")?;
    let mut entries = Vec::new();
    for (group, keys) in groups {
        let group = scalar(group).ok_or("a group has no plain name")?;
        let keys = keys.as_mapping().ok_or_else(|| format!("`{group}` is not a mapping of keys"))?;
        for (key, value) in keys {
            let key = scalar(key).ok_or_else(|| format!("a key of `{group}` has no plain name"))?;
            let value =
                scalar(value).ok_or_else(|| format!("`{key}` of `{group}` is not one number or text"))?;
            entries.push(Entry { group: group.clone(), key, value });
        }
    }
    Ok(entries)
}

fn scalar(node: &Yaml<'_>) -> Option<String> {
    let text = node.as_str().map(str::to_owned);
    text.or_else(|| node.as_integer().map(|n| n.to_string()))
        .or_else(|| node.as_floating_point().map(|n| n.to_string()))
        .or_else(|| node.as_bool().map(|n| u8::from(n).to_string()))
        .or_else(|| node.is_null().then(String::new))
}

/// Makes the import from the settings.
pub(super) fn read(path: &Path, entries: &[Entry], onnx: Option<&Path>) -> Result<Import, Diagnosis> {
    import(path, entries, onnx).map_err(|why| why.diagnosis(path))
}

fn import(path: &Path, entries: &[Entry], onnx: Option<&Path>) -> Result<Import, NvinferError> {
    let mut keys = Keys { path, entries, taken: vec![false; entries.len()] };
    keys.check_groups()?;
    let onnx = find_onnx(&mut keys, onnx)?;
    let mut said = ImportedSettings::default();
    let mut left_out = Vec::new();
    read_input(&mut keys, &mut said, &mut left_out)?;
    read_output(&mut keys, &mut said, &mut left_out)?;
    left_out.extend(keys.rest());
    Ok(Import { onnx, left_out, said })
}

/// Reason why the settings cannot be imported.
#[derive(Debug)]
enum NvinferError {
    /// The file has no group `property`, which every nvinfer file has.
    NotNvinfer {
        /// Whether it is a configuration of deepstream-app, which names an nvinfer file.
        is_app: bool,
    },
    /// The file names no ONNX file.
    NoOnnx {
        /// Key of a model in another format that it names.
        other: Option<&'static str>,
    },
    /// A key has a wrong value.
    Value {
        /// Group of the key.
        group: &'static str,
        /// Name of the key.
        key: &'static str,
        /// Cause in one sentence.
        cause: String,
    },
    /// The file with labels cannot be read.
    Labels(Diagnosis),
}

impl NvinferError {
    /// Returns the fault of the file at `path` that a user sees.
    fn diagnosis(self, path: &Path) -> Diagnosis {
        match self {
            Self::NotNvinfer { is_app } => {
                let cause = "it has no group `property`, which every nvinfer file has";
                let next = match is_app {
                    true => {
                        "this is a deepstream-app configuration: give the nvinfer file that its config-file names"
                    }
                    false => "name an nvinfer file (.txt, .yml) or Triton's config.pbtxt",
                };
                Diagnosis::new(&codes::IMPORT, path.display(), cause, next)
            }
            Self::NoOnnx { other } => {
                let cause = match other {
                    Some(key) => format!("it names no onnx-file, only a {key}, which is not ONNX"),
                    None => "it names no onnx-file".to_owned(),
                };
                let next = "name the ONNX file that the model was exported to with --onnx";
                Diagnosis::new(&codes::IMPORT, path.display(), cause, next)
            }
            Self::Value { group, key, cause } => {
                let subject = format!("{}: key `{key}` of [{group}]", path.display());
                Diagnosis::new(&codes::IMPORT, subject, cause, "correct the value")
            }
            Self::Labels(why) => why,
        }
    }
}

fn find_onnx(keys: &mut Keys<'_>, given: Option<&Path>) -> Result<PathBuf, NvinferError> {
    let named = keys.text(PROPERTY, "onnx-file").map(|text| keys.file(&text));
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    named.ok_or_else(|| {
        let others = ["model-engine-file", "tlt-encoded-model", "uff-file", "model-file"];
        let other = others.into_iter().find(|key| keys.entries.iter().any(|entry| entry.key == *key));
        NvinferError::NoOnnx { other }
    })
}

fn read_input(
    keys: &mut Keys<'_>,
    said: &mut ImportedSettings,
    left_out: &mut Vec<SkippedSetting>,
) -> Result<(), NvinferError> {
    said.layout = keys.choice("network-input-order", &[Layout::Nchw, Layout::Nhwc])?;
    if let Some(sizes) = keys.list::<u32>("infer-dims")? {
        let sizes: [u32; 3] = exactly("infer-dims", sizes)?;
        // The order is always channels, height, width.
        (said.height, said.width) = (Some(sizes[1]), Some(sizes[2]));
        if sizes.contains(&0) {
            return Err(wrong(PROPERTY, "infer-dims", "a size is 0"));
        }
    }
    let colors = [ColorOrder::Rgb, ColorOrder::Bgr, ColorOrder::Gray];
    said.color = Some(keys.choice("model-color-format", &colors)?.unwrap_or(ColorOrder::Rgb));
    said.scale = Some(keys.number("net-scale-factor")?.unwrap_or(1.0));
    said.mean = Some(match keys.list::<f32>("offsets")? {
        Some(offsets) if offsets.len() == 1 => [offsets[0]; 3],
        Some(offsets) => exactly("offsets", offsets)?,
        None => [0.0; 3],
    });
    let keeps = keys.choice("maintain-aspect-ratio", &[false, true])?.unwrap_or(false);
    let centred = keys.choice("symmetric-padding", &[false, true])?.unwrap_or(false);
    let fit = if keeps { Fit::Letterbox } else { Fit::Stretch };
    said.fit = Some((fit, if centred { Align::Center } else { Align::TopLeft }));
    // nvinfer truncates the exact side of a letterboxed image, whatever the trainer of the model did.
    said.rounding = Some(Rounding::Exact);
    // nvinfer pads with zero bytes.
    said.fill = Some(0);
    said.resize = Some(Resize::Bilinear);
    let filter = keys.text(PROPERTY, "scaling-filter").filter(|filter| filter != "1");
    left_out.extend(filter.map(|filter| SkippedSetting {
        key: format!("scaling-filter = {filter}"),
        why: "images are scaled bilinearly".to_owned(),
    }));
    Ok(())
}

fn read_output(
    keys: &mut Keys<'_>,
    said: &mut ImportedSettings,
    left_out: &mut Vec<SkippedSetting>,
) -> Result<(), NvinferError> {
    let kind: u32 = keys.number("network-type")?.unwrap_or(0);
    said.finds = match kind {
        0 => Some(HeadResultKind::Boxes),
        1 => Some(HeadResultKind::Classes),
        2 => Some(HeadResultKind::ClassMap),
        3 => Some(HeadResultKind::Instances),
        _ => None,
    };
    let classifier = keys.choice("is-classifier", &[false, true])?.unwrap_or(false);
    if classifier {
        said.finds = Some(HeadResultKind::Classes);
    }
    said.classes = keys.number("num-detected-classes")?;
    if let Some(text) = keys.text(PROPERTY, "labelfile-path") {
        said.labels = Some(read_labels(&keys.file(&text)).map_err(NvinferError::Labels)?);
    }
    match said.finds {
        Some(HeadResultKind::Boxes | HeadResultKind::Instances) => read_boxes(keys, said, left_out),
        Some(HeadResultKind::Classes) => {
            said.score_threshold = keys.number("classifier-threshold")?;
            Ok(())
        }
        _ => Ok(()),
    }
}

fn read_boxes(
    keys: &mut Keys<'_>,
    said: &mut ImportedSettings,
    left_out: &mut Vec<SkippedSetting>,
) -> Result<(), NvinferError> {
    // `threshold` is the older name of this key.
    let old = keys.number_of(CLASSES, "threshold")?;
    let score = keys.number_of(CLASSES, "pre-cluster-threshold")?.or(old);
    said.score_threshold = Some(score.unwrap_or(SCORE_USUAL));
    let iou = keys.number_of(CLASSES, "nms-iou-threshold")?.unwrap_or(IOU_USUAL);
    let top: i64 = keys.number_of(CLASSES, "topk")?.unwrap_or(-1);
    said.detections_max = usize::try_from(top).ok().filter(|top| *top > 0);
    let cluster: u32 = keys.number("cluster-mode")?.unwrap_or(0);
    // Without clustering every box is kept.
    said.iou_threshold = Some(if cluster == 4 { 1.0 } else { iou });
    if ![2, 4].contains(&cluster) {
        left_out.push(SkippedSetting {
            key: format!("cluster-mode = {cluster}"),
            why: "boxes are filtered by NMS (cluster-mode 2)".to_owned(),
        });
    }
    Ok(())
}

/// Settings of a file. Each is marked when it is read.
struct Keys<'a> {
    path: &'a Path,
    entries: &'a [Entry],
    taken: Vec<bool>,
}

impl Keys<'_> {
    fn check_groups(&self) -> Result<(), NvinferError> {
        if self.entries.iter().any(|entry| entry.group == PROPERTY) {
            return Ok(());
        }
        let is_app = self.entries.iter().any(|entry| entry.key == "config-file");
        Err(NvinferError::NotNvinfer { is_app })
    }

    /// Resolves a path, which is relative to the file.
    fn file(&self, text: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(text)
    }

    fn text(&mut self, group: &str, key: &str) -> Option<String> {
        // If a key is given twice, the last one counts, as for GLib.
        let mut value = None;
        for (entry, taken) in self.entries.iter().zip(&mut self.taken) {
            if entry.group == group && entry.key == key {
                *taken = true;
                value = Some(entry.value.clone());
            }
        }
        value
    }

    fn number_of<T: Number>(
        &mut self,
        group: &'static str,
        key: &'static str,
    ) -> Result<Option<T>, NvinferError> {
        let Some(text) = self.text(group, key) else { return Ok(None) };
        let number = T::parse(&text);
        number.map(Some).ok_or_else(|| wrong(group, key, format!("`{text}` is not {}", T::WHAT)))
    }

    fn number<T: Number>(&mut self, key: &'static str) -> Result<Option<T>, NvinferError> {
        self.number_of(PROPERTY, key)
    }

    fn list<T: Number>(&mut self, key: &'static str) -> Result<Option<Vec<T>>, NvinferError> {
        let Some(text) = self.text(PROPERTY, key) else { return Ok(None) };
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        let numbers: Option<Vec<T>> = parts.map(T::parse).collect();
        let cause = || format!("`{text}` is not a list of {}s between semicolons", T::NAME);
        numbers.map(Some).ok_or_else(|| wrong(PROPERTY, key, cause()))
    }

    /// Returns the choice with the index that the key has.
    fn choice<T: Copy>(&mut self, key: &'static str, choices: &[T]) -> Result<Option<T>, NvinferError> {
        let Some(index) = self.number::<usize>(key)? else { return Ok(None) };
        let last = choices.len() - 1;
        let cause = || format!("it is {index}, but its values are 0 to {last}");
        choices.get(index).map(|choice| Some(*choice)).ok_or_else(|| wrong(PROPERTY, key, cause()))
    }

    /// Returns the settings that nothing has read.
    fn rest(self) -> impl Iterator<Item = SkippedSetting> {
        let left = self.entries.iter().zip(self.taken).filter(|(_, taken)| !taken);
        left.map(|(entry, _)| {
            let Entry { group, key, value } = entry;
            let place = if group == PROPERTY { String::new() } else { format!("[{group}] ") };
            SkippedSetting { key: format!("{place}{key} = {value}"), why: skip_reason(group, key).to_owned() }
        })
    }
}

fn exactly<T, const N: usize>(key: &'static str, values: Vec<T>) -> Result<[T; N], NvinferError> {
    let given = values.len();
    values.try_into().map_err(|_| wrong(PROPERTY, key, format!("it has {given} values, not {N}")))
}

fn wrong(group: &'static str, key: &'static str, cause: impl Into<String>) -> NvinferError {
    NvinferError::Value { group, key, cause: cause.into() }
}

trait Number: Sized {
    const NAME: &'static str;
    const WHAT: &'static str;
    fn parse(text: &str) -> Option<Self>;
}

impl Number for f32 {
    const NAME: &'static str = "number";
    const WHAT: &'static str = "a number";
    fn parse(text: &str) -> Option<Self> {
        Self::from_str(text).ok().filter(|number| number.is_finite())
    }
}

macro_rules! whole {
    ($($kind:ty),*) => {$(
        impl Number for $kind {
            const NAME: &'static str = "whole number";
            const WHAT: &'static str = "a whole number in the key's range";
            fn parse(text: &str) -> Option<Self> {
                Self::from_str(text).ok()
            }
        }
    )*};
}
whole!(u32, usize, i64);

/// Returns the reason why a setting is not imported.
fn skip_reason(group: &str, key: &str) -> &'static str {
    match key {
        _ if group.starts_with("class-attrs") && group != CLASSES => {
            "thresholds are the same for every class"
        }
        "batch-size" => "set batch in the board file's [[model]]",
        "interval" => {
            "set interval in the board file's [[model]] to this value + 1: Orinoco infers every n-th frame"
        }
        "gpu-id" | "enable-dla" | "use-dla-core" => "engines are chosen by the board file's [inference]",
        "network-mode" | "int8-calib-file" | "layer-device-precision" => {
            "the ONNX file's own precision is used"
        }
        "model-engine-file" | "workspace-size" | "force-implicit-batch-dim" => {
            "it belongs to a TensorRT engine; Orinoco loads the ONNX file"
        }
        "gie-unique-id" => "models are known by the name in the board file's [[model]]",
        "process-mode" | "operate-on-gie-id" | "operate-on-class-ids" => SECONDARY,
        "custom-lib-path" | "custom-network-config" | "engine-create-func-name" => {
            "it is compiled code; the head was guessed from the graph's outputs"
        }
        "mean-file" => "give the mean of each channel as `mean`",
        "segmentation-threshold" => "each pixel gets its most likely class",
        "filter-out-class-ids" => "all classes are reported; filter the results by label",
        _ if key.starts_with("parse-") => {
            "it is compiled code; the head was guessed from the graph's outputs"
        }
        "input-object-min-width" | "input-object-min-height" => {
            "set side_min in on = { ... } of the board file's [[model]]"
        }
        "input-object-max-width" | "input-object-max-height" => "objects have no maximum size",
        _ if key.starts_with("secondary-") => SECONDARY,
        _ if key.starts_with("detected-m") || key.starts_with("roi-") => {
            "boxes are not filtered by their size or place"
        }
        _ => "it has no counterpart",
    }
}
