//! Guess of a description for a graph without one, and the keys that the graph does not confirm.

use std::path::Path;

use orinoco_core::{ColorOrder, Diagnosis, Dim, ElementType, Layout, TensorDesc, codes};
use orinoco_vision::heads::KeypointShape;
use orinoco_vision::{Fit, Guess, HeadKind, HeadSpec, InputSpec, heads};

use crate::description::{Model, UncertainKey};
use crate::input::{
    AudioFeatures, AudioSpec, ExtraInput, ExtraInputValue, ModelInput, Quantization, SIDE_MAX, WINDOW_MAX,
};
use crate::metadata;
use crate::onnx::OnnxMetadata;
use crate::output::{CLASSES_MAX, numbered_labels};

/// Assumed width and height of an image input without a size: most detectors are exported with it.
const SIDE_USUAL: u32 = 640;
/// Assumed sample rate: that of recorded speech, in hertz.
const SAMPLE_RATE_USUAL: u32 = 16_000;
/// Assumed number of new samples for a model that leaves it open: 32 ms.
const WINDOW_USUAL: usize = 512;

impl Model {
    /// Guesses the description of the graph in `file` from its inputs, its outputs and its notes.
    ///
    /// # Errors
    /// `E0205`.
    pub fn guess(file: &Path, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Result<Self, Diagnosis> {
        Self::guess_from(file, inputs, outputs).map_err(|why| why.diagnosis(file))
    }

    fn guess_from(file: &Path, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Result<Self, GuessError> {
        let (main, extra_inputs, mut unsure) = split_inputs(inputs, outputs);
        let extras = OnnxMetadata::read(file);
        let main = main.ok_or(GuessError::NoInput)?;
        let fed_back = |output: &&TensorDesc| {
            !extra_inputs
                .iter()
                .any(|extra_input| extra_input.value == ExtraInputValue::State(output.name.clone()))
        };
        let read: Vec<TensorDesc> = outputs.iter().filter(fed_back).cloned().collect();
        let input_quantization;
        let (input, mut head) = if let Some(image) = image_input(main, &mut unsure) {
            let Guess { head, mut input, unsure: more } =
                heads::guess(&image, &read).expect("the head `raw` takes anything");
            unsure.extend(more.into_iter().map(|(key, why)| UncertainKey { key, why }));
            mark_unproven(&input, &head, &extras, &mut unsure);
            input_quantization = quantize_image(main, &extras, &mut input, &mut unsure);
            unsure.push(UncertainKey { key: "resize", why: "the filter of training is not in the graph" });
            if input.color != ColorOrder::Gray && !unsure.iter().any(|unsure| unsure.key == "color") {
                unsure.push(UncertainKey { key: "color", why: "the order of channels is not in the graph" });
            }
            (ModelInput::Image(input), head)
        } else if let Some(audio) = audio_input(main, &mut unsure) {
            input_quantization = quantize_sound(main, &extras, &mut unsure);
            (ModelInput::Audio(audio), audio_head(&read))
        } else {
            return Err(GuessError::InputUnknown(main.clone()));
        };
        if head.classes as i64 > CLASSES_MAX {
            return Err(GuessError::TooManyClasses(head.classes));
        }
        let labels = guess_labels(&extras, &read, &mut head, &mut unsure);
        if is_ultralytics(&extras) && !reads_ultralytics(head.kind) {
            let why = "Ultralytics made the file, and its models have boxes and classes in another order";
            unsure.push(UncertainKey { key: "head", why });
        }
        let output_quantization = quantize_outputs(&read, &extras, &mut unsure);
        let name = file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Ok(Self {
            name,
            description: String::new(),
            license: String::new(),
            file: file.to_owned(),
            sha256: None,
            input_name: Some(main.name.clone()),
            input,
            input_element: None,
            input_quantization,
            extra_inputs,
            head,
            output_quantization,
            labels,
            described_by: None,
            unsure,
        })
    }
}

/// Reason why no description of a graph can be guessed (`E0205`).
#[derive(Debug, PartialEq)]
enum GuessError {
    /// The graph has no inputs.
    NoInput,
    /// The main input is neither an image nor audio.
    InputUnknown(TensorDesc),
    /// The outputs have this number of classes, which is above the maximum.
    TooManyClasses(usize),
}

impl GuessError {
    /// Returns the fault of the graph in `file` that a user sees.
    fn diagnosis(&self, file: &Path) -> Diagnosis {
        let cause = match self {
            Self::NoInput => "it has no input that could be an image or audio".to_owned(),
            Self::InputUnknown(main) => format!("its input {main} is neither an image nor audio"),
            Self::TooManyClasses(classes) => {
                format!("its outputs have {classes} classes; the maximum is {CLASSES_MAX}")
            }
        };
        let next = "write a model.toml for it (see docs/model-files.md)";
        Diagnosis::new(&codes::MODEL_UNKNOWN, file.display(), cause, next)
    }
}

/// Whether the file has the notes of Ultralytics' exporter.
fn is_ultralytics(extras: &OnnxMetadata) -> bool {
    let note = |key: &str| extras.notes.get(key).map_or("", String::as_str);
    note("author") == "Ultralytics" || note("description").starts_with("Ultralytics")
}

/// Whether a head decodes the outputs of Ultralytics' models. For detectors, only some do.
fn reads_ultralytics(kind: HeadKind) -> bool {
    kind.reads_ultralytics || !kind.has_boxes()
}

/// Marks keys that a graph never shows as unsure, unless the exporter's notes settle them.
fn mark_unproven(image: &InputSpec, head: &HeadSpec, extras: &OnnxMetadata, unsure: &mut Vec<UncertainKey>) {
    let is_letterbox = image.fit == Fit::Letterbox;
    let is_noted = is_ultralytics(extras) && is_letterbox && reads_ultralytics(head.kind);
    for (key, why, applies) in [
        ("fit", "the graph does not show how images were cropped in training", true),
        ("align", "the graph does not show the letterbox alignment of training", is_letterbox),
        ("fill", "the graph does not show the letterbox fill of training", is_letterbox),
        ("mean", "the graph does not show how images were normalised in training", true),
    ] {
        if applies && !is_noted && !unsure.iter().any(|unsure| unsure.key == key) {
            unsure.push(UncertainKey { key, why });
        }
    }
}

/// Returns the smallest and largest number of an 8-bit integer type, in which images and sound are stored.
fn range_of(element: Option<ElementType>) -> Option<(f32, f32)> {
    match element {
        Some(ElementType::U8) => Some((0.0, 255.0)),
        Some(ElementType::I8) => Some((-128.0, 127.0)),
        _ => None,
    }
}

/// Most common normalisations of images: none, 0 to 1, -1 to 1, and that of ImageNet.
const NORMALISATIONS: [([f32; 3], [f32; 3]); 4] = [
    ([0.0; 3], [1.0; 3]),
    ([0.0; 3], [1.0 / 255.0; 3]),
    ([127.5; 3], [1.0 / 127.5; 3]),
    ([123.675, 116.28, 103.53], [1.0 / 58.395, 1.0 / 57.12, 1.0 / 57.375]),
];
/// Tolerance when the range of samples is compared with that of the integers, as a share of the range: calibration cuts
/// rare values, and ImageNet's channels differ.
const RANGE_TOLERANCE: f32 = 0.15;

/// Chooses the quantization and normalisation of an integer input: with the scale next to it in the graph, so that the
/// samples fill the range of the integers; none where the graph has no scale.
fn quantize_image(
    input: &TensorDesc,
    extras: &OnnxMetadata,
    image: &mut InputSpec,
    unsure: &mut Vec<UncertainKey>,
) -> Option<Quantization> {
    if !matches!(input.element, Some(ElementType::U8 | ElementType::I8 | ElementType::I32 | ElementType::I64))
    {
        return None;
    }
    unsure.retain(|unsure| unsure.key != "mean");
    let guessed = (image.mean, image.scale);
    let mut normalise = |mean, scale, why| {
        (image.mean, image.scale) = (mean, scale);
        unsure.push(UncertainKey { key: "mean", why });
    };
    let scaled = range_of(input.element).zip(extras.input_quantization(&input.name));
    let Some(((low, high), quantization)) = scaled else {
        normalise([0.0; 3], [1.0; 3], "integer input: pixel values 0 to 255 are used unchanged");
        // Signed integers begin at -128.
        let is_signed = input.element == Some(ElementType::I8);
        if is_signed {
            let why =
                "the graph has no quantization scale for its input: pixel values 0 to 255 become -128 to 127";
            unsure.push(UncertainKey { key: "quant_scale", why });
        }
        return is_signed.then_some(Quantization { scale: 1.0, zero_point: -128.0 });
    };
    let Quantization { scale, zero_point } = quantization;
    let (low, high) = ((low - zero_point) * scale, (high - zero_point) * scale);
    let fills = |(mean, factor): &([f32; 3], [f32; 3])| {
        mean.iter().zip(factor).all(|(mean, factor)| {
            let near = |sample: f32, end: f32| {
                ((sample - mean) * factor - end).abs() <= RANGE_TOLERANCE * (high - low)
            };
            near(0.0, low) && near(255.0, high)
        })
    };
    let usual = std::iter::once(&guessed).chain(&NORMALISATIONS).find(|usual| fills(usual)).copied();
    match usual {
        Some((mean, scale)) => {
            normalise(mean, scale, "chosen to match the range of the input's quantisation scale");
        }
        None => {
            let factor = (high - low) / 255.0;
            let why = "samples of 0 to 255 are spread over the range that the scale of the input gives";
            normalise([-low / factor; 3], [factor; 3], why);
        }
    }
    Some(quantization)
}

/// Chooses the quantization of sound from -1 to 1 in an integer input.
fn quantize_sound(
    input: &TensorDesc,
    extras: &OnnxMetadata,
    unsure: &mut Vec<UncertainKey>,
) -> Option<Quantization> {
    let (low, high) = range_of(input.element)?;
    let known = extras.input_quantization(&input.name);
    Some(known.unwrap_or_else(|| {
        let why = "the graph has no scale for its input: -1 to 1 is spread over all integers";
        unsure.push(UncertainKey { key: "quant_scale", why });
        Quantization { scale: 2.0 / (high - low + 1.0), zero_point: (low + high + 1.0) / 2.0 }
    }))
}

/// Chooses the quantization of integer outputs: the scale before them in the graph.
fn quantize_outputs(
    outputs: &[TensorDesc],
    extras: &OnnxMetadata,
    unsure: &mut Vec<UncertainKey>,
) -> Option<Quantization> {
    if outputs.iter().all(|output| range_of(output.element).is_none()) {
        return None;
    }
    let scale =
        |output: &TensorDesc| range_of(output.element).and_then(|_| extras.output_quantization(&output.name));
    let mut scales = outputs.iter().map(scale);
    let first = scales.next().flatten();
    if first.is_none() || scales.any(|scale| scale != first) {
        let why =
            "the outputs have different quantization scales or none, so their integers are not dequantized";
        unsure.push(UncertainKey { key: "output.quant_scale", why });
        return None;
    }
    first
}

/// Chooses the names of classes: those in the file's notes, else numbers.
fn guess_labels(
    extras: &OnnxMetadata,
    outputs: &[TensorDesc],
    head: &mut HeadSpec,
    unsure: &mut Vec<UncertainKey>,
) -> Vec<String> {
    if !head.kind.has_classes() {
        return Vec::new();
    }
    let notes = &extras.notes;
    if let Some(noted) = notes.get("kpt_shape").and_then(|shape| metadata::keypoint_shape(shape)) {
        settle_keypoints(noted, outputs, head, unsure);
    }
    let named = notes.get("names").and_then(|names| metadata::class_names(names));
    let open = unsure.iter().any(|unsure| unsure.key == "classes");
    if let Some(names) = named.filter(|names| open || names.len() == head.classes) {
        // The trainer's list confirms the number of classes, and with it the head.
        unsure.retain(|unsure| !["classes", "head"].contains(&unsure.key));
        head.classes = names.len();
        return names;
    }
    unsure.push(UncertainKey { key: "classes", why: "the names of classes are not in the graph" });
    numbered_labels(head.classes)
}

/// Corrects the head by the keypoints in the trainer's notes. If they fit, the head is certain.
fn settle_keypoints(
    noted: KeypointShape,
    outputs: &[TensorDesc],
    head: &mut HeadSpec,
    unsure: &mut Vec<UncertainKey>,
) {
    if (head.kind.settle_keypoints)(head, outputs, noted) {
        unsure.retain(|unsure| unsure.key != "head");
    }
}

/// Chooses the main input, and the values of the others.
fn split_inputs<'a>(
    inputs: &'a [TensorDesc],
    outputs: &[TensorDesc],
) -> (Option<&'a TensorDesc>, Vec<ExtraInput>, Vec<UncertainKey>) {
    let mut unsure = Vec::new();
    let (main, others) = match inputs {
        [] => return (None, Vec::new(), unsure),
        // The input with four axes is the image; among several, the first one.
        _ => {
            let rank = |input: &TensorDesc| if input.shape.len() == 4 { 4 } else { 0 };
            let best = (0..inputs.len()).rev().max_by_key(|index| rank(&inputs[*index])).unwrap_or(0);
            (&inputs[best], inputs.iter().enumerate().filter(move |(index, _)| *index != best))
        }
    };
    let mut extra_inputs = Vec::new();
    for (_, input) in others {
        // A state is an output of the same rank whose name begins with the input's: `state` and `stateN`, `h0` and
        // `h0_out`.
        let back = outputs
            .iter()
            .find(|output| output.name.starts_with(&input.name) && output.shape.len() == input.shape.len());
        let value = match back {
            Some(output) => ExtraInputValue::State(output.name.clone()),
            None => {
                let why = "the graph does not show the value of an additional input";
                unsure.push(UncertainKey { key: "value", why });
                let speech_rate = input.name == "sr" && input.element == Some(ElementType::I64);
                ExtraInputValue::Constant(vec![if speech_rate { SAMPLE_RATE_USUAL as f32 } else { 0.0 }])
            }
        };
        let open = input.shape.contains(&Dim::Dynamic);
        let size = |dim: &Dim| if let Dim::Fixed(n) = dim { *n } else { 1 };
        let shape = if open { input.shape.iter().map(size).collect() } else { Vec::new() };
        extra_inputs.push(ExtraInput { input: input.name.clone(), shape, value });
    }
    (Some(main), extra_inputs, unsure)
}

/// Reads the size, layout and channels of an image from the graph.
fn image_input(input: &TensorDesc, unsure: &mut Vec<UncertainKey>) -> Option<InputSpec> {
    let axes = match input.shape[..] {
        [_, a, b, c] => [a, b, c],
        [a, b, c] => [a, b, c],
        _ => return None,
    };
    let channels = |dim: Dim| matches!(dim, Dim::Fixed(1 | 3));
    let (layout, depth, height, width) = match axes {
        [depth, height, width] if channels(depth) => (Layout::Nchw, depth, height, width),
        [height, width, depth] if channels(depth) => (Layout::Nhwc, depth, height, width),
        [Dim::Dynamic, height, width] => (Layout::Nchw, Dim::Fixed(3), height, width),
        _ => return None,
    };
    if height == Dim::Dynamic || width == Dim::Dynamic {
        unsure.push(UncertainKey { key: "width", why: "the graph takes any size" });
    }
    if layout == Layout::Nhwc && depth == Dim::Fixed(1) {
        unsure.push(UncertainKey { key: "kind", why: "audio features have the same shape" });
    }
    let side = |dim: Dim| match dim {
        Dim::Fixed(n) => u32::try_from(n).ok().filter(|n| (1..=SIDE_MAX).contains(&i64::from(*n))),
        Dim::Dynamic => Some(SIDE_USUAL),
    };
    let color = if depth == Dim::Fixed(1) { ColorOrder::Gray } else { ColorOrder::Rgb };
    Some(InputSpec { fill: 114, ..InputSpec::plain(layout, side(width)?, side(height)?, color) })
}

/// Reads an input of sound: one row of samples.
fn audio_input(input: &TensorDesc, unsure: &mut Vec<UncertainKey>) -> Option<AudioSpec> {
    let [_, samples] = input.shape[..] else { return None };
    let window = if let Dim::Fixed(n) = samples { n } else { WINDOW_USUAL };
    if !i64::try_from(window).is_ok_and(|window| (1..=WINDOW_MAX).contains(&window)) {
        return None;
    }
    unsure.push(UncertainKey { key: "window", why: "the graph does not show how many samples are new" });
    unsure
        .push(UncertainKey { key: "context", why: "the graph does not show how many samples are repeated" });
    unsure.push(UncertainKey { key: "sample_rate", why: "it is not in the graph" });
    let features = AudioFeatures::Samples { window, context: 0 };
    Some(AudioSpec { sample_rate: SAMPLE_RATE_USUAL, features })
}

/// Chooses the head of a sound model: classification of one row of classes, else raw tensors.
fn audio_head(outputs: &[TensorDesc]) -> HeadSpec {
    match outputs {
        [TensorDesc { shape, .. }] => match shape[..] {
            [_, Dim::Fixed(classes)] => HeadSpec::new(heads::CLASSIFICATION, classes),
            _ => HeadSpec::new(heads::RAW, 0),
        },
        _ => HeadSpec::new(heads::RAW, 0),
    }
}

#[cfg(test)]
mod tests {
    use orinoco_core::Choice;
    use orinoco_tests::onnx::{Graph, element};

