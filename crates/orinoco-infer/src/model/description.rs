//! `model.toml` into a checked model, and the check of a model against its real graph.

use std::path::{Path, PathBuf};

use orinoco_config::{Document, Faults, Reader, Vars};
use orinoco_core::{Diagnosis, Dim, ElementType, Layout, TensorDesc, codes};
use orinoco_vision::{Align, ColorOrder, Fit, HeadSpec, InputSpec, Resize, heads};

/// Larger inputs are a typing error, not a model.
const SIDE_MAX: i64 = 8192;
/// Detectors of crowds find hundreds; COCO's metric counts 100.
const DETECTIONS_MAX: i64 = 10_000;

/// A model as its description says it is.
#[derive(Clone, Debug)]
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
    /// The graph's image input; its only input when not given.
    pub input_name: Option<String>,
    /// What the input wants.
    pub input: InputSpec,
    /// How to read the outputs.
    pub head: HeadSpec,
    /// Class names by index.
    pub labels: Vec<String>,
    /// The description's file; `None` when it was inferred from the graph.
    pub described_by: Option<PathBuf>,
}

/// A model's place in its graph, found by [`Model::bind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Index of the image input.
    pub input: usize,
    /// Every input's shape for the batch asked for.
    pub shapes: Vec<Vec<usize>>,
    /// Pictures in one run: the batch asked for, or what the graph fixes.
    pub batch: usize,
}

impl Model {
    /// Reads a description. `locate` finds the files it names: `(as written, beside the description)` to a path.
    pub(super) fn read(
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
        let input_table = top.table("input");
        let input_name = input_table.text("name");
        let input = read_input(input_table);
        let (head, labels) = read_output(top.table("output"), locate);
        top.finish();
        let described_by = Some(path.to_owned());
        let model =
            Self { name, description, license, file, sha256, input_name, input, head, labels, described_by };
        doc.finish(model)
    }

