//! Reads a `model.toml` into a checked model.

use std::path::{Path, PathBuf};

use orinoco_config::{Document, Faults, Vars};
use orinoco_core::ElementType;
use orinoco_vision::HeadSpec;

use crate::input::{ExtraInput, ModelInput, Quantization, read_extra_inputs, read_input};
use crate::output::read_output;

/// Model as its description defines it.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Name of the model.
    pub name: String,
    /// Purpose of the model, in a sentence.
    pub description: String,
    /// SPDX licence expression.
    pub license: String,
    /// Path of the ONNX file.
    pub file: PathBuf,
    /// SHA-256 of the file in hex, where the description has it.
    pub sha256: Option<String>,
    /// Name of the graph's main input; `None` where it is the only one apart from `extra_inputs`.
    pub input_name: Option<String>,
    /// Element type of the main input, where the description requires one.
    pub input_element: Option<ElementType>,
    /// Format of the main input.
    pub input: ModelInput,
    /// Quantization of an integer input; `None` writes numbers unchanged.
    pub input_quantization: Option<Quantization>,
    /// Values for the other inputs.
    pub extra_inputs: Vec<ExtraInput>,
    /// Head that decodes the outputs.
    pub head: HeadSpec,
    /// Quantization of integer outputs; `None` reads numbers unchanged.
    pub output_quantization: Option<Quantization>,
    /// Names of the classes, by index; classes beyond are called `class N`.
    pub labels: Vec<String>,
    /// Path of the description; `None` where it was guessed from the graph.
    pub described_by: Option<PathBuf>,
    /// Keys of a guess that the graph does not confirm.
    pub unsure: Vec<UncertainKey>,
}

/// Key of a guessed description that may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UncertainKey {
    /// Name of the key. If `[input]` has a key of the same name, the one of `[output]` is `output.KEY`.
    pub key: &'static str,
    /// Reason why the graph does not confirm it.
    pub why: &'static str,
}

impl Model {
    /// Reads a description. `locate` finds the files it names: (name as written, folder of the description) to a path.
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
                top.missing("file", "add it, or put the model at 1/model.onnx next to model.toml");
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

    /// Returns the name of class `class_id`.
    pub fn label(&self, class_id: u32) -> &str {
        self.labels.get(class_id as usize).map_or("?", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use orinoco_vision::Rounding;

    use super::*;

    /// Reads a description of `head` with letterbox and with `line` in its `[input]`.
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
            // The written description has the same rounding.
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
