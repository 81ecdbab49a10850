//! Writes a model as a `model.toml`, for `orinoco models init` and `import`.

use std::fmt::Write as _;

use orinoco_core::Choice;
use orinoco_vision::{Across, Fit, HeadSpec, InputSpec};

use crate::Model;
use crate::input::{
    AudioFeatures, AudioSpec, ExtraInputValue, FeatureKind, InputKind, ModelInput, Quantization,
};

impl Model {
    /// Formats the description as TOML. Uncertain keys of a guess have a comment with the reason. Reading the text returns
    /// this model again.
    pub fn to_toml(&self) -> String {
        let mut text = Writer { model: self, text: String::new(), table: "", marked: Vec::new() };
        text.line("version", "1");
        text.quoted("name", &self.name);
        for (key, value) in [("description", &self.description), ("license", &self.license)] {
            if !value.is_empty() {
                text.quoted(key, value);
            }
        }
        text.quoted("file", &self.file.display().to_string());
        if let Some(sha256) = &self.sha256 {
            text.quoted("sha256", sha256);
        }
        text.table("[input]");
        if let Some(name) = &self.input_name {
            text.quoted("name", name);
        }
        if let Some(element) = self.input_element {
            text.quoted("dtype", element.name());
        }
        match &self.input {
            ModelInput::Image(image) => text.image(image),
            ModelInput::Audio(audio) => text.audio(audio),
        }
        text.quantization(self.input_quantization);
        text.extra_inputs();
        text.table("[output]");
        text.head(&self.head);
        text.quantization(self.output_quantization);
        text.labels();
        text.unset();
        text.text
    }
}

struct Writer<'a> {
    model: &'a Model,
    text: String,
    /// Name of the table being written.
    table: &'static str,
    /// Uncertain keys that were written with their reason.
    marked: Vec<&'static str>,
}

