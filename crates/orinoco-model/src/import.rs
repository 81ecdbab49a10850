//! Imports descriptions written for other runtimes: DeepStream's nvinfer files and Triton's `config.pbtxt`.
//!
//! Such a file has only part of a `model.toml`. The rest is guessed from the graph and marked as a guess. Settings of
//! the file that a `model.toml` cannot have are listed, so that nothing is lost without notice.

mod nvinfer;
mod pbtxt;
mod settings;
mod triton;

pub use settings::{Import, SkippedSetting};

use std::path::Path;

use orinoco_config::{FileKind, ReadErrorKind};
use orinoco_core::text::count;
use orinoco_core::{Diagnosis, TensorDesc, WithSubject, codes};
use orinoco_vision::heads::HeadResultKind;
use orinoco_vision::{HeadSpec, heads};

use crate::{Model, ModelInput, UncertainKey};

/// Files of other runtimes. They have a few kilobytes; a larger file is of another kind.
const DESCRIPTIONS: FileKind = FileKind {
    noun: "an nvinfer file (.txt, .yml) or Triton's config.pbtxt; `orinoco models init` takes ONNX files",
    bytes_max: 1 << 20,
    code: &codes::IMPORT,
    next: "check the path",
};

impl Import {
    /// Reads the file at `path`. `onnx` is the path of its ONNX file, if known.
    pub fn read(path: &Path, onnx: Option<&Path>) -> Result<Self, Diagnosis> {
        // A file that is not text is most likely the model itself.
        let text = DESCRIPTIONS.read_text(path).map_err(|error| match error.kind {
            ReadErrorKind::TooLarge | ReadErrorKind::NotText(_) => {
                Diagnosis { next: format!("name {}", DESCRIPTIONS.noun), ..error.into() }
            }
            ReadErrorKind::Io(_) | ReadErrorKind::NotAFile(_) => error.into(),
        })?;
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let import = match extension.as_str() {
            "pbtxt" => triton::read(path, &text, onnx),
            "yml" | "yaml" => nvinfer::read(path, &nvinfer::from_yaml(path, &text)?, onnx),
            _ => nvinfer::read(path, &nvinfer::from_keyfile(path, &text)?, onnx),
        }?;
        let next = "correct the path in the file, or name the ONNX file with --onnx";
        import.said.check().map_err(|cause| {
            Diagnosis::new(&codes::IMPORT, path.display(), cause, "correct the number in the file")
        })?;
        std::fs::metadata(&import.onnx).about(&codes::FILE_MISSING, import.onnx.display(), next)?;
        Ok(import)
    }

    /// Returns the model with these inputs and outputs: settings of the file, and guesses from the graph for the rest.
    pub fn describe(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Result<Model, Diagnosis> {
        let mut model = Model::guess(&self.onnx, inputs, outputs)?;
        let said = &self.said;
        set(&mut model.name, said.name.clone());
        model.input_element = said.element;
        if let Some(name) = &said.input_name {
            model.input_name = Some(name.clone());
        }
        for state in &said.states {
            model.extra_inputs.retain(|extra_input| extra_input.input != state.input);
            model.extra_inputs.push(state.clone());
        }
        let mut settled = self.lay_over_input(&mut model);
        settled.extend(self.lay_over_head(&mut model));
        model.unsure.retain(|unsure| !settled.contains(&unsure.key));
        if !self.head_agrees(&model.head) {
            let why = "the outputs do not match the file's network-type";
            model.unsure.push(UncertainKey { key: "head", why });
        }
        Ok(model)
    }

    /// Returns the settings of the file that do not fit `model`, as [`Import::describe`] made it.
    pub fn contradictions(&self, model: &Model) -> Vec<SkippedSetting> {
        let labels = self.said.labels.as_ref().map_or(0, Vec::len);
        let known = self.labels_fit(model.head.classes);
        let fault = (labels > 0 && !known).then(|| SkippedSetting {
            key: count(labels as u64, "label"),
            why: format!("the graph has {}", count(model.head.classes as u64, "class")),
        });
        fault.into_iter().collect()
    }

    /// Applies the input settings. Returns the keys that are certain now.
    fn lay_over_input(&self, model: &mut Model) -> Vec<&'static str> {
        let said = &self.said;
        let ModelInput::Image(image) = &mut model.input else { return Vec::new() };
        set(&mut image.layout, said.layout);
        set(&mut image.width, said.width);
        set(&mut image.height, said.height);
        set(&mut image.color, said.color);
        set(&mut image.resize, said.resize);
        set(&mut image.fill, said.fill);
        if let Some((fit, align)) = said.fit {
            (image.fit, image.align) = (fit, align);
        }
        set(&mut image.rounding, said.rounding);
        set(&mut image.mean, said.mean);
        set(&mut image.scale, said.scale.map(|scale| [scale; 3]));
        let settled = [
            (said.width.is_some(), "width"),
            (said.color.is_some(), "color"),
            (said.resize.is_some(), "resize"),
            (said.fit.is_some(), "fit"),
            (said.fit.is_some(), "align"),
            (said.fill.is_some(), "fill"),
            (said.scale.is_some(), "mean"),
        ];
        settled.into_iter().filter(|(settled, _)| *settled).map(|(_, key)| key).collect()
    }

    /// Applies the output settings. Returns the keys that are certain now.
    fn lay_over_head(&self, model: &mut Model) -> Vec<&'static str> {
        let said = &self.said;
        let classes = said.classes.or(said.labels.as_ref().map(Vec::len));
        // The graphs of some heads differ only in their number of classes.
        let wanted = match said.finds {
            Some(HeadResultKind::Classes) => Some(heads::CLASSIFICATION),
            Some(HeadResultKind::ClassMap) => Some(heads::SEGMENTATION),
            _ => None,
        };
        if let Some(kind) = wanted.filter(|kind| *kind != model.head.kind) {
            model.head = HeadSpec::new(kind, classes.unwrap_or(model.head.classes));
        }
        let open = model.unsure.iter().any(|unsure| unsure.key == "classes");
        let mut settled = Vec::new();
        if let Some(classes) = classes.filter(|classes| open && *classes > 0) {
            model.head.classes = classes;
            model.labels = (0..classes).map(|class| format!("class {class}")).collect();
            settled.push("classes");
        }
        if let Some(labels) = said.labels.as_ref().filter(|_| self.labels_fit(model.head.classes)) {
            model.labels.clone_from(labels);
            settled.push("classes");
        }
        set(&mut model.head.score_threshold, said.score_threshold);
        set(&mut model.head.iou_threshold, said.iou_threshold);
        set(&mut model.head.detections_max, said.detections_max);
        settled
    }

    fn labels_fit(&self, classes: usize) -> bool {
        self.said.labels.as_ref().is_some_and(|labels| labels.len() == classes)
    }

    fn head_agrees(&self, head: &HeadSpec) -> bool {
        match self.said.finds {
            Some(HeadResultKind::Boxes) => head.kind.has_boxes(),
            Some(HeadResultKind::Instances) => head.kind.finds == HeadResultKind::Instances,
            _ => true,
        }
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}
