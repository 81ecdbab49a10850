//! `model.toml` into a checked model.

use std::path::{Path, PathBuf};

use orinoco_config::{Document, Faults, Vars};
use orinoco_core::ElementType;
use orinoco_vision::HeadSpec;

use crate::input::{ExtraInput, ModelInput, Quantization, read_extra_inputs, read_input};
use crate::output::read_output;

/// A model as its description says it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// What it is, in a sentence.
    pub description: String,
    /// SPDX licence expression.
    pub license: String,
    /// The ONNX file.
    pub file: PathBuf,
    /// The file's SHA-256 in hex, where the description gives it.
    pub sha256: Option<String>,
    /// The graph's main input; its only one, beside `extra_inputs`, when not given.
    pub input_name: Option<String>,
    /// The main input's type, where the description promises one.
    pub input_element: Option<ElementType>,
    /// What the main input wants.
    pub input: ModelInput,
    /// How numbers are written into an integer input; as they are when not given.
    pub input_quantization: Option<Quantization>,
    /// What goes into the other inputs.
    pub extra_inputs: Vec<ExtraInput>,
    /// How to read the outputs.
    pub head: HeadSpec,
    /// How to read integer outputs; as they are when not given.
    pub output_quantization: Option<Quantization>,
    /// Class names by index; classes beyond are called `class N`.
    pub labels: Vec<String>,
    /// The description's file; `None` when it was guessed from the graph.
    pub described_by: Option<PathBuf>,
    /// What of a guess the graph does not prove.
    pub unsure: Vec<UncertainKey>,
}

/// A key of a guessed description that may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UncertainKey {
    /// The key. Of a key that `[input]` has as well, that of `[output]` is `output.KEY`.
    pub key: &'static str,
    /// Why the graph does not prove it.
    pub why: &'static str,
}

impl Model {
    /// Reads a description. `locate` finds the files it names: `(as written, beside the description)` to a path.
    pub(crate) fn read(
        path: &Path,
        version_file: Option<PathBuf>,
        locate: &dyn Fn(&str, &Path) -> PathBuf,
    ) -> Result<Self, Faults> {
        let doc = Document::load(path, &Vars::new())?;
        let top = doc.reader();
        top.version();
        let name = top.text_required("name");
        let description = top.text("description").unwrap_or_default();
        let license = top.text("license").unwrap_or_default();
        let sha256 = top.text("sha256");
        let file = match (top.text("file"), version_file) {
            (Some(text), _) => locate(&text, &top.dir_of("file")),
            (None, Some(file)) => file,
            (None, None) => {
                top.missing("file", "add it, or put the model at 1/model.onnx beside the description");
                PathBuf::new()
            }
        };
        let mut input = read_input(top.table("input"));
        let extra_inputs = read_extra_inputs(&top);
        let (head, output_quantization, labels) = read_output(top.table("output"), locate);
        top.finish();
        if let ModelInput::Image(image) = &mut input.input
            && !input.is_rounding_given
        {
            image.rounding = head.kind.rounding;
        }
        let model = Self {
            name,
            description,
            license,
            file,
            sha256,
            input_name: input.name,
            input_element: input.element,
            input: input.input,
            input_quantization: input.quantization,
            extra_inputs,
            head,
            output_quantization,
            labels,
            described_by: Some(path.to_owned()),
            unsure: Vec::new(),
        };
        doc.finish(model)
    }

    /// The name of class `class_id`.
    pub fn label(&self, class_id: u32) -> &str {
        self.labels.get(class_id as usize).map_or("?", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use orinoco_vision::Rounding;

    use super::*;

    /// What a letterboxing description of `head` says of whole pixels, with `line` in its `[input]`.
    fn read(head: &str, line: &str) -> Result<Model, Faults> {
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("model.toml");
        let text = format!(
            "version = 1\nname = 'm'\nfile = 'm.onnx'\n[input]\nwidth = 64\nheight = 64\nfit = 'letterbox'\n{line}\n\
             [output]\nhead = '{head}'\nclasses = 2\n"
        );
        std::fs::write(&path, text).expect("written");
        Model::read(&path, None, &|text, dir| dir.join(text))
    }

    #[test]
    fn the_head_s_trainers_round_unless_the_description_does() {
        let check = |head: &str, line: &str, expected: Rounding| {
            let model = read(head, line).expect("it is whole");
            assert_eq!(model.input.image().map(|image| image.rounding), Some(expected), "{head} {line}");
            // What is written says the same.
            let written = model.to_toml();
            let line = written.lines().find(|line| line.starts_with("rounding")).unwrap_or_default();
            let again = read(head, line).expect("what is written is read");
            assert_eq!(again.input.image().map(|image| image.rounding), Some(expected), "{written}");
        };
        check("yolox", "", Rounding::Down);
        check("yolov8", "", Rounding::Nearest);
        check("end2end", "align = 'top-left'", Rounding::Nearest);
        check("nanodet", "", Rounding::Exact);
        check("yolov8", "rounding = 'down'", Rounding::Down);
        check("yolox", "rounding = 'nearest'", Rounding::Nearest);
        check("ssd", "rounding = 'exact'", Rounding::Exact);
        let fault = read("yolox", "rounding = 'up'").expect_err("there is no such rule");
        assert!(format!("{fault:?}").contains("nearest"), "{fault:?}");
    }
}
