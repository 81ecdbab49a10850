//! Settings of a model in a file of another runtime.

use std::path::{Path, PathBuf};

use orinoco_config::FileKind;
use orinoco_core::{ColorOrder, Diagnosis, ElementType, Layout, Resize, codes};
use orinoco_vision::heads::HeadResultKind;
use orinoco_vision::{Align, Fit, Rounding};

use crate::input::{ExtraInput, SIDE_MAX};
use crate::output::{CLASSES_MAX, DETECTIONS_MAX, LABELS};

/// Settings of a model from a file of another runtime.
#[derive(Debug)]
pub struct Import {
    /// Path of the ONNX file.
    pub onnx: PathBuf,
    /// Settings that a `model.toml` cannot have.
    pub left_out: Vec<SkippedSetting>,
    pub(super) said: ImportedSettings,
}

/// Setting that was not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedSetting {
    /// The setting as the file writes it.
    pub key: String,
    /// Reason why it was not imported, or the setting to use instead.
    pub why: String,
}

/// Settings in the file; `None` where it has none.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ImportedSettings {
    pub(super) name: Option<String>,
    pub(super) input_name: Option<String>,
    pub(super) element: Option<ElementType>,
    pub(super) layout: Option<Layout>,
    pub(super) width: Option<u32>,
    pub(super) height: Option<u32>,
    pub(super) color: Option<ColorOrder>,
    pub(super) resize: Option<Resize>,
    pub(super) fit: Option<(Fit, Align)>,
    /// Rounding of a letterboxed image's sides.
    pub(super) rounding: Option<Rounding>,
    pub(super) fill: Option<u8>,
    pub(super) mean: Option<[f32; 3]>,
    pub(super) scale: Option<f32>,
    /// Type of the network's results, as the file declares it.
    pub(super) finds: Option<HeadResultKind>,
    pub(super) classes: Option<usize>,
    pub(super) labels: Option<Vec<String>>,
    pub(super) score_threshold: Option<f32>,
    pub(super) iou_threshold: Option<f32>,
    pub(super) detections_max: Option<usize>,
    pub(super) states: Vec<ExtraInput>,
}

impl ImportedSettings {
    /// Finds numbers beyond the limits of a `model.toml`, because tables of that size would be made.
    pub(super) fn check(&self) -> Result<(), String> {
        let side = |size: Option<u32>| size.map(|size| size as usize);
        let labels = self.labels.as_ref().map(Vec::len);
        for (what, number, most) in [
            ("number of classes", self.classes, CLASSES_MAX),
            ("number of labels", labels, CLASSES_MAX),
            ("detections per image", self.detections_max, DETECTIONS_MAX),
            ("input width", side(self.width), SIDE_MAX),
            ("input height", side(self.height), SIDE_MAX),
        ] {
            if let Some(number) = number.filter(|number| i64::try_from(*number).map_or(true, |n| n > most)) {
                return Err(format!("{what} is {number}, above the maximum of {most}"));
            }
        }
        Ok(())
    }
}

/// Reads the names in a labels file: one per line, or all on one line between semicolons, as nvinfer has them.
pub(super) fn read_labels(path: &Path) -> Result<Vec<String>, Diagnosis> {
    let kind =
        FileKind { code: &codes::IMPORT, next: "correct the path of the labels in the file", ..LABELS };
    let text = kind.read_text(path)?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let names: Vec<&str> = match lines[..] {
        [one] if one.contains(';') => one.split(';').map(str::trim).filter(|name| !name.is_empty()).collect(),
        _ => lines,
    };
    Ok(names.into_iter().map(str::to_owned).collect())
}
