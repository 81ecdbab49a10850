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

/// Setting as written in the file.
#[derive(Debug, PartialEq)]
pub(super) struct Entry {
    group: String,
    key: String,
    value: String,
}

/// Reads the settings of a key file.
pub(super) fn from_keyfile(path: &Path, text: &str) -> Result<Vec<Entry>, Diagnosis> {
    let next = "correct that line, or name an nvinfer file (.txt, .yml) or Triton's config.pbtxt";
    let file = Ini::load_from_str_noescape(text).about(&codes::IMPORT, path.display(), next)?;
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
    let next = "correct that line, or name an nvinfer file (.txt, .yml) or Triton's config.pbtxt";
    let faulty = |cause: String| Diagnosis::new(&codes::IMPORT, path.display(), cause, next);
    // The YAML parser recurses for every level.
    let opened = text.chars().filter(|c| "[{".contains(*c)).count();
    if opened > DEPTH_MAX {
        return Err(faulty("it nests lists or mappings, which nvinfer's files do not".to_owned()));
    }
    let documents = Yaml::load_from_str(text).map_err(|error| faulty(error.to_string()))?;
    let groups = documents.first().and_then(Yaml::as_mapping);
    let groups = groups.ok_or_else(|| faulty("it is not a mapping of groups".to_owned()))?;
    let mut entries = Vec::new();
    for (group, keys) in groups {
        let group = scalar(group).ok_or_else(|| faulty("a group has no plain name".to_owned()))?;
        let keys = keys.as_mapping().ok_or_else(|| faulty(format!("`{group}` is not a mapping of keys")))?;
        for (key, value) in keys {
            let key = scalar(key).ok_or_else(|| faulty(format!("a key of `{group}` has no plain name")))?;
            let value = scalar(value)
                .ok_or_else(|| faulty(format!("`{key}` of `{group}` is not one number or text")))?;
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

fn find_onnx(keys: &mut Keys<'_>, given: Option<&Path>) -> Result<PathBuf, Diagnosis> {
    let named = keys.text(PROPERTY, "onnx-file").map(|text| keys.file(&text));
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    named.ok_or_else(|| {
        let others = ["model-engine-file", "tlt-encoded-model", "uff-file", "model-file"];
        let other = others.iter().find(|key| keys.entries.iter().any(|entry| entry.key == **key));
        let cause = match other {
            Some(key) => format!("it names no onnx-file, only a {key}, which is not ONNX"),
            None => "it names no onnx-file".to_owned(),
        };
        let next = "name the ONNX file that the model was exported to with --onnx";
        Diagnosis::new(&codes::IMPORT, keys.path.display(), cause, next)
    })
}

fn read_input(
    keys: &mut Keys<'_>,
    said: &mut ImportedSettings,
    left_out: &mut Vec<SkippedSetting>,
) -> Result<(), Diagnosis> {
    said.layout = keys.choice("network-input-order", &[Layout::Nchw, Layout::Nhwc])?;
    if let Some(sizes) = keys.list::<u32>("infer-dims")? {
        let sizes: [u32; 3] = keys.exactly("infer-dims", sizes)?;
        // The order is always channels, height, width.
        (said.height, said.width) = (Some(sizes[1]), Some(sizes[2]));
        if sizes.contains(&0) {
            return Err(keys.fault(PROPERTY, "infer-dims", "a size is 0"));
        }
    }
    let colors = [ColorOrder::Rgb, ColorOrder::Bgr, ColorOrder::Gray];
    said.color = Some(keys.choice("model-color-format", &colors)?.unwrap_or(ColorOrder::Rgb));
    said.scale = Some(keys.number("net-scale-factor")?.unwrap_or(1.0));
    said.mean = Some(match keys.list::<f32>("offsets")? {
        Some(offsets) if offsets.len() == 1 => [offsets[0]; 3],
        Some(offsets) => keys.exactly("offsets", offsets)?,
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
) -> Result<(), Diagnosis> {
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
        said.labels = Some(read_labels(&keys.file(&text))?);
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
) -> Result<(), Diagnosis> {
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
    fn check_groups(&self) -> Result<(), Diagnosis> {
        if self.entries.iter().any(|entry| entry.group == PROPERTY) {
            return Ok(());
        }
        let pipeline = self.entries.iter().any(|entry| entry.key == "config-file");
        let next = if pipeline {
            "this is a deepstream-app configuration: give the nvinfer file that its config-file names"
        } else {
            "name an nvinfer file (.txt, .yml) or Triton's config.pbtxt"
        };
        let cause = "it has no group `property`, which every nvinfer file has";
        Err(Diagnosis::new(&codes::IMPORT, self.path.display(), cause, next))
    }

    /// Resolves a path, which is relative to the file.
    fn file(&self, text: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(text)
    }

    fn fault(&self, group: &str, key: &str, cause: &str) -> Diagnosis {
        let subject = format!("{}: key `{key}` of [{group}]", self.path.display());
        Diagnosis::new(&codes::IMPORT, subject, cause, "correct the value")
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

    fn number_of<T: Number>(&mut self, group: &str, key: &str) -> Result<Option<T>, Diagnosis> {
        let Some(text) = self.text(group, key) else { return Ok(None) };
        let number = T::parse(&text);
        number.map(Some).ok_or_else(|| self.fault(group, key, &format!("`{text}` is not {}", T::WHAT)))
    }

    fn number<T: Number>(&mut self, key: &str) -> Result<Option<T>, Diagnosis> {
        self.number_of(PROPERTY, key)
    }

    fn list<T: Number>(&mut self, key: &str) -> Result<Option<Vec<T>>, Diagnosis> {
        let Some(text) = self.text(PROPERTY, key) else { return Ok(None) };
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        let numbers: Option<Vec<T>> = parts.map(T::parse).collect();
        let wanted = format!("`{text}` is not a list of {}s between semicolons", T::NAME);
        numbers.map(Some).ok_or_else(|| self.fault(PROPERTY, key, &wanted))
    }

    fn exactly<T, const N: usize>(&self, key: &str, values: Vec<T>) -> Result<[T; N], Diagnosis> {
        let given = values.len();
        values.try_into().map_err(|_| self.fault(PROPERTY, key, &format!("it has {given} values, not {N}")))
    }

    /// Returns the choice with the index that the key has.
    fn choice<T: Copy>(&mut self, key: &str, choices: &[T]) -> Result<Option<T>, Diagnosis> {
        let Some(index) = self.number::<usize>(key)? else { return Ok(None) };
        let last = choices.len() - 1;
        let cause = || format!("it is {index}, but its values are 0 to {last}");
        choices.get(index).map(|choice| Some(*choice)).ok_or_else(|| self.fault(PROPERTY, key, &cause()))
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