    use super::*;

    #[test]
    fn noted_keypoints_make_a_pose_model() {
        let check = |kind: &str, (count, values), channels: usize, expected: (&str, usize, Option<usize>)| {
            let kind = HeadKind::from_name(kind).expect("a head has this name");
            let shape = vec![Dim::Fixed(1), Dim::Fixed(channels), Dim::Fixed(8400)];
            let output = TensorDesc { name: "output0".to_owned(), element: Some(ElementType::F32), shape };
            let (mut head, mut unsure) = (HeadSpec::new(kind, channels - 4), Vec::new());
            settle_keypoints(KeypointShape { count, values }, &[output], &mut head, &mut unsure);
            assert_eq!((head.kind.name, head.classes, head.keypoint_values), expected);
        };
        check("yolov8", (3, 2), 4 + 2 + 6, ("yolov8-pose", 2, Some(2)));
        check("yolov8-obb", (5, 3), 4 + 1 + 15, ("yolov8-pose", 1, None));
        // The noted keypoints leave no class, or belong to another head.
        check("yolov8", (3, 2), 4 + 6, ("yolov8", 6, None));
        check("detr", (3, 2), 4 + 2 + 6, ("detr", 8, None));
    }

    #[test]
    fn sizes_that_no_description_may_have_are_not_guessed() {
        let desc = |name: &str, shape: &[usize]| TensorDesc {
            name: name.to_owned(),
            element: Some(ElementType::F32),
            shape: shape.iter().map(|size| Dim::Fixed(*size)).collect(),
        };
        let check = |input: &[usize], output: &[usize], is_known: bool| {
            let (x, y) = (desc("x", input), desc("y", output));
            match Model::guess_from(Path::new("m.onnx"), std::slice::from_ref(&x), &[y]) {
                Ok(_) => assert!(is_known, "{input:?}"),
                Err(error) => assert_eq!((error, is_known), (GuessError::InputUnknown(x), false)),
            }
        };
        check(&[1, 3, 640, 640], &[1, 25200, 85], true);
        check(&[1, 3, 200_000, 200_000], &[1, 25200, 85], false);
        check(&[1, 3, 640, 0], &[1, 25200, 85], false);
        check(&[1, 512], &[1, 2], true);
        check(&[1, 0], &[1, 2], false);
        check(&[1, 1_000_000_000], &[1, 2], false);
    }