impl Writer<'_> {
    /// Writes `key = value`, and the reason if it is unsure.
    fn line(&mut self, key: &str, value: &str) {
        // Keys of a pair are certain or unsure together.
        let key_of = match (key, self.table) {
            ("scale", _) => "mean",
            ("crop_from", _) => "fit",
            ("box_unit", _) => "boxes",
            ("quant_scale" | "quant_zero_point", "[output]") => "output.quant_scale",
            ("quant_zero_point", _) => "quant_scale",
            _ => key,
        };
        let unsure = self.model.unsure.iter().find(|unsure| unsure.key == key_of);
        let why = unsure.map_or_else(String::new, |unsure| format!("  # unsure: {}", unsure.why));
        self.marked.extend(unsure.map(|unsure| unsure.key));
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{key} = {value}{why}");
    }

    fn quoted(&mut self, key: &str, value: &str) {
        self.line(key, &quote(value));
    }

    fn number(&mut self, key: &str, value: f32) {
        self.line(key, &number(value));
    }

    /// Writes comments for unsure keys without a line, which have their defaults.
    fn unset(&mut self) {
        let unset = self.model.unsure.iter().filter(|unsure| !self.marked.contains(&unsure.key));
        for unsure in unset {
            let _ = writeln!(self.text, "# {} is not set; unsure: {}", unsure.key, unsure.why);
        }
    }

    fn table(&mut self, heading: &'static str) {
        self.table = heading;
        let _ = writeln!(self.text, "\n{heading}");
    }

    fn image(&mut self, image: &InputSpec) {
        let unsure_kind = self.model.unsure.iter().any(|unsure| unsure.key == "kind");
        if unsure_kind {
            self.quoted("kind", InputKind::Image.name());
        }
        self.quoted("layout", image.layout.name());
        self.line("width", &image.width.to_string());
        self.line("height", &image.height.to_string());
        self.quoted("color", image.color.name());
        self.quoted("resize", image.resize.name());
        self.quoted("fit", image.fit.name());
        match image.fit {
            Fit::Stretch => {}
            Fit::Letterbox => {
                self.quoted("align", image.align.name());
                if image.rounding != self.model.head.kind.rounding {
                    self.quoted("rounding", image.rounding.name());
                }
                self.line("fill", &image.fill.to_string());
            }
            Fit::Crop { shorter } => self.line("crop_from", &shorter.to_string()),
        }
        self.line("mean", &numbers(&image.mean));
        self.line("scale", &numbers(&image.scale));
    }

    fn audio(&mut self, audio: &AudioSpec) {
        self.quoted("kind", InputKind::Audio.name());
        self.line("sample_rate", &audio.sample_rate.to_string());
        match &audio.features {
            AudioFeatures::Samples { window, context } => {
                self.line("window", &window.to_string());
                self.line("context", &context.to_string());
            }
            AudioFeatures::Mfcc(mfcc) => {
                self.quoted("features", FeatureKind::Mfcc.name());
                for (key, value) in [
                    ("frames", mfcc.frames),
                    ("frame_samples", mfcc.frame_samples),
                    ("step_samples", mfcc.step_samples),
                    ("mel_bands", mfcc.mel_bands),
                    ("coefficients", mfcc.coefficients),
                ] {
                    self.line(key, &value.to_string());
                }
                self.line("low_hz", &format!("{:?}", mfcc.edges_hz.0));
                self.line("high_hz", &format!("{:?}", mfcc.edges_hz.1));
            }
        }
    }

    fn quantization(&mut self, quantization: Option<Quantization>) {
        if let Some(Quantization { scale, zero_point }) = quantization {
            self.number("quant_scale", scale);
            self.line("quant_zero_point", &format!("{zero_point:.0}"));
        }
    }

    fn extra_inputs(&mut self) {
        for extra_input in &self.model.extra_inputs {
            match &extra_input.value {
                ExtraInputValue::Constant(values) => {
                    self.table("[[constant]]");
                    self.quoted("input", &extra_input.input);
                    self.line("value", &numbers(values));
                }
                ExtraInputValue::State(output) => {
                    self.table("[[state]]");
                    self.quoted("input", &extra_input.input);
                    self.quoted("output", output);
                }
            }
            if !extra_input.shape.is_empty() {
                self.line("shape", &format!("{:?}", extra_input.shape));
            }
        }
    }

    /// Writes the head, with the keys that differ from its defaults.
    fn head(&mut self, head: &HeadSpec) {
        self.quoted("head", head.kind.name());
        let usual = HeadSpec::new(head.kind, head.classes);
        if head.strides != usual.strides {
            self.line("strides", &format!("{:?}", head.strides));
        }
        if head.kind.has_boxes() {
            self.number("score_threshold", head.score_threshold);
            self.number("iou_threshold", head.iou_threshold);
        }
        if head.detections_max != usual.detections_max {
            self.line("detections_max", &head.detections_max.to_string());
        }
        if head.across == Across::AllClasses {
            self.line("class_agnostic", "true");
        }
        if head.multi_label != usual.multi_label {
            self.line("multi_label", if head.multi_label { "true" } else { "false" });
        }
        if head.activation != usual.activation {
            self.quoted("activation", head.activation.name());
        }
        if let Some(background) = head.background {
            self.line("background", &background.to_string());
        }
        if head.top != usual.top {
            self.line("top", &head.top.to_string());
        }
        let unsure_boxes = self.model.unsure.iter().any(|unsure| unsure.key == "boxes");
        if head.boxes != usual.boxes || unsure_boxes {
            self.quoted("boxes", head.boxes.name());
        }
        if head.box_unit != usual.box_unit || unsure_boxes {
            self.quoted("box_unit", head.box_unit.name());
        }
        if let Some(values) = head.keypoint_values {
            self.line("keypoint_values", &values.to_string());
        }
    }

    fn labels(&mut self) {
        let labels = &self.model.labels;
        let numbered = crate::output::numbered_labels(labels.len());
        if labels.is_empty() {
        } else if *labels == numbered {
            self.line("classes", &labels.len().to_string());
        } else {
            let quoted: Vec<String> = labels.iter().map(|label| quote(label)).collect();
            self.line("labels", &format!("[{}]", quoted.join(", ")));
        }
    }
}

/// Formats a TOML basic string.
fn quote(text: &str) -> String {
    let escaped = text.chars().fold(String::with_capacity(text.len() + 2), |mut quoted, character| {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            character if character.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(character));
            }
            character => quoted.push(character),
        }
        quoted
    });
    format!("\"{escaped}\"")
}

/// Formats a number as the shortest text that reads as the same number.
fn number(value: f32) -> String {
    format!("{value:?}")
}

/// Formats an array; a single number where all are the same.
fn numbers(values: &[f32]) -> String {
    let same = values.windows(2).all(|pair| pair[0] == pair[1]);
    let shown = if same { &values[..1] } else { values };
    format!("[{}]", shown.iter().map(|value| number(*value)).collect::<Vec<_>>().join(", "))
}