    /// What a graph that nobody described most likely is, from its inputs and outputs alone.
    pub fn infer(file: &Path, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Result<Self, Diagnosis> {
        let unknown = |cause: String| {
            let next = "write a model.toml for it (docs/model-files.md has one for each head)";
            Diagnosis::new(&codes::MODEL_UNKNOWN, file.display(), cause, next)
        };
        let [image] = inputs else {
            return Err(unknown(format!(
                "it has {} inputs, and only a single image input can be inferred",
                inputs.len()
            )));
        };
        let (layout, channels, height, width) = image_axes(&image.shape)
            .ok_or_else(|| unknown(format!("its input {image} is not an image of known size")))?;
        let head = heads::guess(width, height, outputs).ok_or_else(|| {
            let shown: Vec<String> = outputs.iter().map(ToString::to_string).collect();
            unknown(format!("its outputs ({}) are those of no known head", shown.join("; ")))
        })?;
        // Each head's usual training input: YOLOX feeds raw BGR letterboxed, point detectors RGB in 0..1.
        let yolox = head.kind == "yolox";
        let input = InputSpec {
            layout,
            width,
            height,
            color: match (channels, yolox) {
                (1, _) => ColorOrder::Gray,
                (_, true) => ColorOrder::Bgr,
                (_, false) => ColorOrder::Rgb,
            },
            resize: Resize::Bilinear,
            fit: if yolox { Fit::Letterbox } else { Fit::Stretch },
            align: Align::TopLeft,
            fill: 114,
            mean: [0.0; 3],
            scale: [if yolox { 1.0 } else { 1.0 / 255.0 }; 3],
        };
        let labels = (0..head.classes).map(|class| format!("class {class}")).collect();
        let name = file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Ok(Self {
            name,
            description: String::new(),
            license: String::new(),
            file: file.to_owned(),
            sha256: None,
            input_name: None,
            input,
            head,
            labels,
            described_by: None,
        })
    }

    /// Checks the description against the graph, and fixes every shape for `batch` pictures (or for as many as the graph
    /// fixes).
    pub fn bind(
        &self,
        inputs: &[TensorDesc],
        outputs: &[TensorDesc],
        batch: usize,
    ) -> Result<Binding, Diagnosis> {
        let index = self.find_input(inputs)?;
        let image = &inputs[index];
        if image.element != Some(ElementType::F32) {
            let is = image.element.map_or("unknown", ElementType::name);
            return Err(self.disagrees(format!(
                "its input `{}` takes {is} values, and only f32 is supported",
                image.name
            )));
        }
        let batch = match image.shape.first() {
            Some(Dim::Fixed(fixed)) => *fixed,
            _ => batch,
        };
        let shape = self.input.shape(batch);
        let fits =
            image.shape.len() == 4 && image.shape.iter().zip(&shape).all(|(axis, size)| axis.accepts(*size));
        if !fits {
            let wanted: Vec<Dim> = shape.into_iter().map(Dim::Fixed).collect();
            let wanted = orinoco_core::shape_text(&wanted);
            return Err(
                self.disagrees(format!("its input is {image}, where the description makes it {wanted}"))
            );
        }
        if let Some(odd) = outputs.iter().find(|output| output.element != Some(ElementType::F32)) {
            return Err(self.disagrees(format!("its output {odd} is not f32, and only f32 is supported")));
        }
        heads::build(&self.head, &self.input, outputs).map_err(|cause| self.disagrees(cause))?;
        Ok(Binding { input: index, shapes: vec![shape], batch })
    }

    fn find_input(&self, inputs: &[TensorDesc]) -> Result<usize, Diagnosis> {
        let names = || inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>().join(", ");
        if inputs.len() != 1 {
            return Err(self.disagrees(format!("it has inputs {}, and only one is supported", names())));
        }
        match &self.input_name {
            Some(name) if inputs[0].name != *name => {
                Err(self.disagrees(format!("it has no input `{name}`; its inputs are {}", names())))
            }
            _ => Ok(0),
        }
    }

    fn disagrees(&self, cause: String) -> Diagnosis {
        let next = match &self.described_by {
            Some(path) => format!("correct {} (`orinoco models show` prints the graph)", path.display()),
            None => "write a model.toml for it".to_owned(),
        };
        Diagnosis::new(&codes::MODEL_DISAGREES, self.file.display(), cause, next)
    }

    /// The name of class `class_id`.
    pub fn label(&self, class_id: u32) -> &str {
        self.labels.get(class_id as usize).map_or("?", String::as_str)
    }
}

/// Layout, channels, height and width of an image tensor of fixed size.
fn image_axes(shape: &[Dim]) -> Option<(Layout, usize, u32, u32)> {
    let [_, Dim::Fixed(a), Dim::Fixed(b), Dim::Fixed(c)] = *shape else { return None };
    let side = |n: usize| u32::try_from(n).ok();
    match (a, c) {
        (1 | 3, _) => Some((Layout::Nchw, a, side(b)?, side(c)?)),
        (_, 1 | 3) => Some((Layout::Nhwc, c, side(a)?, side(b)?)),
        _ => None,
    }
}

fn read_input(table: Reader<'_>) -> InputSpec {
    let side = |key| match table.integer(key, 1..=SIDE_MAX) {
        Some(n) => u32::try_from(n).unwrap_or(1),
        None => {
            if !table.has(key) {
                table.missing(key, "give the model's input size in pixels");
            }
            1
        }
    };
    let (width, height) = (side("width"), side("height"));
    table.choice("dtype", &[("f32", ())]);
    let color = table
        .choice("color", &[("RGB", ColorOrder::Rgb), ("BGR", ColorOrder::Bgr), ("GRAY", ColorOrder::Gray)]);
    let resize = [("bilinear", Resize::Bilinear), ("bilinear-antialias", Resize::BilinearAntialias)];
    let spec = InputSpec {
        layout: table
            .choice("layout", &[("NCHW", Layout::Nchw), ("NHWC", Layout::Nhwc)])
            .unwrap_or(Layout::Nchw),
        width,
        height,
        color: color.unwrap_or(ColorOrder::Rgb),
        resize: table.choice("resize", &resize).unwrap_or(Resize::Bilinear),
        fit: table
            .choice("fit", &[("stretch", Fit::Stretch), ("letterbox", Fit::Letterbox)])
            .unwrap_or(Fit::Stretch),
        align: table
            .choice("align", &[("top-left", Align::TopLeft), ("center", Align::Center)])
            .unwrap_or(Align::TopLeft),
        fill: table.integer("fill", 0..=255).and_then(|n| u8::try_from(n).ok()).unwrap_or(114),
        mean: per_channel(&table, "mean", 0.0),
        scale: per_channel(&table, "scale", 1.0),
    };
    table.finish();
    spec
}

fn per_channel(table: &Reader<'_>, key: &'static str, default: f32) -> [f32; 3] {
    let values = table.floats(key);
    match values[..] {
        [] => [default; 3],
        [one] => [one as f32; 3],
        [a, b, c] => [a as f32, b as f32, c as f32],
        _ => {
            table.fault(
                key,
                &codes::KEY_RANGE,
                format!("it has {} values", values.len()),
                "give 1 or 3, one per channel",
            );
            [default; 3]
        }
    }
}

fn read_output(table: Reader<'_>, locate: &dyn Fn(&str, &Path) -> PathBuf) -> (HeadSpec, Vec<String>) {
    let choices: Vec<(&str, &str)> = heads::names().into_iter().map(|name| (name, name)).collect();
    let kind = table.choice("head", &choices).unwrap_or_default().to_owned();
    if !table.has("head") {
        table.missing("head", "name the head that reads the model's outputs");
    }
    let labels = read_labels(&table, locate);
    let float = |key, default| table.float(key, 0.0..=1.0).map_or(default, |n| n as f32);
    let detections_max = table.integer("detections_max", 1..=DETECTIONS_MAX).unwrap_or(300);
    let spec = HeadSpec {
        kind,
        strides: table.counts("strides"),
        classes: labels.len(),
        score_threshold: float("score_threshold", 0.3),
        iou_threshold: float("iou_threshold", 0.45),
        detections_max: usize::try_from(detections_max).unwrap_or(300),
    };
    table.finish();
    (spec, labels)
}

fn read_labels(table: &Reader<'_>, locate: &dyn Fn(&str, &Path) -> PathBuf) -> Vec<String> {
    let listed = table.texts("labels");
    let Some(text) = table.text("labels_file") else {
        if listed.is_empty() {
            table.missing("labels", "list the class names, or name a labels_file with one per line");
        }
        return listed;
    };
    let path = locate(&text, &table.dir_of("labels_file"));
    match std::fs::read_to_string(&path) {
        Ok(text) => text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect(),
        Err(error) => {
            let cause = format!("{}: {error}", path.display());
            table.fault("labels_file", &codes::FILE_MISSING, cause, "check the path");
            Vec::new()
        }
    }
}