    fn tensor(name: &str, element: ElementType, shape: &[usize]) -> TensorDesc {
        let shape = shape.iter().map(|size| Dim::Fixed(*size)).collect();
        TensorDesc { name: name.to_owned(), element: Some(element), shape }
    }

    /// Guesses the model of a file with `graph`, the input `x` and the output `y`.
    fn guess(graph: Graph, input: TensorDesc, output: TensorDesc) -> Model {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), graph.file()).expect("written");
        Model::guess(file.path(), &[input], &[output]).expect("an image and classes")
    }

    /// Returns the integers that samples of 0, 128 and 255 become in the first channel.
    fn stored(model: &Model) -> [f32; 3] {
        let image = model.input.image().expect("an image");
        [0.0, 128.0, 255.0].map(|sample| {
            let value = (sample - image.mean[0]) * image.scale[0];
            let Quantization { scale, zero_point } =
                model.input_quantization.unwrap_or(Quantization { scale: 1.0, zero_point: 0.0 });
            (value / scale + zero_point).round()
        })
    }

    #[test]
    fn samples_keep_apart_in_integer_inputs() {
        use ElementType::{F32, I8, I32, U8};
        let photo = |element| tensor("x", element, &[1, 3, 224, 224]);
        let classes = || tensor("y", F32, &[1, 1000]);
        let scaled = |scale: f32, kind: i32, zero_point: u8| {
            let graph = Graph::new().floats("s", &[], &[scale]).constant("z", kind, &[], vec![zero_point]);
            graph.node("DequantizeLinear", &["x", "s", "z"], &["f"], &[])
        };
        let check = |graph: Graph, element, expected: [f32; 3], normalised: (f32, f32), sure: bool| {
            let model = guess(graph, photo(element), classes());
            assert_eq!(stored(&model), expected, "{model:?}");
            let image = model.input.image().expect("an image");
            let near = |a: f32, b: f32| (a - b).abs() <= 1e-4 * b.abs();
            assert!(near(image.mean[0], normalised.0) && near(image.scale[0], normalised.1), "{image:?}");
            assert!(model.unsure.iter().any(|unsure| unsure.key == "mean"), "normalising is a guess");
            assert_eq!(model.unsure.iter().all(|unsure| unsure.key != "quant_scale"), sure);
        };
        // Samples stay as they are where the graph has no scale.
        check(Graph::new(), U8, [0.0, 128.0, 255.0], (0.0, 1.0), true);
        check(Graph::new(), I8, [-128.0, 0.0, 127.0], (0.0, 1.0), false);
        check(Graph::new(), I32, [0.0, 128.0, 255.0], (0.0, 1.0), true);
        // The scale spreads 0 to 1, -1 to 1, and 0 to 255.
        check(scaled(1.0 / 255.0, element::U8, 0), U8, [0.0, 128.0, 255.0], (0.0, 1.0 / 255.0), true);
        check(scaled(1.0 / 128.0, element::I8, 0), I8, [-128.0, 1.0, 128.0], (127.5, 1.0 / 127.5), true);
        check(scaled(1.0, element::I8, 0x80), I8, [-128.0, 0.0, 127.0], (0.0, 1.0), true);
        // ImageNet's normalisation, whose first channel does not fill the range.
        check(scaled(4.76 / 255.0, element::U8, 114), U8, [1.0, 118.0, 234.0], (123.675, 1.0 / 58.395), true);
        // A range that no common normalisation has is filled.
        check(scaled(0.5, element::U8, 200), U8, [0.0, 128.0, 255.0], (200.0, 0.5), true);
    }

    #[test]
    fn integer_outputs_have_the_scale_of_the_graph() {
        let photo = || tensor("x", ElementType::F32, &[1, 3, 224, 224]);
        let classes = || tensor("y", ElementType::I8, &[1, 1000]);
        let graph = Graph::new().floats("s", &[], &[0.25]).constant("z", element::I8, &[], vec![0x80]);
        let graph = graph.node("QuantizeLinear", &["f", "s", "z"], &["y"], &[]);
        let model = guess(graph, photo(), classes());
        assert_eq!(model.output_quantization, Some(Quantization { scale: 0.25, zero_point: -128.0 }));
        let model = guess(Graph::new(), photo(), classes());
        assert_eq!(model.output_quantization, None);
        let toml = model.to_toml();
        assert!(toml.contains("# output.quant_scale is not set; unsure: "), "{toml}");
    }

    #[test]
    fn what_a_graph_does_not_prove_is_marked() {
        let photo = || tensor("x", ElementType::F32, &[1, 3, 640, 640]);
        let boxes = || tensor("y", ElementType::F32, &[1, 84, 8400]);
        let marked = |model: &Model| {
            let toml = model.to_toml();
            for unsure in &model.unsure {
                let mark = |line: &str| line.contains(unsure.key) && line.contains("unsure: ");
                assert!(toml.lines().any(mark), "{}: {toml}", unsure.key);
            }
            ["fit", "align", "fill", "mean"].map(|key| model.unsure.iter().any(|unsure| unsure.key == key))
        };
        assert_eq!(marked(&guess(Graph::new(), photo(), boxes())), [true; 4]);
        let noted = Graph::new().note("author", "Ultralytics");
        assert_eq!(marked(&guess(noted, photo(), boxes())), [false; 4]);
        // 2100 cells of 320 by 320 with their values last, as YOLOX has them.
        let turned = tensor("y", ElementType::F32, &[1, 2100, 84]);
        let small = tensor("x", ElementType::F32, &[1, 3, 320, 320]);
        let noted = Graph::new().note("author", "Ultralytics").note("names", "{0: 'person'}");
        let model = guess(noted, small, turned);
        assert!(model.unsure.iter().any(|unsure| unsure.key == "head"), "{model:?}");
        marked(&model);
    }

    #[test]
    fn more_classes_than_anyone_has_are_refused() {
        let input = tensor("x", ElementType::F32, &[1, 3, 224, 224]);
        let output = tensor("y", ElementType::F32, &[1, 4_000_000_001]);
        let error = Model::guess_from(Path::new("m.onnx"), &[input], &[output]);
        assert_eq!(error.expect_err("no model has so many"), GuessError::TooManyClasses(4_000_000_001));
    }
}
