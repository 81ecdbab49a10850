//! Outputs of a model: `[output]`.

use std::path::{Path, PathBuf};

use orinoco_config::{FileKind, TableReader};
use orinoco_core::{Diagnosis, codes};
use orinoco_vision::{Across, HeadKind, HeadSpec, heads};

use crate::input::{Quantization, read_quantization};

/// Maximum of `detections_max`: detectors of crowds find hundreds; COCO's metric counts 100.
pub(crate) const DETECTIONS_MAX: i64 = 10_000;
/// Maximum number of classes; ImageNet-21k has 21,843.
pub(crate) const CLASSES_MAX: i64 = 100_000;
/// Files of class names: 40 bytes for each of the maximum number of classes.
pub(crate) const LABELS: FileKind = FileKind {
    noun: "a file of labels",
    bytes_max: 4 << 20,
    code: &codes::KEY_RANGE,
    next: "check the path",
};

/// Reads `[output]`: the head, the quantization of outputs, and the labels.
pub(crate) fn read_output(
    table: TableReader<'_>,
    locate: &dyn Fn(&str, &Path) -> PathBuf,
) -> (HeadSpec, Option<Quantization>, Vec<String>) {
    let kind: Option<HeadKind> = table.choice_of("head");
    if !table.has("head") {
        table.missing("head", "set head to the parser of the model's outputs");
    }
    let labels = read_labels(&table, kind, locate);
    // Without a head the file has a fault, and no model is made of it.
    let usual = HeadSpec::new(kind.unwrap_or(heads::RAW), labels.len());
    let float = |key, default| table.float(key, 0.0..=1.0).map_or(default, |n| n as f32);
    let count = |key, max, default| {
        table.integer(key, 1..=max).and_then(|n| usize::try_from(n).ok()).unwrap_or(default)
    };
    let agnostic = table.boolean("class_agnostic").unwrap_or(false);
    let spec = HeadSpec {
        strides: table.counts("strides"),
        score_threshold: float("score_threshold", usual.score_threshold),
        iou_threshold: float("iou_threshold", usual.iou_threshold),
        detections_max: count("detections_max", DETECTIONS_MAX, usual.detections_max),
        across: if agnostic { Across::AllClasses } else { Across::NoClasses },
        multi_label: table.boolean("multi_label").unwrap_or(usual.multi_label),
        activation: table.choice_of("activation").unwrap_or(usual.activation),
        background: table.integer("background", 0..=CLASSES_MAX).and_then(|n| u32::try_from(n).ok()),
        top: count("top", CLASSES_MAX, usual.top),
        boxes: table.choice_of("boxes").unwrap_or(usual.boxes),
        box_unit: table.choice_of("box_unit").unwrap_or(usual.box_unit),
        keypoint_values: table.integer("keypoint_values", 2..=3).and_then(|n| usize::try_from(n).ok()),
        ..usual
    };
    let quantization = read_quantization(&table);
    table.finish();
    (spec, quantization, labels)
}

/// Makes names for classes without names: `class 0`, `class 1` and so on.
pub(crate) fn numbered_labels(classes: usize) -> Vec<String> {
    (0..classes).map(|class| format!("class {class}")).collect()
}

fn read_labels(
    table: &TableReader<'_>,
    kind: Option<HeadKind>,
    locate: &dyn Fn(&str, &Path) -> PathBuf,
) -> Vec<String> {
    let listed = table.texts_given("labels");
    let is_misread = listed.is_none() && table.has("labels");
    let classes = table.integer("classes", 1..=CLASSES_MAX).and_then(|n| usize::try_from(n).ok());
    let labels = match table.text("labels_file") {
        Some(text) => {
            let path = locate(&text, &table.dir_of("labels_file"));
            read_labels_file(table, &path)
        }
        None => listed.unwrap_or_default(),
    };
    // A key that has a fault of its own is not also reported as missing.
    let says_classes = is_misread || table.has("labels_file") || table.has("classes");
    let needs_labels = kind.is_none_or(|kind| kind.has_classes());
    match classes {
        Some(classes) if labels.is_empty() => return numbered_labels(classes),
        Some(classes) if classes != labels.len() => {
            let cause = format!("it is {classes}, but the number of labels is {}", labels.len());
            table.fault("classes", &codes::KEY_RANGE, cause, "correct one of them, or leave classes out");
        }
        None if labels.is_empty() && needs_labels && !says_classes => {
            let next = "list the class names, name a labels_file with one per line, or give classes = N";
            table.missing("labels", next);
        }
        _ => {}
    }
    labels
}

fn read_labels_file(table: &TableReader<'_>, path: &Path) -> Vec<String> {
    let labels: Vec<String> = match LABELS.read_text(path) {
        Ok(text) => text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect(),
        Err(error) => {
            let fault = Diagnosis::from(error);
            let cause = format!("{}: {}", path.display(), fault.cause);
            table.fault("labels_file", fault.code, cause, fault.next);
            return Vec::new();
        }
    };
    if labels.len() as i64 > CLASSES_MAX {
        let cause = format!("{}: it has {} lines", path.display(), labels.len());
        table.fault(
            "labels_file",
            &codes::KEY_RANGE,
            cause,
            format!("name a file of at most {CLASSES_MAX} labels"),
        );
        return Vec::new();
    }
    labels
}
